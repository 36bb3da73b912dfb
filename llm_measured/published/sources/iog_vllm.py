"""vLLM's serving benchmark on rented H100 and RTX 4090, ShareGPT prompts at a set rate; a file holds one
result or several, one after the other. At low rates the number is the load and not the card."""

from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row
from llm_measured.published.sources import Source
from llm_measured.published.sources._vllm_bench import itl_of_tokens, result

ABOUT = Source(
    repository="https://github.com/IOG-Foundation/llm-inference-benchmarks",
    commit="4990a807c6f1971edda635c18d98550059782eb8",
    licence="Apache-2.0",
    kind="independent",
    measured_by="IOG Foundation",
    citation="IOG Foundation, llm-inference-benchmarks, 2025",
    published_on="2025-11-14",
    retrieved="2026-11-26",
    files=("results__vllm_*.json",),
)


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        for at, r in raw.jsonl(file):
            columns, printed = itl_of_tokens(result(r))
            yield at.row(
                printed,
                **columns,
                accelerator_raw=r["gpu_name"],
                accelerators=r["gpu_count"],
                tp=r["gpu_count"],
                engine=r["backend"],
            )
