"""optimum-benchmark's `benchmark.json` (config and report) and `benchmark_report.json`, times in seconds, and
its CSV, whose columns are the same names joined by points (`report.decode.latency.mean`).

As published in DerekLiu35/huggingface-quantization-benchmarking-code `runs/*/benchmark.json`. Prefill is
one forward pass over the prompts,
decode all further tokens together.
"""

import re

from llm_measured.audit import frame
from llm_measured.audit.importers.content import Content

TOOL = "optimum-benchmark"
LOOKED_FOR = "report with prefill and decode, each with latency"
COLUMN = re.compile(r"report\.(prefill|decode|per_token)\.latency\.\w+")


def matches(content: Content) -> bool:
    if not content.is_json:
        return any(COLUMN.fullmatch(name) for name in content.header)
    found = content.json
    report = found.get("report", found) if isinstance(found, dict) else None
    return (
        isinstance(report, dict)
        and isinstance(report.get("decode"), dict)
        and "prefill" in report
        and "latency" in report["decode"]
    )


def load(content: Content, file: str) -> frame.Audited:
    found = [content.json] if content.is_json else [_nested(content.header, row) for row in content.rows()]
    return frame.make(file, TOOL, [_level(one) for one in found])


def _nested(header, row):
    """One line of the CSV as the object that its JSON is; a cell that is no number stays text."""
    whole = {}
    for name, value in zip(header, row, strict=False):
        *path, last = name.split(".")
        place = whole
        for part in path:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                break
        else:
            place[last] = _number(value)
    return whole


def _number(text):
    try:
        return float(text)
    except ValueError:
        return text or None


def _level(found):
    """The one level of a benchmark's object."""
    report, config = found.get("report", found), found.get("config") or {}
    prefill, decode, token = (_latency(report.get(name)) for name in ("prefill", "decode", "per_token"))
    level = _conditions(config)
    level |= {f"ttft_{q}_s": prefill.get(q) for q in ("mean", "p50", "p90", "p95", "p99")}
    level |= {f"itl_{q}_s": token.get(q) for q in ("mean", "p50", "p90", "p95", "p99")}
    tokens = level.get("max_new_tokens")
    level |= {"requests": decode.get("count"), "output_tokens": tokens, "device_times": 1}
    if tokens and tokens > 1 and decode.get("mean"):
        level["tpot_mean_s"] = decode["mean"] / (tokens - 1)
    return level


def _latency(part):
    return (part or {}).get("latency") or {}


def _conditions(config):
    backend, scenario, machine = (config.get(name) or {} for name in ("backend", "scenario", "environment"))
    shapes, generation = scenario.get("input_shapes") or {}, scenario.get("generate_kwargs") or {}
    quantised = backend.get("quantization_config") or {}
    gpus = machine.get("gpu") or []
    scheme = backend.get("quantization_scheme")
    return {
        "name": config.get("name"),
        "model": backend.get("model"),
        "engine": backend.get("name"),
        "engine_version": backend.get("version"),
        "weights": f"{scheme} {quantised['bits']}bit"
        if quantised.get("bits")
        else " ".join(str(x) for x in (scheme, backend.get("torch_dtype") or backend.get("dtype")) if x),
        "gpu": (gpus[0] if isinstance(gpus, list) and gpus else gpus)
        if backend.get("device") == "cuda"
        else machine.get("cpu"),
        "tensor_parallel": len(str(backend.get("device_ids") or "0").split(",")),
        "batch_size": shapes.get("batch_size"),
        "prompt_tokens": shapes.get("sequence_length"),
        "max_new_tokens": generation.get("max_new_tokens"),
        "temperature": 0 if generation.get("do_sample") is False else None,
        "warmup_requests": scenario.get("warmup_runs"),
    }
