"""vLLM's serving benchmark on rented H100 and RTX 4090, ShareGPT prompts at a set rate; a file holds one
result or several, one after the other. At low rates the number is the load and not the card."""

from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row
from llm_measured.published.sources import about
from llm_measured.published.sources._vllm_bench import itl_of_tokens, result

ABOUT = about("iog-vllm")


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
