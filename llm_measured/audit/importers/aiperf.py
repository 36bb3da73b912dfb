"""AIPerf and its forerunner GenAI-Perf: the summary as JSON and as CSV, and AIPerf's records as JSON lines.

Read from files that AIPerf 0.13.0 wrote here against this study's reference server. GenAI-Perf's CSV as
documented in
NVIDIA/cloudai `doc/workloads/ai_dynamo.rst` and tested in triton-inference-server/perf_analyzer
`genai-perf/tests/test_exporters`.
What both call inter token latency is (e2e - ttft) / (tokens - 1), this study's TPOT; AIPerf's inter chunk
latency is the gap of events.
"""

import csv
import io
import re

from llm_measured.audit import frame
from llm_measured.audit.importers.content import Content, seconds_from_ms

TOOL = "AIPerf / GenAI-Perf"
LOOKED_FOR = (
    "request_latency and input_sequence_length with unit and avg, or a CSV that begins with "
    "Metric,avg,min,max"
)
UNITS = {"ms": 1e-3, "s": 1, "sec": 1, "us": 1e-6, "ns": 1e-9}
TIMES = {
    "time_to_first_token": "ttft",
    "inter_token_latency": "tpot",
    "inter_chunk_latency": "itl",
    "request_latency": "e2e",
}
COUNTS = {
    "request_count": "requests",
    "output_sequence_length": "output_tokens",
    "input_sequence_length": "prompt_tokens",
    "request_throughput": "requests_per_s",
    "output_token_throughput": "output_tokens_per_s",
    "total_token_throughput": "total_tokens_per_s",
    "benchmark_duration": "duration_s",
    "total_isl": "total_prompt_tokens",
    "total_osl": "total_output_tokens",
    "total_input_sequence_length": "total_prompt_tokens",
    "total_output_sequence_length": "total_output_tokens",
    "num_output_token": "output_tokens",
    "num_input_token": "prompt_tokens",
    "error_request_count": "failed",
    "total_usage_prompt_cache_read_tokens": "cached_tokens",
}
QUANTILES = {
    "avg": "_mean",
    "p50": "_p50",
    "p90": "_p90",
    "p95": "_p95",
    "p99": "_p99",
    "min": "_min",
    "max": "_max",
}


def matches(content: Content) -> bool:
    found = content.json
    if isinstance(found, dict):
        return isinstance(found.get("request_latency"), dict) and "avg" in found["request_latency"]
    if content.records is not None:
        return {"metadata", "metrics"} <= set(content.records[0])
    return not content.is_json and (content.text.startswith("Metric,avg,") or _is_box(content))


def _is_box(content):
    """Whether the content is the table that both print."""
    first, *others = content.header or [""]
    return first.lower() in ("statistic", "metric") and {"avg", "min", "max"} <= set(others)


def _box(content):
    """The lines of the printed table as those of the CSV, which name each metric the same way."""
    lines = io.StringIO()
    csv.writer(lines).writerows([["Metric", *content.header[1:]], *content.rows()])
    return _csv(lines.getvalue())


def load(content: Content, file: str) -> frame.Audited:
    if content.records is not None:
        rows, failed = [], 0
        for one in content.records:
            metrics, about = one.get("metrics") or {}, one.get("metadata") or {}
            if one.get("error") or about.get("benchmark_phase", "profiling") != "profiling":
                failed += bool(one.get("error"))
                continue
            rows.append(_record(metrics, about))
        return frame.make(file, TOOL, [{"requests": len(rows), "failed": failed}], rows)
    found = content.json
    if found is None:
        found = _csv(content.text) if content.text.startswith("Metric,avg,") else _box(content)
    return frame.make(file, TOOL, [_level(found) | _conditions(found.get("input_config") or {})])


def _csv(text):
    """The blocks of the CSV in the form of the JSON: metric -> unit, avg, min, ...; the name in small
    letters with underscores."""
    found, header = {}, []
    for row in csv.reader(text.splitlines()):
        if row and row[0] == "Metric":
            header = ["avg" if name == "Value" else name for name in row]
        elif row and header and "GPU" not in header:
            name, unit = (
                re.match(r"\s*([^(]*?)\s*(?:\(([^()]*)\)\s*)?$", row[0]).groups()
                if row[0].count("(") < 2
                else (row[0], "")
            )
            values = {
                q: _number(value)
                for q, value in zip(header[1:], row[1:], strict=False)
                if _number(value) is not None
            }
            found[re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")] = values | {"unit": unit}
    return found


def _number(text):
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def _level(found):
    level = {}
    for theirs, ours in TIMES.items():
        metric = found.get(theirs) or {}
        factor = UNITS.get(str(metric.get("unit", "ms")).split("/")[0], 1e-3)
        level |= {
            f"{ours}{q}_s": metric[name] * factor
            for name, q in QUANTILES.items()
            if isinstance(metric.get(name), (int, float))
        }
    level |= {
        ours: found[theirs]["avg"]
        for theirs, ours in COUNTS.items()
        if isinstance(found.get(theirs), dict) and "avg" in found[theirs]
    }
    rate = found.get("e2e_output_token_throughput") or {}
    level |= {f"request_tokens_per_s{q}": rate[name] for name, q in QUANTILES.items() if name in rate}
    late = found.get("credit_to_start_latency") or {}
    return level | {
        "late_mean_s": seconds_from_ms(late.get("avg")),
        "late_p99_s": seconds_from_ms(late.get("p99")),
    }


def _conditions(config):
    """What the summary says of the load that was asked for: AIPerf's phases, or GenAI-Perf's flat options."""
    phases = config.get("phases") or []
    last = phases[-1] if isinstance(phases, list) and phases and isinstance(phases[-1], dict) else {}
    options = config.get("loadgen") or {}
    models = (config.get("models") or {}).get("items") if isinstance(config.get("models"), dict) else None
    names = (
        config.get("model_names")
        or (config.get("endpoint") or {}).get("model_names")
        or [one.get("name") for one in models or []]
    )
    stimulus = (config.get("perf_analyzer") or {}).get("stimulus") or {}
    return {
        "model": names[0] if names else None,
        "concurrency": last.get("concurrency", options.get("concurrency", stimulus.get("concurrency"))),
        "request_rate": last.get("request_rate", options.get("request_rate", stimulus.get("request_rate"))),
        "warmup_requests": options.get("warmup_request_count") or (len(phases) > 1 or None),
    }


def _record(metrics, about):
    value = lambda name: (metrics.get(name) or {}).get("value")  # noqa: E731
    gaps = value("inter_chunk_latency")
    gaps = gaps if isinstance(gaps, list) else []
    issued, started = about.get("credit_issued_ns"), about.get("request_start_ns")
    return {
        "ttft_s": seconds_from_ms(value("time_to_first_token")),
        "tpot_s": seconds_from_ms(value("inter_token_latency")),
        "e2e_s": seconds_from_ms(value("request_latency")),
        "itl_s": seconds_from_ms(sum(gaps) / len(gaps)) if gaps else None,
        "gaps": len(gaps) or None,
        "sent_s": started * 1e-9 if started else None,
        "late_s": (started - issued) * 1e-9 if started and issued else None,
        "prompt_tokens": value("input_sequence_length"),
        "output_tokens": value("output_sequence_length"),
        "cached_tokens": value("usage_prompt_cache_read_tokens"),
    }
