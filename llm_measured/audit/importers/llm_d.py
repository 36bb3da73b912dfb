"""llm-d's Benchmark Report v0.2, as YAML or JSON; every figure names its unit.

As llm-d/llm-d-benchmark `benchmark_report/schema_v0_2.py` declares it: one report is one stage of one load.
Its accelerators are those of all engines that serve together.
"""

import re

from llm_measured.audit import frame
from llm_measured.audit.importers.content import Content
from llm_measured.core.definitions import Fields

TOOL = "llm-d Benchmark Report"
LOOKED_FOR = "results with request_performance"
TIMES = {
    "time_to_first_token": "ttft",
    "time_per_output_token": "tpot",
    "inter_token_latency": "itl",
    "request_latency": "e2e",
}
RATES = {
    "input_token_rate": "prompt_tokens_per_s",
    "output_token_rate": "output_tokens_per_s",
    "total_token_rate": "total_tokens_per_s",
    "requests_rate": "requests_per_s",
}
STATISTICS = "mean", "p50", "p90", "p95", "p99", "min", "max"
SECONDS = {"s": 1.0, "s/token": 1.0, "ms": 1e-3, "ms/token": 1e-3}
DURATION = re.compile(r"P(?:(\d+)D)?T?(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?")  # ISO 8601


def matches(content: Content) -> bool:
    found = content.json
    results = found.get("results") if isinstance(found, dict) else None
    return isinstance(results, dict) and "request_performance" in results and "scenario" in found


def load(content: Content, file: str) -> frame.Audited:
    found = content.json
    aggregate = found["results"]["request_performance"]["aggregate"]
    sent, rates = aggregate.get("requests") or {}, aggregate.get("throughput") or {}
    lost = (sent.get("failures") or 0) + (sent.get("incomplete") or 0)
    level = _conditions(found["scenario"]) | {
        "duration_s": _duration(((found.get("run") or {}).get("time") or {}).get("duration")),
        "asked": sent.get("total"),
        "failed": sent.get("failures"),
        "requests": sent["total"] - lost if sent else None,
        "prompt_tokens": (sent.get("input_length") or {}).get("mean"),
        "output_tokens": (sent.get("output_length") or {}).get("mean"),
    }
    level |= {ours: (rates.get(theirs) or {}).get("mean") for theirs, ours in RATES.items()}
    for theirs, ours in TIMES.items():
        spread = (aggregate.get("latency") or {}).get(theirs) or {}
        if spread and "units" not in spread:  # llm-d/llm-d-prism issue 144: older reports name none
            content.notes.append(f"{theirs} names no unit and was not read.")
        elif spread:
            unit = SECONDS[spread["units"]]
            level |= {f"{ours}_{name}_s": spread[name] * unit for name in STATISTICS if name in spread}
    return frame.make(file, TOOL, [level])


def _conditions(scenario: Fields) -> Fields:
    parts = [one["standardized"] for one in scenario.get("stack") or []]
    engines = [one for one in parts if one.get("accelerator")] or [{}]
    load = (scenario.get("load") or {}).get("standardized") or {}
    counts = [one["accelerator"].get("count") for one in engines if one]
    at_once, rate = load.get("concurrency"), load.get("rate_qps")
    return {
        "model": (engines[0].get("model") or {}).get("name"),
        "gpu": ", ".join(dict.fromkeys(one["accelerator"]["model"] for one in engines if one)),
        "tensor_parallel": sum(counts) if counts and None not in counts else None,
        "engine": engines[0].get("tool"),
        "engine_version": engines[0].get("tool_version"),
        "option": ", ".join(dict.fromkeys(str(one["role"]) for one in engines if one.get("role"))),
        "name": f"stage {load['stage']}" if load.get("stage") is not None else None,
        "request_rate": rate,
        "concurrency": at_once,  # infinite: no limit, which the frame leaves empty
        "all_at_once": 1 if at_once == float("inf") and rate is None else None,
    }


def _duration(stated: object) -> float | None:
    """Seconds of `PT49.9S`, or of a number of seconds."""
    match = DURATION.fullmatch(str(stated))
    if not match:
        return float(stated) if isinstance(stated, int | float) else None
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds or None
