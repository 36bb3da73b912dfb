"""Batching: frames computed from the sweeps of batching.ipynb, the largest batches that fit, and the
published sweep.

Sizes in bytes, times in seconds. A sweep is `derived.batches` of the experiment `batching` on the machine in
focus.
"""

import pandas as pd

from bench import inputs
from bench.observations import derived, schema
from bench.topics import adjusted, estimates, machines, once
from bench.topics import latency as latency_analysis
from llm_measured.core import hardware, metrics

# The published rule of thumb: 512 more input tokens cost less than 8 more output tokens.
MORE_INPUT, MORE_OUTPUT = 512, 8
PRECISIONS = {"16 bits": 2, "8 bits": 1, "4 bits": 0.5}
CONTEXTS = 576, 4096
USABLE = 0.9  # share of a GPU's memory for weights and KV cache, vLLM's default
FITTED_MODELS = "llama-2-7b", "llama-3-8b", "llama-2-70b"
# What the table calls a GPU, and its row of core/accelerators.csv.
FITTED_GPUS = {
    "A6000": "rtx-a6000",
    "A10G": "a10g",
    "A10": "a10",
    "A100-40GB": "a100-sxm-40gb",
    "A100-80GB": "a100-sxm-80gb",
    "H100 SXM": "h100-sxm",
    "H100 PCIe": "h100-pcie",
    "H200": "h200-sxm",
    "L40S": "l40s",
    "GB200": "gb200",
    "B200": "b200-sxm",
    "RTX 4090": "rtx-4090",
    "RTX 5090": "rtx-5090",
}
INTERVALS = "output_tokens_per_s", "ttft_s", "tpot_s"


@once.for_the_same_rows
def of_runs(rows: pd.DataFrame) -> pd.DataFrame:
    """The batches of the sweeps `rows` that came whole: one row per run and shape of a batch.

    Columns of `derived.batches` (medians over equal batches of the run), itl_max_s (the longest gap of any
    request), experiment and started. A batch of which a request failed is none.
    """
    batches, keys = derived.batches(rows), ["run_id", *schema.SHAPE, "sent_s"]
    each = rows.groupby(keys, as_index=False).agg(
        itl_max_s=("itl_max_s", "max"), started=("started", "first")
    )
    batches = batches[batches["error"] == ""].merge(each, "left", keys)
    same = ["run_id", "experiment", "started", *schema.CONFIGURATION, "arithmetic", *schema.SHAPE]
    apart = {*same, "sent_s", "ended_s", "itl_max_s"}
    how = {name: "median" for name in batches.select_dtypes("number").columns if name not in apart}
    return batches.groupby(same, as_index=False, sort=True).agg(how | {"itl_max_s": "max"})


def sweeps(requests: pd.DataFrame) -> pd.DataFrame:
    """The batches that came whole in the sweeps on the default machine.

    One row per configuration and shape of a batch; columns of `of_runs`, means over runs (itl_max_s: the
    longest gap of any run), runs; of INTERVALS the means of that shape (`adjusted.means`) and
    `<name>_interval`, half the width of their 95 % intervals.
    """
    each = of_runs(machines.on_default_machine(requests, "batching"))
    every = of_runs(machines.every(requests, "batching"))
    own = [*schema.CONFIGURATION, *schema.SHAPE]
    numbers = [name for name in each.select_dtypes("number").columns if name not in {*own, *INTERVALS}]
    how = {name: (name, "max" if name == "itl_max_s" else "mean") for name in numbers}
    grouped = each.groupby([*schema.CONFIGURATION, "arithmetic", *schema.SHAPE], as_index=False, sort=True)
    table = grouped.agg(**how, runs=("run_id", "nunique"))
    for metric in INTERVALS:
        found = adjusted.means(every, schema.CONFIGURATION, metric, schema.SHAPE)
        named = found[[*own, "mean", "half"]].set_axis([*own, metric, f"{metric}_interval"], axis=1)
        table = table.merge(named, "left", own)
    return table


def uniform(requests: pd.DataFrame) -> pd.DataFrame:
    """The rows of `sweeps` that make the curve over batch sizes: those of the most frequent prompt length, at
    its largest number of new tokens."""
    return _uniform(sweeps(requests))


def _uniform(table: pd.DataFrame) -> pd.DataFrame:
    if table.empty:
        return table
    usual = table.loc[table["batch_size"] > 1, "prompt_tokens"]
    table = table[table["prompt_tokens"] == (usual if len(usual) else table["prompt_tokens"]).mode()[0]]
    return table[table["max_new_tokens"] == table["max_new_tokens"].max()]


def alone(requests: pd.DataFrame) -> pd.DataFrame:
    """The rows of `sweeps` that make the curve over prompt lengths: batch size 1, one per configuration and
    length."""
    table = sweeps(requests)
    table = table[table["batch_size"] == 1].sort_values("max_new_tokens")
    return table.drop_duplicates([*schema.CONFIGURATION, "prompt_tokens"]).sort_values(
        [*schema.CONFIGURATION, "prompt_tokens"]
    )


