"""mlx-lm's own table on an Apple M4 Max with 64 GB, one sequence: 2048 prompt and 128 generated tokens."""

from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, leading, scaled
from llm_measured.published.sources import about
from llm_measured.published.sources._tables import single

ABOUT = about("mlx-lm")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        for at, r, _ in raw.tables(file):
            if "Generation (128) tok/sec" not in r:
                continue
            if "skull" in r["Generation (128) tok/sec"]:
                yield at.left_out("out of memory")
                continue
            yield at.row(
                **single(leading(r["Generation (128) tok/sec"])),
                accelerator_raw="Apple M4 Max",
                accelerator_memory_gb=64,
                accelerators=1,
                engine="mlx-lm",
                backend="Metal",
                checkpoint_raw=r["Repo"],
                weights_format=r["Precision"],
                input_tokens=2048,
                output_tokens=128,
                lengths="exact",
                prompt_tokens_per_s=leading(r["Prompt (2048) tok/sec"]),
                peak_memory_bytes=scaled(leading(r["Memory GB"]), "1e9"),
                quality=leading(r["MMLU Pro"]),
                quality_metric="MMLU Pro",
            )
