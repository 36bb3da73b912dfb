"""What the sweeps of batching.ipynb say, as DataFrames computed from the observations; tables, figures and sentences call these.

Sizes in bytes, times in seconds. A sweep is `derived.batches` of the experiment `batching` on the machine in focus.
"""

import numpy as np
import pandas as pd

from bench import inputs, metrics
from bench.analysis import machines
from bench.observations import derived, schema

MORE_INPUT, MORE_OUTPUT = (
    512,
    8,
)  # the published rule of thumb: 512 more input tokens cost less than 8 more output tokens
PRECISIONS = {"16 bits": 2, "8 bits": 1, "4 bits": 0.5}
CONTEXTS = 576, 4096
USABLE = 0.9  # share of a GPU's memory for weights and KV cache, vLLM's default
PLANNED = "llama-2-7b", "llama-3-8b", "llama-2-70b"
OUT_OF_MEMORY = r"memory|alloc|SIGKILL|no room"


def sweeps(requests):
    """The batches that succeeded in the sweeps on the machine in focus, medians over runs: one row per configuration, batch and shape."""
    batches = derived.batches(machines.here(requests, "batching"))
    batches = batches[batches["error"] == ""]
    keys = [*schema.CONFIGURATION, "arithmetic", *schema.SHAPE]
    numbers = [
        c for c in batches.select_dtypes("number").columns if c not in keys and c not in ("sent_s", "ended_s")
    ]
    return batches.groupby(keys, as_index=False, sort=True)[numbers].median()


def uniform(requests):
    """Those of `sweeps` that make the curve over batch sizes: the most frequent prompt length, at its largest number of new tokens."""
    table = sweeps(requests)
    if table.empty:
        return table
    usual = table.loc[table["batch_size"] > 1, "prompt_tokens"]
    table = table[table["prompt_tokens"] == (usual if len(usual) else table["prompt_tokens"]).mode()[0]]
    return table[table["max_new_tokens"] == table["max_new_tokens"].max()]


def alone(requests):
    """Those of `sweeps` that make the curve over prompt lengths: batch size 1, one row per configuration and length."""
    table = sweeps(requests)
    table = table[table["batch_size"] == 1].sort_values("max_new_tokens")
    return table.drop_duplicates([*schema.CONFIGURATION, "prompt_tokens"]).sort_values(
        [*schema.CONFIGURATION, "prompt_tokens"]
    )


def prompt_cost(requests):
    """Per configuration: what 512 more input tokens and what 8 more output tokens cost in s, at the longest pair of prompts 512 apart.

    The output tokens are those that follow the shorter prompt of the pair; the rule holds where `input_s` < `output_s`.
    """
    rows = []
    for key, mine in alone(requests).groupby(schema.CONFIGURATION):
        ttft, tpot = (mine.set_index("prompt_tokens")[column] for column in ("ttft_s", "tpot_s"))
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
    """Per configuration: its rate at batch 1, its best rate, the batch that gave it, and how the pace of each request changed."""
    rows = []
    for key, mine in uniform(requests).groupby(schema.CONFIGURATION):
        single, best = mine[mine["batch_size"] == 1], mine.loc[mine["output_tokens_per_s"].idxmax()]
        if len(single) and len(mine) > 1:
            first = single.iloc[0]
            said = {
                "single": first["output_tokens_per_s"],
                "best": best["output_tokens_per_s"],
                "batch_size": best["batch_size"],
            }
            rows.append(
                dict(zip(schema.CONFIGURATION, key)) | said | {"slower": best["tpot_s"] / first["tpot_s"]}
            )
    return pd.DataFrame(rows, columns=[*schema.CONFIGURATION, "single", "best", "batch_size", "slower"])


def kv_cache():
    """The published KV-cache table beside the formula's: GiB in 16 and in 8 bits, and whether they agree as far as it was printed."""
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
    """Largest batch that fits: one row per model, precision of the weights, GPU of data/gpus.csv and context; KV cache in 16 bits."""
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
    """Per run under a limit: the batch the planner expects, the largest that ran, the smallest that did not, and why.

    What is free is the limit less what the loaded engine had mapped; a request takes its KV cache, prompt and answer.
    """
    rows, limited = [], machines.here(requests, "memory")
    for run, mine in derived.batches(limited).groupby("run_id"):
        about = limited[limited["run_id"] == run].iloc[0]
        wide = mine[
            mine["prompt_tokens"] + mine["max_new_tokens"]
            == (mine["prompt_tokens"] + mine["max_new_tokens"])[mine["batch_size"].idxmax()]
        ]
        request = metrics.kv_cache_bytes(
            wide["prompt_tokens"].iloc[0] + wide["max_new_tokens"].iloc[0],
            about["kv_values_per_token"],
            about["kv_value_bytes"],
        )
        ran, lost = wide[wide["error"] == ""], wide[wide["error"].str.contains(OUT_OF_MEMORY, case=False)]
        rows.append({c: about[c] for c in ("run_id", *schema.CONFIGURATION, "limit_bytes", "loaded_bytes")} | {
            "kv_bytes_per_request": request, "planned": float(metrics.largest_batch(about["limit_bytes"], about["loaded_bytes"], request)),
            "ran": ran["batch_size"].max(), "failed": lost["batch_size"].min(), "error": lost["error"].iloc[0] if len(lost) else "",
        })  # fmt: skip
    columns = [
        "run_id",
        *schema.CONFIGURATION,
        "limit_bytes",
        "loaded_bytes",
        "kv_bytes_per_request",
        "planned",
        "ran",
        "failed",
        "error",
    ]
    return pd.DataFrame(rows, columns=columns)