def prompt_cost(requests: pd.DataFrame) -> pd.DataFrame:
    """What MORE_INPUT input tokens and MORE_OUTPUT output tokens cost, at the longest pair of prompts so far
    apart.

    One row per configuration; columns from_tokens (the shorter prompt), input_s, output_s (of tokens that
    follow the shorter prompt), means over runs; ratio (input_s / output_s of a run, its mean over
    runs), low, high (its 95 % interval) and runs. The rule holds where `ratio` is below 1.
    Interval and rule are open where the longer prompt took no longer than the shorter one in some run.
    """
    rows = []
    for _, run in of_runs(machines.on_default_machine(requests, "batching")).groupby("run_id"):
        curve = run[run["batch_size"] == 1].sort_values("max_new_tokens").drop_duplicates("prompt_tokens")
        ttft, tpot = (curve.set_index("prompt_tokens")[column] for column in ("ttft_s", "tpot_s"))
        pairs = [n for n in ttft.index if n + MORE_INPUT in ttft.index]
        if pairs:
            n = max(pairs)
            input_s, output_s = ttft[n + MORE_INPUT] - ttft[n], MORE_OUTPUT * tpot[n]
            cost = {"from_tokens": n, "input_s": input_s, "output_s": output_s, "cost": input_s / output_s}
            rows.append(curve.iloc[0].to_dict() | cost)
    keys = [*schema.CONFIGURATION, "from_tokens"]
    each = pd.DataFrame(rows, columns=["started", "experiment", *keys, "input_s", "output_s", "cost"])
    table = each.groupby(keys, as_index=False)[["input_s", "output_s"]].mean()
    ratio = estimates.within_runs(each, keys, "cost").rename(columns={"mean": "ratio"})
    return table.merge(ratio[[*keys, "ratio", "low", "high", "runs"]], on=keys)


def gains(requests: pd.DataFrame) -> pd.DataFrame:
    """What batching gains in each run of the setting that sentences are about (`latency.described`).

    One row per run of a configuration with batch size 1 and others; columns the configuration, run_id,
    experiment, started, batch_size (the one that yielded most in the mean over runs, of those that most runs
    have), best (output tokens/s there), gain (best / that at batch 1), slower (TPOT there / TPOT at batch
    1).
    """
    curves = _uniform(of_runs(latency_analysis.described(derived.judged(requests), "batching")))
    rows = []
    for key, own in curves.groupby(schema.CONFIGURATION):
        size = _best_size(own)
        for (*run, started), curve in own.groupby(["run_id", "experiment", "started"]):
            curve = curve.set_index("batch_size")
            if 1 in curve.index and len(curve) > 1 and size in curve.index:
                rates, tpot = curve["output_tokens_per_s"], curve["tpot_s"]
                gain, slower = rates[size] / rates[1], tpot[size] / tpot[1]
                rows.append((*key, *run, started, size, rates[size], gain, slower))
    names = [*schema.CONFIGURATION, "run_id", "experiment", "started", "batch_size"]
    return pd.DataFrame(rows, columns=[*names, "best", "gain", "slower"])


def _best_size(curves: pd.DataFrame) -> float:
    """The batch size with the most output tokens/s in the mean over runs, of those that most runs have."""
    sizes = curves.groupby("batch_size").agg(rate=("output_tokens_per_s", "mean"), runs=("run_id", "nunique"))
    return sizes[sizes["runs"] == sizes["runs"].max()]["rate"].idxmax()


def most_within(requests: pd.DataFrame, longest_gap_s: float) -> pd.DataFrame:
    """How much a batch yields in which nobody waits longer than `longest_gap_s` for a token.

    One row per run of the setting that sentences are about; columns of `of_runs`, at the batch size that
    yields most of those whose longest gap, of any request in any run, is within the limit.
    """
    curves = _uniform(of_runs(latency_analysis.described(derived.judged(requests), "batching")))
    chosen = [curves.iloc[:0]]
    for _, own in curves.groupby(schema.CONFIGURATION):
        longest = own.groupby("batch_size")["itl_max_s"].max()
        within = own[own["batch_size"].isin(longest.index[longest <= longest_gap_s])]
        if len(within):
            chosen.append(within[within["batch_size"] == _best_size(within)])
    return pd.concat(chosen[1:] or chosen, ignore_index=True)


def kv_cache() -> pd.DataFrame:
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


def _as_printed(printed: float, computed: float) -> bool:
    """Whether `computed` lies within half a unit of the last digit of `printed`."""
    _, _, decimals = f"{printed:.12g}".partition(".")
    return abs(computed - printed) <= 0.5 * 10 ** -len(decimals) + 1e-12


def largest_batches() -> pd.DataFrame:
    """Largest batch that fits: one row per model, GPU of FITTED_GPUS, precision of the weights
    and context.

    Columns model, precision, gpu, context_tokens, weight_bytes, largest_batch (with a KV cache in 16 bits).
    """
    memory_gb = hardware.by_accelerator()["memory_gb"]
    rows = []
    for model in FITTED_MODELS:
        shape = inputs.shape(model)
        for precision, value_bytes in PRECISIONS.items():
            weights = shape["weight_parameters"] * value_bytes
            for gpu, sheet in FITTED_GPUS.items():
                for context in CONTEXTS:
                    request = metrics.kv_cache_bytes(context, shape["kv_values_per_token"], 2)
                    fits = metrics.largest_batch(USABLE * memory_gb[sheet] * 1e9, weights, request)
                    rows.append((model, precision, gpu, context, weights, int(fits)))
    names = "model precision gpu context_tokens weight_bytes largest_batch".split()
    return pd.DataFrame(rows, columns=names)


def published_sweep() -> pd.DataFrame:
    """The published batch sweep (MPT-7B, one GPU): one row as printed; columns output_tokens_per_s, e2e_s.

    The latency is derived, not printed: a static batch of b requests at r requests/s takes b / r seconds.
    """
    table = inputs.table("published/mosaicml_throughput_req_per_s")
    table = table[(table["gpus"] == 1) & table["requests_per_s"].notna()]
    return table.assign(
        output_tokens_per_s=table["requests_per_s"] * table["output_tokens"],
        e2e_s=table["batch_size"] / table["requests_per_s"],
    )
