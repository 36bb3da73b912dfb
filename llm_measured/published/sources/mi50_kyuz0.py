"""`vllm bench throughput` on one MI50: 500 prompts in bulk. The rate counts prompts and answers."""

import re
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Place, Raw, Row
from llm_measured.published.sources import FACTS, Source
from llm_measured.published.sources._vllm_bench import bulk

ABOUT = Source(
    repository="https://github.com/kyuz0/mi50-gfx906-toolboxes",
    commit="2ee996a6b8371a60cf25014618cf7d06a502a07c",
    licence=FACTS,
    kind="community",
    measured_by="kyuz0",
    citation="D. Capitella (kyuz0), MI50 toolboxes, vLLM benchmarks, 2026",
    published_on="2026-05-03",
    retrieved="2026-11-26",
    files=("vllm__benchmark_results__*_throughput.json",),
)


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        r = raw.json(file)
        named = re.fullmatch(r".*__(\w+?)__([^_]+)_(.+)_tp(\d+)_throughput\.json", file)
        at = Place(raw, file, "/", r)
        if not named:
            yield at.left_out("a file whose name does not say the model and the number of cards")
            continue
        backend, maker, model, cards = named.groups()
        yield at.row(
            **bulk(r),
            accelerator_raw="AMD Instinct MI50",
            accelerators=cards,
            tp=cards,
            engine="vLLM",
            backend="ROCm",
            flags=f"attention={backend}",
            checkpoint_raw=f"{maker}/{model}",
            weights_format=next((form for form in ("AWQ-INT4", "AWQ-4bit") if form in model), None),
        )
