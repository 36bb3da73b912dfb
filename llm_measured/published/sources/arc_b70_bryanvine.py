"""vLLM on one Arc Pro B70, two models, 1 to 20 users at once for 90 or 120 s each, the KV cache in 16 bits or
in the repository's own format. Rates are of all users; those that the page only estimates are left out."""

from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, leading
from llm_measured.published.sources import about

ABOUT = about("arc-b70-bryanvine")
MODELS = {
    "docs__BENCHMARK_RESULTS.md": ("gemma-4-31B-it-4bit-W4A16-GPTQ", 120, "suffix", "suffix"),
    "docs__BENCHMARK_QWEN3_30B.md": ("Qwen3-30B-A3B-Instruct-2507-gptq-4bit", 90, "EAGLE3", "none"),
}


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        model, seconds, drafts, drafts_small = MODELS[file]
        for at, record, _ in raw.tables(file):
            if "C" not in record:
                continue
            for name, rate in list(record.items())[1:3]:
                small = "TQ" in name
                if not rate or "est" in rate:
                    yield at.cell(name).left_out("estimated, not measured")
                    continue
                yield at.cell(name).row(
                    accelerator_raw="Intel Arc Pro B70",
                    accelerator_memory_gb=32,
                    accelerators=1,
                    engine="vLLM",
                    engine_version="0.19.0",
                    backend="XPU",
                    checkpoint_raw=model,
                    weights_format="INT4",
                    kv_format="turboquant_k3v4_nc" if small else "fp16",
                    speculative=drafts_small if small else drafts,
                    workload="closed_loop",
                    concurrency=record["C"],
                    duration_s=seconds,
                    throughput_raw=leading(rate),
                    throughput_counts="output",
                    throughput_scope="all",
                    measured_on="2026-04-13" if "gemma" in model else None,
                )
