"""Batching: frames computed from the sweeps of batching.ipynb, the planner, and the published sweep.

Sizes in bytes, times in seconds. A sweep is `derived.batches` of the experiment `batching` on the machine in
focus.
"""

import pandas as pd

from bench import inputs, metrics
from bench.analysis import machines
from bench.observations import derived, schema

# The published rule of thumb: 512 more input tokens cost less than 8 more output tokens.
MORE_INPUT, MORE_OUTPUT = 512, 8
PRECISIONS = {"16 bits": 2, "8 bits": 1, "4 bits": 0.5}
CONTEXTS = 576, 4096
USABLE = 0.9  # share of a GPU's memory for weights and KV cache, vLLM's default
PLANNED = "llama-2-7b", "llama-3-8b", "llama-2-70b"
OUT_OF_MEMORY = r"memory|alloc|SIGKILL|no room"
MEMORY = [
    *("run_id", *schema.CONFIGURATION, "limit_bytes", "loaded_bytes"),
    *("kv_bytes_per_request", "planned", "ran", "failed", "error"),
]


def sweeps(requests):
    """The batches that succeeded in the sweeps on the machine in focus: one row per configuration and
    shape of a batch; columns of `derived.batches`, medians over runs."""
    batches = derived.batches(machines.here(requests, "batching"))
    batches = batches[batches["error"] == ""]
    keys = [*schema.CONFIGURATION, "arithmetic", *schema.SHAPE]
    numbers = [
        c for c in batches.select_dtypes("number").columns if c not in keys and c not in ("sent_s", "ended_s")
    ]
    return batches.groupby(keys, as_index=False, sort=True)[numbers].median()


def uniform(requests):
    """The rows of `sweeps` that make the curve over batch sizes: those of the most frequent prompt length, at
    its largest number of new tokens."""
    table = sweeps(requests)
    if table.empty:
        return table
    usual = table.loc[table["batch_size"] > 1, "prompt_tokens"]
    table = table[table["prompt_tokens"] == (usual if len(usual) else table["prompt_tokens"]).mode()[0]]
    return table[table["max_new_tokens"] == table["max_new_tokens"].max()]


def alone(requests):
    """The rows of `sweeps` that make the curve over prompt lengths: batch size 1, one per configuration and
    length."""
    table = sweeps(requests)
    table = table[table["batch_size"] == 1].sort_values("max_new_tokens")
    return table.drop_duplicates([*schema.CONFIGURATION, "prompt_tokens"]).sort_values(
        [*schema.CONFIGURATION, "prompt_tokens"]
    )


def prompt_cost(requests):
    """What MORE_INPUT input tokens and MORE_OUTPUT output tokens cost, at the longest pair of prompts so far
    apart.

    One row per configuration; columns from_tokens (the shorter prompt), input_s, output_s (of tokens that
    follow the shorter prompt). The rule holds where `input_s` < `output_s`.
    """
    rows = []
    for key, curve in alone(requests).groupby(schema.CONFIGURATION):
        ttft, tpot = (curve.set_index("prompt_tokens")[column] for column in ("ttft_s", "tpot_s"))
        pairs = [n for n in ttft.index if n + MORE_INPUT in ttft.index]
        if pairs:
            n = max(pairs)
            costs = {
                "from_tokens": n,
                "input_s": ttft[n + MORE_INPUT] - ttft[n],
                "output_s": MORE_OUTPUT * tpot[n],
            }
            rows.append(dict(zip(schema.CONFIGURATION, key)) | costs)
    return pd.DataFrame(rows, columns=[*schema.CONFIGURATION, "from_tokens", "input_s", "output_s"])


def gains(requests):
    """What batching gains: one row per configuration with batch size 1 and others.

    Columns single and best (output tokens/s at batch 1, and the most), batch_size (that yielded the most),
    slower (TPOT there / TPOT at batch 1).
    """
    rows = []
    for key, curve in uniform(requests).groupby(schema.CONFIGURATION):
        single, best = curve[curve["batch_size"] == 1], curve.loc[curve["output_tokens_per_s"].idxmax()]
        if len(single) and len(curve) > 1:
            first = single.iloc[0]
            gain = {
                "single": first["output_tokens_per_s"],
                "best": best["output_tokens_per_s"],
                "batch_size": best["batch_size"],
                "slower": best["tpot_s"] / first["tpot_s"],
            }
            rows.append(dict(zip(schema.CONFIGURATION, key)) | gain)
    return pd.DataFrame(rows, columns=[*schema.CONFIGURATION, "single", "best", "batch_size", "slower"])


