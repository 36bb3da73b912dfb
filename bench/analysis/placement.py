"""What engines make of where a machine's two processors lie, and what memory gives them there.

`states` reads data/core_placement.csv. In the runs the placement of each request is known from the probes on
both sides of it (`bench.observations.placement`).
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from bench import inputs
from bench.analysis import latency, statistics
from bench.observations import derived
from bench.observations.placement import APART, NEAR

NEAR_AT_MOST_S = 200e-9
PLACE = ["gpu", "host", "probe_ways", "placement"]


def states(table: pd.DataFrame | None = None) -> pd.DataFrame:
    """The rows of data/core_placement.csv in two states: `near`, where a word goes from one processor to the
    other and back within NEAR_AT_MOST_S, and `apart`.

    One row per state that was seen, by name; columns samples, and medians of one_core_bytes_per_s,
    two_cores_bytes_per_s and round_trip_s.
    """
    table = inputs.table("core_placement") if table is None else table
    state = (table["round_trip_s"] <= NEAR_AT_MOST_S).map({True: NEAR, False: APART})
    measured = ["one_core_bytes_per_s", "two_cores_bytes_per_s", "round_trip_s"]
    medians = table[measured].groupby(state.rename("state")).median()
    return medians.assign(samples=state.value_counts())


def peaks(requests: pd.DataFrame) -> pd.DataFrame:
    """What memory gives in each placement, and how many latency requests lay in it, on machines with two.

    One row per machine, ways to read memory that the probe had (probe_ways) and placement, where it is empty
    for requests between probes of different placements; columns PLACE, peak_bytes_per_s (the best probe;
    empty where MBU is taken against none), runs, requests.
    """
    rows = requests[(requests["experiment"] == "latency") & (requests["placements"] == 2)]
    return rows.groupby(PLACE, as_index=False).agg(
        peak_bytes_per_s=("bandwidth_bytes_per_s", "max"),
        runs=("run_id", "nunique"),
        requests=("request", "size"),
    )


def scatter(requests: pd.DataFrame) -> pd.DataFrame:
    """How much MBU scatters from run to run, with and without the placement, on machines with two.

    One row per machine; columns gpu, host, pooled (standard deviation of log(MBU) within configurations and
    versions, each run against its own best probe whatever the placement), runs, stratified (within
    configuration, version and placement, against that placement's peak), values (of a run and placement).
    """
    rows = requests[(requests["experiment"] == "latency") & (requests["error"] == "")]
    rows = rows[(rows["placements"] == 2) & (rows["mbu"].groupby(rows["run_id"]).transform("max") > 0)]
    found = []
    for (gpu, host), own in rows.groupby(["gpu", "host"]):
        best = derived.derive(own.assign(bandwidth_bytes_per_s=own["best_probe_bytes_per_s"]))
        each, cells = latency.runs(best), latency.runs(own, strata=True)
        within = _within(each, latency.VERSIONED), _within(cells, [*latency.VERSIONED, "placement"])
        found.append((gpu, host, within[0], len(each), within[1], len(cells)))
    return pd.DataFrame(found, columns=["gpu", "host", "pooled", "runs", "stratified", "values"])


def _within(runs: pd.DataFrame, keys: Sequence[str]) -> float:
    """Standard deviation of log(MBU) of `runs` within groups of equal `keys`, over all groups."""
    logs = np.log(runs["mbu"])
    groups = [runs[key] for key in keys]
    left = logs - logs.groupby(groups).transform("mean")
    return float(np.sqrt((left**2).sum() / (logs.count() - logs.groupby(groups).ngroups)))


def effects(requests: pd.DataFrame) -> pd.DataFrame:
    """What the placement of the processors does to a decode step, from latency runs that met both.

    One row per configuration and version with derived.ENOUGH_RUNS such runs, the one that gains most first;
    columns latency.VERSIONED, runs, near and apart (requests), ratio (TPOT apart over TPOT near, geometric
    mean over runs, each compared with itself), low and high (its interval over runs; 95 % for all rows
    together, Bonferroni).
    """
    found = (
        within_runs(requests)
        .groupby(latency.VERSIONED, as_index=False)
        .filter(lambda runs: len(runs) >= derived.ENOUGH_RUNS)
    )
    if found.empty:
        return pd.DataFrame(columns=[*latency.VERSIONED, "runs", NEAR, APART, "ratio", "low", "high"])
    grouped = found.sort_values("started", kind="stable").groupby(latency.VERSIONED)
    confidence = 1 - (1 - statistics.CONFIDENCE) / grouped.ngroups
    table = grouped.agg(
        runs=("run_id", "count"),
        near=(NEAR, "sum"),
        apart=(APART, "sum"),
        interval=("log_ratio", lambda values: statistics.mean_interval(values, confidence)),
    )
    bounds = np.exp(np.array(table.pop("interval").tolist()))
    table[["ratio", "low", "high"]] = bounds
    return table.reset_index().sort_values("ratio", kind="stable", ignore_index=True)


def within_runs(requests: pd.DataFrame) -> pd.DataFrame:
    """The latency runs that met both placements: one row per run; columns latency.VERSIONED, run_id,
    started, near and apart (requests), log_ratio (of the mean TPOT apart to that near)."""
    rows = requests[(requests["experiment"] == "latency") & (requests["placement"] != "")]
    keys = [*latency.VERSIONED, "run_id", "started"]
    cells = rows.dropna(subset="tpot_s").groupby([*keys, "placement"])["tpot_s"].agg(["mean", "count"])
    both = cells.unstack("placement").reindex(
        columns=pd.MultiIndex.from_product([["mean", "count"], [NEAR, APART]])
    )
    both = both.dropna()
    counts = both["count"].astype(int)
    log_ratio = np.log(both[("mean", APART)] / both[("mean", NEAR)])
    return counts.assign(log_ratio=log_ratio).rename_axis(columns=None).reset_index()