def published_sweep():
    """The published batch sweep (MPT-7B, one GPU): batch size, output tokens/s, and the latency that follows from them.

    A static batch of b requests at r requests/s takes b / r seconds: derived here, not printed there.
    """
    table = inputs.table("published/mosaicml_throughput_req_per_s")
    table = table[(table["gpus"] == 1) & table["requests_per_s"].notna()]
    return table.assign(
        output_tokens_per_s=table["requests_per_s"] * table["output_tokens"],
        e2e_s=table["batch_size"] / table["requests_per_s"],
    )


def published_memory():
    """Per single GPU of the published sweep that ran out of memory: the largest batch that ran, the smallest that did not, the planner's."""
    table = inputs.table("published/mosaicml_throughput_req_per_s").query("gpus == 1")
    planned = planner(
        models=("mpt-7b",), contexts=[int((table["input_tokens"] + table["output_tokens"]).max())]
    ).query("precision == '16 bits'")
    planned = planned.set_index("gpu")
    rows = []
    for gpu, mine in table.groupby("gpu"):
        lost = mine[mine["note"] == "out of memory"]
        if len(lost):
            ran, fits = mine.dropna(subset="requests_per_s")["batch_size"].max(), planned.loc[gpu]
            rows.append((gpu, fits["context_tokens"], fits["largest_batch"], ran, lost["batch_size"].min()))
    return pd.DataFrame(rows, columns="gpu context_tokens planned ran failed".split())


def published_mbu():
    """MBU of published 16-bit results at batch size 1 against the datasheet's bandwidth: label, gpu, tpot_s, mbu, derivation, source.

    Weights alone are counted; nobody measured the bandwidth, and nobody printed all that the derivation needs, so it stands beside each.
    """
    rows = [*_husain(), *_mosaic(), *_mlc()]
    table = pd.DataFrame(rows, columns="label model gpu tpot_s derivation source".split())
    sheet = inputs.table("gpus").set_index("gpu")["bandwidth_gb_per_s"] * 1e9
    weights = table["model"].map(lambda model: 2 * inputs.shape(model)["step_parameters"])
    table = table.assign(
        weight_bytes=weights, mbu=metrics.mbu(weights, 0, table["tpot_s"], table["gpu"].map(sheet))
    )
    return table.dropna(subset="mbu").sort_values("mbu", ascending=False, ignore_index=True)


def _husain():
    """Plain rows of the platforms that ran in 16 bits: 1 / (tokens/s), the wait for the first token included."""
    table, items = (
        inputs.table("published/husain_llama2_7b_latency"),
        inputs.table("published/husain_corrections"),
    )
    platforms = items.loc[(items["unit"] == "bits") & (items["corrected"] == 16), "platform"]
    plain = table[table["platform"].isin(platforms) & table["options"].isin(["-", "float16 quantization"])]
    why = "TPOT taken as 1 / (tokens/s), the wait for the first token included; weights in 16 bits"
    return [
        (row["platform"], "llama-2-7b", row["gpu"], 1 / row["tokens_per_s"], why, row["source"])
        for _, row in plain.iterrows()
    ]


def _mosaic():
    """MPT-7B at batch size 1: (1 / requests/s - TTFT) / (output tokens - 1), where a TTFT was printed, else without it."""
    waits = (
        inputs.table("published/mosaicml_ttft_ms")
        .query("gpus == 1 and batch_size == 1")
        .dropna(subset="ttft_ms")
        .set_index(["model", "gpu"])["ttft_ms"]
    )
    for _, row in published_sweep().query("batch_size == 1").iterrows():
        wait = waits.get((row["model"], row["gpu"]), np.nan) / 1e3
        known = np.isfinite(wait)
        why = (
            f"(1 / (requests/s) − TTFT) / {row['output_tokens'] - 1}"
            if known
            else f"1 / (requests/s) / {row['output_tokens']}, no TTFT printed"
        )
        tpot = (
            (row["e2e_s"] - wait) / (row["output_tokens"] - 1)
            if known
            else row["e2e_s"] / row["output_tokens"]
        )
        yield (
            "MosaicML's batch sweep",
            "mpt-7b",
            row["gpu"],
            tpot,
            f"TPOT taken as {why}; weights in 16 bits",
            row["source"],
        )


def _mlc():
    """Llama-3-8B in 16 bits on one H100 at concurrency 1: the printed TPOT."""
    table = inputs.table("published/mlc_h100_tpot")
    one = table[
        (table["model"] == "Llama-3-8B fp16")
        & (table["tensor_parallel"] == 1)
        & (table["load"] == "concurrency")
        & (table["level"] == 1)
    ]
    for _, row in one.iterrows():
        yield (
            row["engine"],
            "llama-3-8b",
            row["gpu"],
            row["tpot_ms"] / 1e3,
            "TPOT as printed, at concurrency 1; weights in 16 bits",
            row["source"],
        )
