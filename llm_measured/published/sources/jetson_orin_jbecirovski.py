"""llama-bench on a Jetson AGX Orin 64 GB; the power mode stands in the folder's name. The files of the folder
`raw` are the same runs without it, the other logs are answers without a rate."""

from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, joined
from llm_measured.published.sources import about
from llm_measured.published.sources._llama_bench import line

ABOUT = about("jetson-orin-jbecirovski")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        run = file.split("runs__")[1].removesuffix("__stdout.log")
        mode = next((m for m in ("30w-stock", "maxn-locked-clocks", "maxn-stock-clocks") if m in run), None)
        build = raw.text(file).partition("build: ")[2].split("\n")[0]
        for at, r, _ in raw.tables(file):
            columns = line(r) if r.get("t/s") else None
            if columns is None:
                yield at.left_out("no line of llama-bench")
                continue
            columns |= {"flags": joined(power_mode=mode, folder=run[11:]) + f"; {columns['flags']}"}
            yield at.row(
                **columns | {"checkpoint_raw": f"Llama-3.1-8B {columns['weights_format']}"},
                printed={"checkpoint_raw": r["model"]},
                measured_on=run[:10],
                accelerator_raw="Jetson AGX Orin 64GB",
                power_limit_w=30 if mode == "30w-stock" else None,
                engine_version=build or None,
            )
