"""Batching: the sweeps of batching.ipynb, what longer prompts cost in them, and what they leave of the pace.

Sizes in bytes, times in seconds. A sweep is `derived.batches` of the experiment `batching` on the machine in
focus.
"""

import pandas as pd

from bench import inputs
from bench.observations import derived, schema
from bench.topics import estimates, machines, quality

# The published rule of thumb: 512 more input tokens cost less than 8 more output tokens.
MORE_INPUT, MORE_OUTPUT = 512, 8
INTERVALS = "output_tokens_per_s", "ttft_s", "tpot_s"
KV_CACHE = "-kv-"  # in an option's name: after it its cache's format, before it the same with 16 bits
PREDICTED = ["backend", "option", "model", "gpu", "prompt_tokens"]  # what a row of the predictions is of


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
    """Return the batches that came whole in the sweeps on the default machine, most tokens/s first.

    One row per configuration and shape of a batch; columns of `of_runs`, means over runs (itl_max_s: the
    longest gap of any run), runs; of INTERVALS the means of that shape (`estimates.by_condition`) and
    `<name>_interval`, half the width of their 95 % intervals; gain: tokens/s over those of the same run's
    batch of one request of these lengths, the mean over runs.
    """
    each = of_runs(machines.on_default_machine(requests, "batching"))
    lengths = ["run_id", "prompt_tokens", "max_new_tokens"]
    alone = each.loc[each["batch_size"] == 1, [*lengths, "output_tokens_per_s"]]
    each = each.merge(alone.rename(columns={"output_tokens_per_s": "alone"}), "left", lengths)
    each = each.assign(gain=each["output_tokens_per_s"] / each["alone"]).drop(columns="alone")
    every = of_runs(machines.every(requests, "batching"))
    own = [*schema.CONFIGURATION, *schema.SHAPE]
    numbers = [name for name in each.select_dtypes("number").columns if name not in {*own, *INTERVALS}]
    how = {name: (name, "max" if name == "itl_max_s" else "mean") for name in numbers}
    grouped = each.groupby([*schema.CONFIGURATION, "arithmetic", *schema.SHAPE], as_index=False, sort=True)
    table = grouped.agg(**how, runs=("run_id", "nunique"))
    for metric in INTERVALS:
        found = estimates.by_condition(every, schema.CONFIGURATION, metric, schema.SHAPE)
        table = table.merge(found, "left", own)
    return table.sort_values("output_tokens_per_s", ascending=False, kind="stable", ignore_index=True)


def prompt_cost(requests: pd.DataFrame) -> pd.DataFrame:
    """Return what MORE_INPUT input tokens and MORE_OUTPUT output tokens cost.

    Of the pairs of prompts so far apart the longest is taken.
    One row per configuration; columns from_tokens (the shorter prompt), input_s, output_s (of tokens that
    follow the shorter prompt), means over runs; ratio (input_s / output_s of a run, its mean over
    runs), low, high (its 95 % interval) and runs. The published rule holds where `high` is below 1. There is
    no interval where the longer prompt took no longer than the shorter one in some run.
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
    table = table.merge(ratio[[*keys, "ratio", "low", "high", "runs"]], on=keys)
    return table.sort_values("ratio", kind="stable", ignore_index=True)


def context(requests: pd.DataFrame) -> pd.DataFrame:
    """Return what longer prompts leave of one user's pace (experiment `context`), on every machine.

    One row per configuration and prompt length; columns runs, ttft_s, tpot_s and output_tokens_per_s with
    their `_interval` (as `sweeps`), peak_memory_bytes (mean over runs), prompt_tokens_per_s (prompt tokens
    over TTFT), decode_tokens_per_s (after the first), kept (TPOT after the shortest prompt over that after
    this one, inside a run: mean over runs, kept_interval), those of `_narrow_caches`, and what
    data/context_predictions.csv predicted.
    """
    rows = machines.every(requests, "context")
    each = of_runs(rows)
    keys = [*schema.CONFIGURATION, "prompt_tokens", "max_new_tokens"]
    shortest = each.sort_values("prompt_tokens").groupby("run_id")["tpot_s"].first()
    each = each.assign(kept=each["run_id"].map(shortest) / each["tpot_s"])
    table = estimates.half_widths(estimates.within_runs(each, keys, "kept"), "kept")
    memory = each.groupby(keys, as_index=False)["peak_memory_bytes"].mean()
    table = table.merge(memory, "left", keys)
    for metric in INTERVALS:
        found = estimates.by_condition(each, schema.CONFIGURATION, metric, keys[-2:])
        table = table.merge(found, "left", keys)
    table = table.assign(
        prompt_tokens_per_s=table["prompt_tokens"] / table["ttft_s"],
        decode_tokens_per_s=1 / table["tpot_s"],
    )
    table = table.merge(_narrow_caches(rows, keys), "left", keys)
    return table.merge(inputs.table("context_predictions"), "left", PREDICTED)


def _narrow_caches(rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return what a KV cache in fewer bits changes against the same option with one in 16 bits.

    Runs of one number are compared, which are of one round. Columns `keys`; kv_pace (TPOT with 16 bits over
    that with fewer) and kv_wait (TTFT with fewer bits over that with 16), means over rounds, with their
    intervals; same_tokens (share of positions with the same token, mean over rounds).
    """
    answers = rows.loc[rows["error"] == "", ["run_id", *keys, "prompt", "ttft_s", "tpot_s", "output_ids"]]
    answers = answers.assign(round=answers["run_id"].str.split("-").str[-1])
    narrow = answers[answers["option"].str.contains(KV_CACHE)]
    narrow = narrow.assign(narrow=narrow["option"], option=narrow["option"].str.split(KV_CACHE).str[0])
    same = [*keys, "prompt", "round"]
    both = narrow.merge(answers, on=same, suffixes=("", "_16_bits")).drop(columns="option")
    both = both.rename(columns={"narrow": "option"}).assign(
        kv_pace=both["tpot_s_16_bits"] / both["tpot_s"], kv_wait=both["ttft_s"] / both["ttft_s_16_bits"]
    )
    pairs = zip(both["output_ids"], both["output_ids_16_bits"], strict=True)
    shares = [quality.agreement(quality.token_ids(ids), quality.token_ids(wide)) for ids, wide in pairs]
    both = both.assign(same_tokens=pd.Series(shares, both.index, dtype=float))
    found = both.groupby(keys, as_index=False)["same_tokens"].mean()
    for name in ("kv_pace", "kv_wait"):
        ratio = estimates.half_widths(estimates.within_runs(both, keys, name), name).drop(columns="runs")
        found = found.merge(ratio.astype(rows[keys].dtypes.to_dict()), "left", keys)
    return found
