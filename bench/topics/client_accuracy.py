"""Accuracy of load clients: rows of `store.load_accuracy` in, numbers out."""

import pandas as pd

from bench.observations import schema, store
from bench.topics import estimates, machines
from llm_measured.core.definitions import Fields

LOAD = ["client", "version", "streams"]
ADDED = "gpu host run measured runs ttft_error_ms_interval ttft_off_ms machine".split()


def on_default_machine(table: pd.DataFrame) -> pd.DataFrame:
    """The comparison that is shown: one row per client and load, means over its repeats.

    It is on the default machine (of those in `table`), and of those with the most loads that succeeded, the
    latest, with every other one of the same versions at the same loads. Columns of `table`, and runs,
    ttft_error_ms_interval (half width of the 95 % interval over runs; empty for one run) and ttft_off_ms (the
    mean of the absolute errors: those of two runs to either side do not make up for each other).
    """
    table = machines.default_machine(table, strict=False)  # the machine of BENCH_FRONT may have compared none
    if table.empty:
        return table.assign(runs=[], ttft_error_ms_interval=[], ttft_off_ms=[])
    runs = table.assign(good=table["error"] == "").groupby("run")
    runs = runs.agg(good=("good", "sum"), measured=("measured", "first"))
    compared = {run: set(zip(*map(rows.get, LOAD))) for run, rows in table.groupby("run")}
    chosen = compared[runs.sort_values(["good", "measured"]).index[-1]]
    repeats = table[[compared[run] == chosen for run in table["run"]]].sort_values("measured")
    return pd.DataFrame([_mean(rows) for _, rows in repeats.groupby(LOAD)])


def table(requests: pd.DataFrame) -> pd.DataFrame:
    """Return the comparisons beside `requests`, of every machine that has one: rows of `on_default_machine`.

    The column machine is the label of a device and its host, as in all tables.
    """
    every = machines.labelled(store.load_accuracy(requests.attrs.get("folder")), strict=False)
    parts = [on_default_machine(rows).assign(machine=label) for label, rows in every]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[*schema.ACCURACY, *ADDED])


def _mean(rows: pd.DataFrame) -> Fields:
    """One row of the repeats of one load: means of what was measured, sums of requests and failures."""
    means = rows[schema.ACCURACY].select_dtypes("number").drop(columns=["requests", "failed"]).mean()
    mean, _, high = estimates.mean_interval(rows["ttft_error_ms"])
    lost = rows[rows["error"] != ""]
    of = f"{len(lost)} of {len(rows)} runs: " if len(lost) < len(rows) else ""
    return (
        rows.iloc[-1].to_dict()
        | means.to_dict()
        | {
            "requests": rows["requests"].sum(),
            "failed": rows["failed"].sum(),
            "error": of + lost["error"].iloc[-1] if len(lost) else "",
            "runs": len(rows),
            "ttft_error_ms_interval": high - mean,
            "ttft_off_ms": rows["ttft_error_ms"].astype(float).abs().mean(),
        }
    )
