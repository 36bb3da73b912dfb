"""What a result of `vllm bench serve` means, whoever ran it."""

import re
from typing import Any

from llm_measured.published.reading import Record, day, number, scaled

TIMES = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2el": "e2e"}
STATISTICS = {"mean": "mean", "median": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}

PRINTED = {
    "completed": "Successful requests",
    "failed": "Failed requests",
    "max_concurrency": "Maximum request concurrency",
    "duration": r"Benchmark duration \(s\)",
    "total_input_tokens": "Total input tokens",
    "total_output_tokens": "Total generated tokens",
    "output_throughput": r"Output token throughput \(tok/s\)",
    **{
        f"{short}_{time.lower()}_ms": rf"{statistic} {time} \(ms\)"
        for time in ("TTFT", "TPOT", "ITL")
        for short, statistic in (("mean", "Mean"), ("median", "Median"), ("p95", "P95"), ("p99", "P99"))
    },
    **{
        f"{short}_e2el_ms": rf"{statistic} Latency\(s\)"
        for short, statistic in (("mean", "Mean"), ("median", "Median"), ("p95", "P95"), ("p99", "P99"))
    },
}


def printout(text: str) -> Record:
    """What the block that it prints at its end says, under the names of its result file."""
    found = {name: re.search(rf"^ *{label}: +(\S+) *$", text, re.M) for name, label in PRINTED.items()}
    record = Record({name: value[1] for name, value in found.items() if value and value[1] != "N/A"})
    # A printout of a newer tool has the whole answer's times in seconds.
    record |= {name: scaled(value, 1000) for name, value in record.items() if "e2el" in name}
    return record


def bulk(record: Record) -> dict[str, Any]:
    """Columns of one result of `vllm bench throughput`: prompts and answers together."""
    return {
        "workload": "offline",
        "throughput_raw": record["tokens_per_second"],
        "throughput_counts": "input+output",
        "throughput_scope": "all",
        "requests": record["num_requests"],
        "duration_s": record["elapsed_time"],
    }


def times(record: Record, factor: int = 1, suffix: str = "_ms") -> dict[str, Any]:
    """Columns of times, in ms: `factor` 1000 and `suffix` "" where the file has seconds."""
    found = {
        f"{ours}_{statistic}_ms": scaled(record[f"{theirs_statistic}_{theirs}{suffix}"], factor)
        for theirs, ours in TIMES.items()
        for theirs_statistic, statistic in STATISTICS.items()
    }
    return {name: value for name, value in found.items() if value is not None}


def itl_of_tokens(columns: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(columns, what was printed): gaps are left empty where their median is not within half and twice the
    median time per output token, as they are then gaps between events that carry several tokens."""
    itl = columns.get("itl_p50_ms", columns.get("itl_mean_ms"))
    tpot = columns.get("tpot_p50_ms") if "itl_p50_ms" in columns else columns.get("tpot_mean_ms")
    if itl is None or not tpot:
        return columns, {}
    if 0.5 <= itl / tpot <= 2:
        return columns | {"itl_counts": "token"}, {}
    gaps = {name: value for name, value in columns.items() if name.startswith("itl_")}
    return {name: value for name, value in columns.items() if name not in gaps}, gaps


def result(record: Record) -> dict[str, Any]:
    """Columns of one result file: all output tokens per second, times per request, lengths as means."""
    requests = number(record["completed"])
    rate = record["request_rate"]
    rate = None if rate in ("inf", "Infinity", None) or (number(rate) or 0) >= 1e6 else number(rate)
    mean = {
        name: number(record[f"total_{name}"]) / requests
        if requests and number(record[f"total_{name}"]) is not None
        else None
        for name in ("input_tokens", "output_tokens")
    }
    return {
        "measured_on": day(record["date"]),
        "checkpoint_raw": record["model_id"],
        "workload": "open_loop" if rate else "closed_loop",
        "concurrency": record["max_concurrency"],
        "request_rate": rate,
        **mean,
        "lengths": "mean",
        "throughput_raw": record["output_throughput"],
        "throughput_counts": "output",
        "throughput_scope": "all",
        "requests": requests,
        "failed": record["failed"],
        "duration_s": record["duration"],
        **times(record),
    }
