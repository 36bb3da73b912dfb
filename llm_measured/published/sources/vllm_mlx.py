"""vllm-mlx's own table on an Apple M4 Max with 128 GB, one request. The page's tables of batching and
streaming name no machine, and those of caches repeat prompts: both are left out, as is
the README that repeats it."""

from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, leading, scaled
from llm_measured.published.sources import about
from llm_measured.published.sources._tables import single

ABOUT = about("vllm-mlx")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        for at, r, headings in raw.tables(file):
            if not {"Gen Speed", "Gen Speed (tok/s)"} & set(r):
                yield at.left_out("no table of single requests with its machine")
                continue
            chip = "Apple M4 Max" if "M4 Max" in headings[-1] else "Apple M1 Max"
            yield at.row(
                **single(leading(r["Gen Speed"] or r["Gen Speed (tok/s)"])),
                accelerator_raw=chip,
                accelerator_memory_gb=128 if chip == "Apple M4 Max" else 64,
                accelerators=1,
                engine="vllm-mlx",
                backend="Metal",
                checkpoint_raw=r["Model"],
                weights_format=f"{r['Model'].rsplit('-', 1)[-1]}",
                ttft_mean_ms=leading(r["TTFT*"] or r["TTFT Mean (ms)"]),
                tpot_mean_ms=r["TPOT Mean (ms)"],
                peak_memory_bytes=scaled(leading(r["Memory"]), "1e9"),
                statistic="mean",
            )
