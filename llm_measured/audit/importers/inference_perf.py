"""inference-perf's `summary_lifecycle_metrics.json` and `stage_<n>_lifecycle_metrics.json`, times in seconds.

As published by the project itself: kubernetes-sigs/inference-perf `demos/kubecon-na-2025/*/results/`. Its
schedule_delay is how late the
client sent a request.
"""

from llm_measured.audit import frame
from llm_measured.audit.importers.content import Content

TOOL = "inference-perf"
LOOKED_FOR = "load_summary with successes"
TIMES = {
    "time_to_first_token": "ttft",
    "time_per_output_token": "tpot",
    "inter_token_latency": "itl",
    "request_latency": "e2e",
}
QUANTILES = {
    "mean": "_mean",
    "median": "_p50",
    "p90": "_p90",
    "p95": "_p95",
    "p99": "_p99",
    "min": "_min",
    "max": "_max",
}


def matches(content: Content) -> bool:
    return isinstance(content.json, dict) and {"load_summary", "successes"} <= set(content.json)


def load(content: Content, file: str) -> frame.Audited:
    found = content.json
    good, load = found["successes"] or {}, found["load_summary"] or {}
    latency, rate = good.get("latency") or {}, good.get("throughput") or {}
    late = load.get("schedule_delay") or {}
    level = {
        "requests": good.get("count"),
        "failed": (found.get("failures") or {}).get("count"),
        "request_rate": load.get("requested_rate") or None,
        "late_mean_s": late.get("mean"),
        "late_p99_s": late.get("p99"),
        "concurrency": load.get("concurrency"),
        "duration_s": found.get("benchmark_time_seconds"),
        "requests_per_s": rate.get("requests_per_sec"),
        "output_tokens_per_s": rate.get("output_tokens_per_sec"),
        "prompt_tokens_per_s": rate.get("input_tokens_per_sec"),
        "total_tokens_per_s": rate.get("total_tokens_per_sec"),
        "prompt_tokens": _mean(good, "prompt_len", "prompt_tokens"),
        "output_tokens": _mean(good, "output_len", "output_tokens"),
    }
    for theirs, ours in TIMES.items():
        spread = latency.get(theirs) or {}
        level |= {f"{ours}{q}_s": spread.get(name) for name, q in QUANTILES.items()}
    return frame.make(file, TOOL, [level])


def _mean(good, *names):
    """The mean of the first of these spreads that the file has."""
    return next(
        (good[name]["mean"] for name in names if isinstance(good.get(name), dict) and "mean" in good[name]),
        None,
    )
