"""LMDeploy's tables on A100-80GB (tp of them): output tokens/s of the batch, static and of a server."""

from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, scaled
from llm_measured.published.sources import about

ABOUT = about("lmdeploy")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        for at, r, headings in raw.tables(file):
            if "throughput(out tok/s)" not in r:
                continue
            static = "prompt_tokens" in r
            title = headings[-1] if headings else ""
            yield at.row(
                accelerator_raw="A100-80GB",
                accelerators=r["tp"],
                tp=r["tp"],
                engine="LMDeploy TurboMind",
                checkpoint_raw=title.removeprefix("FP16 ").strip() if static else r["model"],
                weights_format="FP16",
                workload="static_batch" if static else "closed_loop",
                batch=r["batch"] if static else None,
                concurrency=r["batch"],
                input_tokens=r["prompt_tokens"],
                output_tokens=r["output_tokens"],
                lengths="exact" if static else "dataset",
                throughput_raw=r["throughput(out tok/s)"],
                throughput_counts="output",
                throughput_scope="all",
                ttft_mean_ms=scaled(r["FTL(ave)(s)"], 1000),
                ttft_min_ms=scaled(r["FTL(min)(s)"], 1000),
                ttft_max_ms=scaled(r["FTL(max)(s)"], 1000),
                itl_p50_ms=scaled(r["50%(s)"], 1000),
                itl_p95_ms=scaled(r["95%(s)"], 1000),
                itl_p99_ms=scaled(r["99%(s)"], 1000),
                peak_memory_bytes=scaled(r["mem(GB)"], "1e9"),
                requests=r["num_promts"],
            )
