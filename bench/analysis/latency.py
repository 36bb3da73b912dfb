"""One request at a time: runs and configurations."""

import numpy as np
import pandas as pd

from bench import metrics
from bench.analysis import machines
from bench.observations import schema


def runs(requests):
    """One row per run: medians over its requests of ttft_s, tpot_s, itl_p99_s and mbu, the mean of output_tokens_per_s, counts."""
    keys = ["run_id", "experiment", *schema.CONFIGURATION, "backend_version", "threads", "started"]
    return requests.groupby(keys, as_index=False, sort=True).agg(
        ttft_s=("ttft_s", "median"), tpot_s=("tpot_s", "median"), itl_p99_s=("itl_p99_s", "median"),
        # The mean over requests, because that is what the published table shows.
        output_tokens_per_s=("output_tokens_per_s", "mean"),
        mbu=("mbu", "median"), mbu_datasheet=("mbu_datasheet", "median"),
        drafted_tokens=("drafted_tokens", "sum"), accepted_tokens=("accepted_tokens", "sum"),
        weight_bytes=("weight_bytes", "first"), bandwidth_bytes_per_s=("bandwidth_bytes_per_s", "first"),
        peak_memory_bytes=("peak_memory_bytes", "max"), load_s=("load_s", "first"),
        requests=("request", "count"), failed=("error", lambda e: int((e != "").sum())),
    )  # fmt: skip


def summary(requests):
    """One row per configuration (backend, option, model, weights, gpu, host, devices at once), fastest first: medians over its runs of what `runs`
    gives, the mean and the 95 % t-interval over runs of output_tokens_per_s, the share of drafted tokens that were accepted (NaN where none are
    drafted), and how many runs and failed requests there are."""
    each = runs(requests)
    grouped = each.groupby(schema.CONFIGURATION, as_index=False, sort=True)
    middle = grouped[
        [
            "ttft_s",
            "tpot_s",
            "itl_p99_s",
            "mbu",
            "mbu_datasheet",
            "weight_bytes",
            "bandwidth_bytes_per_s",
            "peak_memory_bytes",
            "load_s",
        ]
    ].median()
    rate = grouped["output_tokens_per_s"].agg(
        output_tokens_per_s="mean", interval=metrics.t_interval, runs="count"
    )
    sums = {name: (name, "sum") for name in ("failed", "drafted_tokens", "accepted_tokens")}
    total = grouped.agg(**sums, backend_version=("backend_version", "last"), measured=("started", "max"))
    table = middle.merge(rate, on=schema.CONFIGURATION).merge(total, on=schema.CONFIGURATION)
    table = table.assign(
        acceptance_rate=metrics.acceptance_rate(table["accepted_tokens"], table["drafted_tokens"])
    )
    return table.sort_values("output_tokens_per_s", ascending=False, ignore_index=True)


def settings(requests):
    """[((gpu, model, weights), its requests)], the setting with the most configurations first, real weights before synthetic ones."""
    groups = list(requests.groupby(schema.SETTING, sort=True))
    return sorted(
        groups, key=lambda g: (g[0][2] == "synthetic", -len(g[1][["backend", "option"]].drop_duplicates()))
    )


def pairs(requests):
    """One row per pair of the overhead experiment on the machine in focus: the engine's own loop and the harness on the same prompt.

    `cost` is harness e2e / own loop's e2e - 1. A pair with a failure, or with two rows of the same kind, is left out.
    """
    rows = machines.here(requests, "overhead")
    rows = rows[rows["error"] == ""]
    rows = rows.assign(pair=(rows["request"] - 1) // 2, harness=rows["ttft_s"].notna())
    keys = [*schema.CONFIGURATION, "run_id", "pair", "prompt"]
    wide = (
        rows.pivot_table(index=keys, columns="harness", values="e2e_s", aggfunc="first")
        .reindex(columns=[False, True])
        .dropna()
    )
    return (
        wide.assign(cost=wide[True] / wide[False] - 1)
        .reset_index()[[*keys, "cost"]]
        .rename_axis(columns=None)
    )


def median_interval(values, confidence=0.95):
    """(low, high) of the distribution-free interval of the median, from order statistics; NaN for fewer than six values."""
    from scipy.stats import quantile_test

    return (
        tuple(quantile_test(np.asarray(values, dtype=float), p=0.5).confidence_interval(confidence))
        if len(values)
        else (np.nan, np.nan)
    )


def overhead_summary(requests):
    """One row per configuration of the overhead experiment, dearest first: pairs, median, low, high (as fractions)."""
    each = pairs(requests).groupby(schema.CONFIGURATION)["cost"]
    rows = [(*key, len(costs), costs.median(), *median_interval(costs)) for key, costs in each]
    table = pd.DataFrame(rows, columns=[*schema.CONFIGURATION, "pairs", "median", "low", "high"])
    return table.sort_values("median", ascending=False, ignore_index=True)
