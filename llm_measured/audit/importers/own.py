"""A run of this study: `<backend>/<run>.csv`, with the sidecar beside it where it is there (weights' bytes,
measured peaks)."""

import json

import pandas as pd

from llm_measured.audit import frame
from llm_measured.audit.importers.content import Content
from llm_measured.core import device_peaks

TOOL = "this study"
COLUMNS = {"run_id", "experiment", "backend", "option", "max_new_tokens"}
LEVEL = (
    "run_id backend backend_version option model gpu tensor_parallel batch_size concurrency "
    "request_rate temperature"
).split()
SHARED = "expected_cached_tokens_high"  # of a load whose prompts share what a cache keeps
# Their "answers" were not written in the run: texts that every model is given to read, or another run's.
READING = {"quality", "sizes_quality"}
# Their times are no measurement: a batch of problems ends with its longest answer.
UNTIMED = {"humaneval", "humaneval-score"}
TIMES = ["sent_s", "ttft_s", "e2e_s"]
NAMES = {"backend": "engine", "backend_version": "engine_version", "run_id": "name"}
SAME = (
    "sent_s ttft_s e2e_s output_tokens prompt_tokens max_new_tokens late_s cached_tokens drafted_tokens"
).split()


def matches(content: Content) -> bool:
    return not content.is_json and COLUMNS <= set(content.header)


def load(content: Content, file: str) -> frame.Audited:
    rows = [row[: len(content.header)] for row in content.rows()]
    table = pd.DataFrame(rows, columns=content.header, dtype=object)  # `frame.make` types what it takes
    experiment = table["experiment"].iloc[0] if len(table) else ""
    batches = experiment in ("batching", "context")
    # A batch's shape is its level; of a load, lengths vary within one.
    keys = LEVEL + (["prompt_tokens", "max_new_tokens"] if batches else [])
    numbers = {}  # what tells a level from others -> its number, by the first row of each
    table["level"] = [numbers.setdefault(key, len(numbers)) for key in zip(*(table[k] for k in keys))]
    levels = table[["level", *keys]].drop_duplicates("level").rename(columns=NAMES)
    levels = levels.assign(weights=levels["option"], warmup_requests=1, runs=1, host=table.get("host"))
    levels = levels.assign(**_sidecar(content.path))
    levels["device_times"] = (experiment == "latency" or batches) if experiment else None
    requests = table.reindex(columns=["level", "error", "answer", *SAME])
    counts = table.reindex(columns=["prompt_tokens", "cached_tokens", "chunks", "drafted_tokens", SHARED])
    counts = counts.apply(pd.to_numeric, errors="coerce")
    # In one process (no chunks) a hit is of a prefix that the run had the engine keep: that of every prompt.
    kept = counts[SHARED].isna() & counts["chunks"].isna() & (counts["cached_tokens"] > 0)
    requests = requests.assign(
        shared_tokens=counts[SHARED].mask(kept, counts["prompt_tokens"].min() - 1),
        events=counts["chunks"].where(~(counts["drafted_tokens"] > 0)),  # accepted tokens come together
        question=table["prompt"],
        answer=table["answer"].str[: frame.ANSWER_CHARS].mask(table["experiment"].isin(READING), ""),
    )
    requests[TIMES] = requests[TIMES].mask(table["experiment"].isin(UNTIMED))
    return frame.make(file, TOOL, levels, requests)


def _sidecar(path):
    """weight_bytes, bandwidth_bytes_per_s and flops_per_s of the sidecar; nothing where it is absent or no
    sidecar."""
    try:
        found = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict) or "bandwidth_probes_bytes_per_s" not in found:
        return {}

    gemms = found.get("gemm_flops_per_s", {})
    return {
        "weight_bytes": found.get("weight_bytes"),
        "bandwidth_bytes_per_s": device_peaks.peak_bytes_per_s(found),
        "flops_per_s": device_peaks.peak_flops_per_s(gemms, found.get("arithmetic")),
    }
