"""llama.cpp on an RTX 3080, 4090 and 5090, 40 requests of one prompt each, and MLX on one to four M3 Ultra.

No file says how long a prompt of a tier is. A first token takes one or two steps whatever the tier, so the
longer ones came from a cache. Rows of `test-model` and `demo-model` are no measurements."""

from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, day, joined, number, scaled
from llm_measured.published.sources import about
from llm_measured.published.sources._tables import single

ABOUT = about("guruswami")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files("results__nvidia__*-summary.csv"):
        for at, r in raw.csv(file):
            steps = (number(r["avg_ttft_ms"]) or 0) * (number(r["avg_tps"]) or 0) / 1000
            cached = steps < 3 and r["prompt_tier"] in ("medium", "large", "xlarge")
            if r["model_name"] in ("test-model", "demo-model"):
                yield at.left_out("no measurement (test-model, demo-model)")
                continue
            yield at.row(
                **single(r["avg_tps"]),
                original_id=r["run_id"],
                measured_on=day(r["timestamp"]),
                accelerator_raw=r["gpu_name"],
                accelerator_memory_gb=scaled(r["gpu_vram_mb"], 1 / 1024),
                accelerators=1,
                host_cpu=r["cpu_info"],
                engine="llama.cpp",
                backend="CUDA",
                flags=joined(prompt=r["prompt_tier"], context=r["context_length"]),
                checkpoint_raw=r["model_name"],
                weights_bytes=scaled(r["model_size_gb"], 2**30),
                weights_format=r["quantization"],
                prefix_cached="yes" if cached else None,
                ttft_mean_ms=r["avg_ttft_ms"],
                **{f"ttft_{p}_ms": r[f"ttft_{p}_ms"] for p in ("p50", "p95", "p99")},
                statistic="mean",
                spread=r["std_tps"],
                spread_kind="sd",
                power_w=r["avg_power_w"],
                power_scope="accelerator",
                requests=r["num_runs"],
                quality=r["perplexity"],
                quality_metric="perplexity" if r["perplexity"] else None,
            )
    for file in raw.files("results__*__benchmark-results.csv"):
        for at, r in raw.csv(file):
            if not number(r["generation_tps"]):
                yield at.left_out(f"no speed ({r['feasibility'] or 'no reason stated'})")
                continue
            split = {r["topology"][:2].lower(): r["nodes"]} if r["topology"] != "SINGLE" else {}
            yield at.row(
                **single(r["generation_tps"]),
                **split,
                accelerator_raw="Apple M3 Ultra",
                accelerator_memory_gb=512,
                accelerators=r["nodes"],
                nodes=r["nodes"],
                engine="MLX",
                backend="Metal",
                checkpoint_raw=r["model"],
                weights_format=r["quant"],
                input_tokens=r["context_tokens"],
                lengths="exact",
                prompt_tokens_per_s=r["prompt_tps"],
                ttft_mean_ms=scaled(r["ttft_seconds"], 1000),
                peak_memory_bytes=scaled(r["peak_memory_gb"], "1e9"),
            )
