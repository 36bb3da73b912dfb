"""vLLM on rented RTX 3090, 4090, 5090, RTX 5000 Ada and A100, and on one and two R9700: 1,000 prompts in
bulk, whose rate counts prompts and answers, and a serving benchmark at one and four requests per second."""

import re
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Place, Raw, Row
from llm_measured.published.sources import about
from llm_measured.published.sources._vllm_bench import bulk, itl_of_tokens, printout, result

ABOUT = about("vllm-cards-kyuz0")
CARDS = {
    "nvidia-3090": "RTX 3090",
    "nvidia-4090": "RTX 4090",
    "nvidia-5090": "RTX 5090",
    "nvidia-ada5000": "RTX 5000 Ada",
    "nvidia-a100": "A100",
}
FORMAT = re.compile(r"FP8|AWQ-INT4|AWQ-4bit|GPTQ-4bit|AWQ")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        r, at = raw.json(file), Place(raw, file, "/", file)
        named = re.fullmatch(
            r"benchmarks__(?:vllm_)?benchmark_results_(.+?)__(?:(\w+)__)?([^_]+)_(.+)_tp(\d)"
            r"_(?:qps([\d.]+)_)?\w+\.json",
            file,
        )
        if not named or r["error"] or r["success"] is False:
            yield at.left_out("the run failed")
            continue
        folder, backend, maker, model, cards, rate = named.groups()
        printed = {}
        if rate:
            record = printout(str(r["raw_output"]))
            record["request_rate"] = rate
            columns, printed = itl_of_tokens(result(record))
        else:
            columns = bulk(r)
        form = FORMAT.search(model)
        yield Place(raw, file, "/", r).row(
            printed,
            **columns
            | {
                "accelerator_raw": CARDS.get(folder, "AMD Radeon AI PRO R9700"),
                "accelerators": cards,
                "tp": cards,
                "engine": "vLLM",
                "backend": "CUDA" if folder in CARDS else "ROCm",
                "flags": "; ".join(filter(None, (backend, folder.partition("r9700-")[2]))) or None,
                "checkpoint_raw": f"{maker}/{model}",
                "weights_format": form[0] if form else None,
            },
        )
