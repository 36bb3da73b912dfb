"""llama-bench on one and two Radeon AI PRO R9700, 18 builds and backends, one sequence. How many cards there
were stands in `gpu_config`; a run of a long context is a single repetition."""

from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, joined, scaled
from llm_measured.published.sources import about
from llm_measured.published.sources._llama_bench import rate

ABOUT = about("r9700-kyuz0")
CARDS = {"single": 1, "dual": 2}


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        measured_on = str(raw.json(file).at("meta", "generated_at"))[:10]
        for at, r in raw.json_items(file, "runs"):
            cards = CARDS.get(r["gpu_config"])
            if r["error"] or cards is None:
                yield at.left_out(f"the run failed ({r['error_type'] or 'no reason stated'})")
                continue
            columns = rate(str(r["test"]).split(" @ ")[0], r["tps_mean"], r["tps_std"] or None)
            if columns is None:
                yield at.left_out(f"a test that the importer does not know ({r['test']})")
                continue
            yield at.row(
                **columns | {"context_depth": r["context_tokens"] or 0},
                measured_on=measured_on,
                accelerator_raw="AMD Radeon AI PRO R9700",
                accelerators=cards,
                pp=cards if cards > 1 else None,
                engine="llama.cpp",
                engine_version=joined(build=r.at("build", "number"), commit=r.at("build", "hash")),
                backend=r["env"],
                flags=joined(flash_attn=r["fa"], ngl=r["ngl"], mmap=r["mmap"], rpc=r["rpc"]),
                checkpoint_raw=r["model_clean"],
                parameters_b=r["params_b"],
                weights_bytes=scaled(r["file_size_gib"], 2**30),
                weights_format=r["quant"],
            )