def kv_cache():
    """The published KV-cache table beside the formula's values: one row as printed; columns fp16_gib,
    int8_gib (computed), agree (whether both agree as far as they were printed)."""
    printed = inputs.table("published/mosaicml_kv_cache_gib")
    values = printed["model"].str.lower().map(lambda model: inputs.shape(model)["kv_values_per_token"])
    tokens = printed["sequence_tokens"] * printed["batch_size"]
    table = printed.assign(
        fp16_gib=metrics.kv_cache_bytes(tokens, values, 2) / 2**30,
        int8_gib=metrics.kv_cache_bytes(tokens, values, 1) / 2**30,
    )
    agree = [
        _as_printed(row["kv_fp16_gib"], row["fp16_gib"]) and _as_printed(row["kv_int8_gib"], row["int8_gib"])
        for _, row in table.iterrows()
    ]
    return table.assign(agree=agree)


def _as_printed(printed, computed):
    """Whether `computed` lies within half a unit of the last digit of `printed`."""
    _, _, decimals = f"{printed:.12g}".partition(".")
    return abs(computed - printed) <= 0.5 * 10 ** -len(decimals) + 1e-12


def planner(models=PLANNED, contexts=CONTEXTS, usable=USABLE):
    """Largest batch that fits: one row per model, precision of the weights, GPU of data/gpus.csv and
    context.

    Columns model, precision, gpu, context_tokens, weight_bytes, kv_bytes_per_request (16 bits),
    largest_batch.
    """
    rows = []
    for model in models:
        shape = inputs.shape(model)
        for precision, value_bytes in PRECISIONS.items():
            weights = shape["weight_parameters"] * value_bytes
            for _, gpu in inputs.table("gpus").iterrows():
                for context in contexts:
                    request = metrics.kv_cache_bytes(context, shape["kv_values_per_token"], 2)
                    fits = metrics.largest_batch(usable * gpu["memory_gb"] * 1e9, weights, request)
                    rows.append((model, precision, gpu["gpu"], context, weights, request, int(fits)))
    return pd.DataFrame(
        rows,
        columns="model precision gpu context_tokens weight_bytes kv_bytes_per_request largest_batch".split(),
    )


def memory(requests):
    """Runs under a limit of memory beside the planner: one row per run of the experiment `memory`.

    Columns run_id, the configuration, limit_bytes, loaded_bytes, kv_bytes_per_request, planned (the batch
    that the planner expects to fit), ran (largest batch that ran), failed (smallest that did not), error
    (why). What is free is the limit less what the loaded engine had mapped.
    """
    limited = machines.here(requests, "memory")
    batches = derived.batches(limited).groupby("run_id")
    rows = [_limited(limited[limited["run_id"] == run].iloc[0], sweep) for run, sweep in batches]
    return pd.DataFrame(rows, columns=MEMORY)


def _limited(first, batches):
    """The row of one run under a limit: `first` of its requests, and its batches.

    Batches as long as the largest one count; a request takes the KV cache of its prompt and answer.
    """
    lengths = batches["prompt_tokens"] + batches["max_new_tokens"]
    tokens = lengths[batches["batch_size"].idxmax()]
    wide = batches[lengths == tokens]
    request = metrics.kv_cache_bytes(tokens, first["kv_values_per_token"], first["kv_value_bytes"])
    ran, lost = wide[wide["error"] == ""], wide[wide["error"].str.contains(OUT_OF_MEMORY, case=False)]
    return {column: first[column] for column in MEMORY if column in first} | {
        "kv_bytes_per_request": request,
        "planned": float(metrics.largest_batch(first["limit_bytes"], first["loaded_bytes"], request)),
        "ran": ran["batch_size"].max(),
        "failed": lost["batch_size"].min(),
        "error": lost["error"].iloc[0] if len(lost) else "",
    }


def published_sweep():
    """The published batch sweep (MPT-7B, one GPU): one row as printed; columns output_tokens_per_s, e2e_s.

    The latency is derived, not printed: a static batch of b requests at r requests/s takes b / r seconds.
    """
    table = inputs.table("published/mosaicml_throughput_req_per_s")
    table = table[(table["gpus"] == 1) & table["requests_per_s"].notna()]
    return table.assign(
        output_tokens_per_s=table["requests_per_s"] * table["output_tokens"],
        e2e_s=table["batch_size"] / table["requests_per_s"],
    )


def published_memory():
    """The devices of the published sweep that ran out of memory: one row per single GPU; columns gpu,
    context_tokens, planned (the planner's batch), ran (largest that ran), failed (smallest that did not)."""
    table = inputs.table("published/mosaicml_throughput_req_per_s").query("gpus == 1")
    longest = int((table["input_tokens"] + table["output_tokens"]).max())
    planned = planner(models=("mpt-7b",), contexts=[longest]).query("precision == '16 bits'").set_index("gpu")
    rows = []
    for gpu, sweep in table.groupby("gpu"):
        lost = sweep[sweep["note"] == "out of memory"]
        if len(lost):
            ran, fits = sweep.dropna(subset="requests_per_s")["batch_size"].max(), planned.loc[gpu]
            rows.append((gpu, fits["context_tokens"], fits["largest_batch"], ran, lost["batch_size"].min()))
    return pd.DataFrame(rows, columns="gpu context_tokens planned ran failed".split())
