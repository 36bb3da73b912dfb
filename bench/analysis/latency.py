"""One request at a time: runs and configurations."""

import numpy as np
import pandas as pd

from bench import metrics
from bench.analysis import machines
from bench.observations import schema

MEDIANS = [
    *("ttft_s", "tpot_s", "itl_p99_s", "mbu", "mbu_datasheet"),
    *("weight_bytes", "bandwidth_bytes_per_s", "peak_memory_bytes", "load_s"),
]


def runs(requests):
    """One row per run: medians over its requests, the mean of output_tokens_per_s, counts.

    Columns run_id, experiment, the configuration, backend_version, threads, started; medians of ttft_s,
    tpot_s, itl_p99_s, mbu and mbu_datasheet; output_tokens_per_s (the mean, because that is what the
    published table shows); drafted_tokens, accepted_tokens, weight_bytes, bandwidth_bytes_per_s,
    peak_memory_bytes, load_s, requests, failed.
    """
    keys = ["run_id", "experiment", *schema.CONFIGURATION, "backend_version", "threads", "started"]
    return requests.groupby(keys, as_index=False, sort=True).agg(
        **_each("median", "ttft_s", "tpot_s", "itl_p99_s"),
        **_each("mean", "output_tokens_per_s"),
        **_each("median", "mbu", "mbu_datasheet"),
        **_each("sum", "drafted_tokens", "accepted_tokens"),
        **_each("first", "weight_bytes", "bandwidth_bytes_per_s"),
        **_each("max", "peak_memory_bytes"),
        **_each("first", "load_s"),
        requests=("request", "count"),
        failed=("error", lambda errors: int((errors != "").sum())),
    )


def _each(how, *names):
    """Named aggregations of pandas: each of the columns `names` under its own name."""
    return {name: (name, how) for name in names}


def summary(requests):
    """One row per configuration, fastest first.

    Columns: the configuration (backend, option, model, weights, gpu, host, devices at once); medians over
    runs of what `runs` has; mean and 95 % t-interval (half width) over runs of output_tokens_per_s as
    output_tokens_per_s and interval; acceptance_rate (NaN where nothing is drafted), runs, failed
    requests, backend_version and measured (start) of the last run.
    """
    each = runs(requests)
    grouped = each.groupby(schema.CONFIGURATION, as_index=False, sort=True)
    rate = grouped["output_tokens_per_s"].agg(
        output_tokens_per_s="mean", interval=metrics.t_interval, runs="count"
    )
    total = grouped.agg(
        **_each("sum", "failed", "drafted_tokens", "accepted_tokens"),
        **_each("last", "backend_version"),
        measured=("started", "max"),
    )
    table = grouped[MEDIANS].median().merge(rate, on=schema.CONFIGURATION)
    table = table.merge(total, on=schema.CONFIGURATION)
    accepted = metrics.acceptance_rate(table["accepted_tokens"], table["drafted_tokens"])
    table = table.assign(acceptance_rate=accepted)
    return table.sort_values("output_tokens_per_s", ascending=False, ignore_index=True)


def settings(requests):
    """[((gpu, model, weights), its requests)], the setting with the most configurations first, real weights
    before synthetic ones."""

    def order(group):
        (_, _, weights), rows = group
        return weights == "synthetic", -len(rows[["backend", "option"]].drop_duplicates())

    return sorted(requests.groupby(schema.SETTING, sort=True), key=order)


def pairs(requests):
    """Pairs of the overhead experiment on the machine in focus, the engine's own loop and the harness on the
    same prompt: one row per pair; columns the configuration, run_id, pair, prompt, cost (harness e2e / own
    loop's e2e - 1).

    A pair with a failure, or with two rows of the same kind, is left out.
    """
    rows = machines.here(requests, "overhead")
    rows = rows[rows["error"] == ""]
    rows = rows.assign(pair=(rows["request"] - 1) // 2, harness=rows["ttft_s"].notna())
    keys = [*schema.CONFIGURATION, "run_id", "pair", "prompt"]
    wide = rows.pivot_table(index=keys, columns="harness", values="e2e_s", aggfunc="first")
    wide = wide.reindex(columns=[False, True]).dropna()
    wide = wide.assign(cost=wide[True] / wide[False] - 1).reset_index()
    return wide[[*keys, "cost"]].rename_axis(columns=None)


def median_interval(values, confidence=0.95):
    """(low, high) of the distribution-free interval of the median, from order statistics; NaN for fewer than
    six values."""
    from scipy.stats import quantile_test

    if not len(values):
        return np.nan, np.nan
    return tuple(quantile_test(np.asarray(values, dtype=float), p=0.5).confidence_interval(confidence))


def overhead_summary(requests):
    """What measuring costs: one row per configuration of the overhead experiment, dearest first; columns
    pairs, median, low, high (fractions, 95 % interval of the median)."""
    each = pairs(requests).groupby(schema.CONFIGURATION)["cost"]
    rows = [(*key, len(costs), costs.median(), *median_interval(costs)) for key, costs in each]
    table = pd.DataFrame(rows, columns=[*schema.CONFIGURATION, "pairs", "median", "low", "high"])
    return table.sort_values("median", ascending=False, ignore_index=True)
