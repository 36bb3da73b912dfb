"""Rockchip's table of its NPUs: one sequence, 128 prompt and 64 generated tokens."""

from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, leading, scaled
from llm_measured.published.sources import FACTS, Source
from llm_measured.published.sources._tables import single

ABOUT = Source(
    repository="https://github.com/airockchip/rknn-llm",
    commit="878f9361fd3afa7e167b7079918918f78d2c1c2a",
    licence=FACTS,
    kind="vendor",
    measured_by="Rockchip",
    citation="Rockchip, RKLLM model performance benchmark, 2026",
    published_on="2026-06-17",
    files=("benchmark*.md",),
)


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        name = size = None
        for at, r, headings in raw.tables(file):
            if "Tokens/s" not in r or not headings:
                continue
            if r["Model"]:
                name, size = r["Model"], r["Model Size"]
            yield at.row(
                **single(leading(r["Tokens/s"])),
                accelerator_raw=next((h for h in reversed(headings) if h.startswith("R")), None),
                accelerators=1,
                engine="RKLLM",
                backend="NPU",
                checkpoint_raw=f"{name} {r['Model Size'] or size}",
                weights_format=r["Dtype"],
                input_tokens=r["Seqlen"],
                output_tokens=r["New_tokens"],
                lengths="exact",
                ttft_mean_ms=leading(r["TTFT(ms)"]),
                peak_memory_bytes=scaled(leading(r["memory(MB)"]), "1e6"),
            )
