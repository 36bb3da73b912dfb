"""GuideLLM's JSON report, as version 0.8.1 wrote it here against this study's reference server; older ones
have the same metrics and name the load elsewhere (0.2 and 0.3: args and worker, 0.4: scheduler).

What it calls inter_token_latency_ms is (e2e - ttft) / (tokens - 1), this study's TPOT; its
time_per_output_token_ms divides by all tokens, since 0.4 with the first token's time in it, by its own
definition, and is not read.
"""

from llm_measured.audit import frame
from llm_measured.audit.importers.content import Content

TOOL = "GuideLLM"
LOOKED_FOR = "benchmarks, each with metrics and requests"
TIMES = {
    "time_to_first_token_ms": ("ttft", 1e3),
    "inter_token_latency_ms": ("tpot", 1e3),
    "request_latency": ("e2e", 1),
}
NOTE = (
    "GuideLLM's time_per_output_token_ms divides by all tokens, since version 0.4 with the TTFT in it by "
    "definition; its inter_token_latency_ms is what others call TPOT, and is what was audited."
)


def matches(content: Content) -> bool:
    found = content.json
    benchmarks = found.get("benchmarks") if isinstance(found, dict) else None
    return (
        isinstance(benchmarks, list)
        and bool(benchmarks)
        and isinstance(benchmarks[0], dict)
        and "metrics" in benchmarks[0]
    )


def load(content: Content, file: str) -> frame.Audited:
    report = content.json
    levels, requests = [], []
    for k, benchmark in enumerate(report["benchmarks"]):
        successful = (benchmark.get("requests") or {}).get("successful") or []
        levels.append(_level(benchmark, report, successful))
        requests += [_request(one) | {"level": k} for one in successful]
    return frame.make(file, TOOL, levels, requests, [NOTE])


def _level(benchmark, report, successful):
    metrics = benchmark["metrics"]
    config = benchmark.get("config") or benchmark.get("args") or benchmark.get("scheduler") or {}
    strategy = config.get("strategy") or {}
    made = metrics.get("request_totals") or benchmark.get("request_totals") or {}
    level = {}
    for theirs, (ours, factor) in TIMES.items():
        found = _of(metrics, theirs)
        percentiles = found.get("percentiles") or {}
        named = {
            "mean": found.get("mean"),
            "p50": found.get("median"),
            "min": found.get("min"),
            "max": found.get("max"),
        }
        named |= {q: percentiles.get(q) for q in ("p90", "p95", "p99")}
        level |= {
            f"{ours}_{q}_s": value / factor for q, value in named.items() if isinstance(value, (int, float))
        }
    delays = _of(metrics, "request_dispatch_delay")
    limit = config.get("profile", {}).get("kind") != "throughput" and (
        strategy.get("streams") or strategy.get("max_concurrency")
    )
    closed = strategy.get("type_") in ("concurrent", "synchronous", None)
    state = benchmark.get("scheduler_metrics") or {}
    return level | {
        "name": strategy.get("type_"),
        "model": _model(report, config, benchmark),
        "concurrency": limit if closed else None,
        "request_rate": strategy.get("rate") if not closed else None,
        "requests": made.get("successful", len(successful)),
        "failed": made.get("errored"),
        "duration_s": benchmark.get("duration"),
        "requests_per_s": _of(metrics, "requests_per_second").get("mean"),
        "output_tokens_per_s": _of(metrics, "output_tokens_per_second").get("mean"),
        "total_tokens_per_s": _of(metrics, "tokens_per_second").get("mean"),
        "prompt_tokens": _of(metrics, "prompt_token_count").get("mean"),
        "output_tokens": _of(metrics, "output_token_count").get("mean"),
        "late_mean_s": delays.get("mean", state.get("request_targeted_start_delay_avg"))
        if not closed
        else None,
        "late_p99_s": (delays.get("percentiles") or {}).get("p99") if not closed else None,
        "warmup_requests": 1 if benchmark.get("warmup_duration") else None,
    }


def _of(metrics, name):
    """The spread of one metric over successful requests; an empty dict where it is absent."""
    found = metrics.get(name)
    return (found.get("successful") or {}) if isinstance(found, dict) else {}


def _model(report, config, benchmark):
    spec, worker = (report.get("config") or {}).get("spec") or {}, benchmark.get("worker") or {}
    backends = spec.get("backend"), config.get("backend"), (benchmark.get("benchmarker") or {}).get("backend")
    named = [one.get("model") for one in backends if isinstance(one, dict)]
    named += [worker.get("backend_model"), (report.get("args") or {}).get("model")]
    return next((name for name in named if name), None)


def _request(one):
    seconds = lambda name: one[name] / 1e3 if isinstance(one.get(name), (int, float)) else None  # noqa: E731
    return {
        "sent_s": one.get("request_start_time", one.get("start_time")),
        "ttft_s": seconds("time_to_first_token_ms"),
        "tpot_s": seconds("inter_token_latency_ms"),
        "e2e_s": one.get("request_latency"),
        "prompt_tokens": one.get("prompt_tokens"),
        "output_tokens": one.get("output_tokens"),
        "cached_tokens": one.get("cached_tokens"),
        "question": (one.get("prompt") or "")[: frame.ANSWER_CHARS],
        "question_chars": len(one.get("prompt") or "") or None,
        "answer": one.get("output"),
        "answer_chars": len(one.get("output") or "") or None,
    }
