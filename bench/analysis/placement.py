"""Where a virtual machine's two processors lie: what they read together, and what engines make of it.

`states` reads data/core_placement.csv. `effects` knows the place from the probes between the requests of a
run: processors that lie apart read more together.
"""

import numpy as np
import pandas as pd

from bench import inputs
from bench.analysis import latency, statistics
from bench.observations import derived, store

NEAR_AT_MOST_S = 200e-9
# The highest probe of a run over the lowest from which on the run has met both places: of neighbours and of
# processors apart they differ by 1.4 to 1.6, probes of one place by a tenth.
FLIPPED = 1.3


def states(table=None):
    """The rows of data/core_placement.csv in two states: `near`, where a word goes from one processor to the
    other and back within NEAR_AT_MOST_S, and `apart`.

    One row per state that was seen, by name; columns samples, and medians of one_core_bytes_per_s,
    two_cores_bytes_per_s and round_trip_s.
    """
    table = inputs.table("core_placement") if table is None else table
    state = (table["round_trip_s"] <= NEAR_AT_MOST_S).map({True: "near", False: "apart"})
    measured = ["one_core_bytes_per_s", "two_cores_bytes_per_s", "round_trip_s"]
    medians = table[measured].groupby(state.rename("state")).median()
    return medians.assign(samples=state.value_counts())


def effects(requests):
    """What the place of the processors does to a decode step, from latency runs that met both places.

    One row per configuration and version with derived.ENOUGH_RUNS such runs, the one that gains most first;
    columns latency.VERSIONED, runs, near and apart (requests), ratio (TPOT apart over TPOT near, geometric
    mean over runs, each compared with itself), low and high (its interval over runs; 95 % for all rows
    together, Bonferroni), and bandwidth (the probes' ratio, geometric mean over runs).
    """
    found = (
        within_runs(requests)
        .groupby(latency.VERSIONED, as_index=False)
        .filter(lambda runs: len(runs) >= derived.ENOUGH_RUNS)
    )
    if found.empty:
        return pd.DataFrame(columns=[*latency.VERSIONED, *"runs near apart ratio low high bandwidth".split()])
    grouped = found.sort_values("started", kind="stable").groupby(latency.VERSIONED)
    confidence = 1 - (1 - statistics.CONFIDENCE) / grouped.ngroups
    table = grouped.agg(
        runs=("run_id", "count"),
        near=("near", "sum"),
        apart=("apart", "sum"),
        interval=("log_ratio", lambda values: statistics.mean_interval(values, confidence)),
        bandwidth=("log_bandwidth", lambda values: np.exp(values.mean())),
    )
    bounds = np.exp(np.array(table.pop("interval").tolist()))
    table[["ratio", "low", "high"]] = bounds
    return table.reset_index().sort_values("ratio", kind="stable", ignore_index=True)


def within_runs(requests):
    """The latency runs that met both places: one row per run; columns latency.VERSIONED, run_id,
    started, near and apart (requests), log_ratio (of the mean TPOT apart to that near) and log_bandwidth (of
    the probes)."""
    rows = requests[requests["experiment"] == "latency"]
    folder, found = requests.attrs.get("folder"), []
    for (*configuration, run, started), own in rows.groupby([*latency.VERSIONED, "run_id", "started"]):
        _, sidecar = store.read(store.path(run, folder=folder))
        effect = _effect(own.sort_values("request"), sidecar)
        if effect:
            found.append([*configuration, run, started, *effect])
    names = "run_id started near apart log_ratio log_bandwidth".split()
    return pd.DataFrame(found, columns=[*latency.VERSIONED, *names])


def _effect(rows, sidecar):
    """(near, apart, log_ratio, log_bandwidth) of one run; None where it did not meet both places.

    A request counts where the probes before and after it agree.
    """
    probes = np.array(sidecar["bandwidth_probes_bytes_per_s"])
    shares = np.array(sidecar.get("probe_cpu_shares") or [])
    # Without shares (a GPU's, older ones) readers may have been on one core: it looks like another place.
    if len(probes) != len(rows) + 1 or len(shares) != len(probes):
        return None
    alone = shares >= derived.ALONE
    if not alone.any() or probes[alone].max() < FLIPPED * probes[alone].min():
        return None
    apart = probes > np.sqrt(probes[alone].min() * probes[alone].max())
    known = alone[:-1] & alone[1:] & (apart[:-1] == apart[1:]) & rows["tpot_s"].notna().to_numpy()
    far, close = rows["tpot_s"][known & apart[1:]], rows["tpot_s"][known & ~apart[1:]]
    if far.empty or close.empty:
        return None
    rise = np.log(probes[alone & apart].mean() / probes[alone & ~apart].mean())
    return len(close), len(far), np.log(far.mean() / close.mean()), rise
