"""trtllm-bench's `--report_json`, times in milliseconds.

As NVIDIA/TensorRT-LLM `tensorrt_llm/bench/dataclasses/reporting.py` writes it. Its tpot excludes the first
token; without `--streaming` there are no streaming_metrics.
"""

from llm_measured.audit import frame
from llm_measured.audit.importers.content import Content, seconds_from_ms

TOOL = "trtllm-bench"
LOOKED_FOR = "performance with system_output_throughput_tok_s"
QUANTILES = {
    "average": "_mean",
    "p50": "_p50",
    "p90": "_p90",
    "p95": "_p95",
    "p99": "_p99",
    "minimum": "_min",
    "maximum": "_max",
}


def matches(content: Content) -> bool:
    found = content.json
    performance = found.get("performance") if isinstance(found, dict) else None
    return isinstance(performance, dict) and "system_output_throughput_tok_s" in performance


def load(content: Content, file: str) -> frame.Audited:
    found = content.json
    rate, stream = found["performance"], found.get("streaming_metrics") or {}
    level = _conditions(found) | {
        "duration_s": seconds_from_ms(rate.get("total_latency_ms")),
        "requests_per_s": rate.get("request_throughput_req_s"),
        "output_tokens_per_s": rate.get("system_output_throughput_tok_s"),
        "total_tokens_per_s": rate.get("system_total_throughput_tok_s"),
        "request_tokens_per_s_mean": rate.get("output_throughput_per_user_tok_s"),
        "e2e_mean_s": seconds_from_ms(rate.get("avg_request_latency_ms")),
        "ttft_mean_s": seconds_from_ms(stream.get("avg_ttft_ms")),
        "tpot_mean_s": seconds_from_ms(stream.get("avg_tpot_ms")),
    }
    for spread, ours in (
        (rate.get("request_latency_percentiles_ms"), "e2e"),
        (stream.get("ttft_percentiles"), "ttft"),
        (stream.get("tpot_percentiles"), "tpot"),
    ):
        stated = {f"{ours}{q}_s": seconds_from_ms((spread or {}).get(name)) for name, q in QUANTILES.items()}
        level |= {column: value for column, value in stated.items() if value is not None}
    return frame.make(file, TOOL, [level])


def _conditions(found):
    parts = "engine", "world_info", "request_info", "machine"
    engine, world, made, machine = (found.get(name) or {} for name in parts)
    drafted = (found.get("decoding_stats") or {}).get("mode")
    return {
        "model": engine.get("model"),
        "gpu": machine.get("name"),
        "engine": f"TensorRT-LLM {engine.get('backend') or ''}".strip(),
        "engine_version": engine.get("version"),
        "weights": " ".join(str(engine[name]) for name in ("quantization", "dtype") if engine.get(name)),
        "option": f"speculative decoding {drafted}" if drafted else None,
        "tensor_parallel": world.get("world_size") or world.get("tp_size"),
        "requests": made.get("num_requests"),
        "prompt_tokens": made.get("avg_input_length"),
        "output_tokens": made.get("avg_output_length"),
    }
