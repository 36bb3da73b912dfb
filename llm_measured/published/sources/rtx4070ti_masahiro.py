"""trtllm-bench, one request after the other with 40 new tokens: a 0.5B model on an RTX 4070 Ti and on an RTX
PRO 6000, whose name stands in each file. So small a model waits for its kernels and not for its weights."""

from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Place, Raw, Row
from llm_measured.published.sources import FACTS, Source
from llm_measured.published.sources._tables import single

ABOUT = Source(
    repository="https://github.com/masahiro-kubota/trtllm-latency",
    commit="df56f9c9f7146711537030a64142521b95824184",
    licence=FACTS,
    kind="community",
    measured_by="M. Kubota",
    citation="M. Kubota, trtllm-latency, 2026",
    published_on="2026-04-04",
    retrieved="2026-11-26",
    files=("measurements__*.json",),
)
STATISTICS = {"mean": "average", "p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        r = raw.json(file)
        engine, load, speed = r["engine"], r["request_info"], r["performance"]
        times = {
            "e2e": speed["request_latency_percentiles_ms"],
            "ttft": r.at("streaming_metrics", "ttft_percentiles"),
            "tpot": r.at("streaming_metrics", "tpot_percentiles"),
        }
        yield Place(raw, file, "/", r).row(
            **single(speed["system_output_throughput_tok_s"]),
            accelerator_raw=r.at("machine", "name"),
            accelerators=r.at("world_info", "world_size"),
            engine="TensorRT-LLM",
            engine_version=engine["version"],
            backend=engine["backend"],
            checkpoint_raw=engine["model"],
            weights_format=engine["quantization"] or engine["dtype"],
            kv_format=engine["kv_cache_dtype"],
            activation_format=engine["dtype"],
            input_tokens=load["avg_input_length"],
            output_tokens=load["avg_output_length"],
            lengths="exact",
            requests=load["num_requests"],
            **{
                f"{time}_{ours}_ms": found[theirs]
                for time, found in times.items()
                for ours, theirs in STATISTICS.items()
            },
        )
