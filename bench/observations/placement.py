"""Where a machine's processors lie beside each request, near each other or apart: by bandwidth probes alone.

Virtual processors that lie near each other share one way to memory and read little more together than one of
them alone; those that lie apart read up to 1.6 times as much. The hypervisor moves them and says nothing of
it, but the probes before and after a request do.
"""

import functools

import numpy as np
import pandas as pd

from bench.observations import derived

NEAR, APART = "near", "apart"
LEVEL = 0.025  # share of machines with one state that `split` takes for two; at most 5 % are promised
# Placements differ by 1.35 to 1.6 where they have been seen: states that differ by less are no placements.
DISTINCT = 1.2
# Standard deviations from the middle of a cluster, towards the other, beyond which a probe is not of it.
BEYOND = 2.5
DRAWS = 2000  # of the dip of one state
# Experiments that answer one request at a time, each between two probes.
EXPERIMENTS = "latency", "served"
# Probes of one machine by as many readers that read memory in as many ways; others are not comparable.
ALIKE = ["gpu", "host", "threads", "probe_ways"]


def stratified(rows: pd.DataFrame, sidecars: list[dict]) -> pd.DataFrame:
    """`rows` of runs with placements, placement, and the peak of that placement as bandwidth_bytes_per_s.

    A row's `file` is the place of its run in `sidecars`. placements: 2 where the machine's probes are two
    clusters (`split`) and the request lies between two of them, else 1 (the whole is one stratum). placement:
    NEAR or APART where the probes on both sides agree; empty else, and where placements is 1. The peak is the
    best probe of that placement on that machine, in bytes/s. A request between probes of different placements
    counts in neither stratum and has no peak. A peak that was empty, or that of a cache, stays as it is.
    """
    rows = rows.assign(placements=1, placement="")
    runs = rows.drop_duplicates("file").set_index("file")
    probes = {file: pinned_probes(sidecars[file]) for file in runs.index}
    for _, alike in runs.groupby(ALIKE, dropna=False):
        of_runs = [probes[file] for file in alike.index]
        found = split(of_runs)
        if found is None:
            continue
        every = np.concatenate(of_runs)
        states = found.placements(every)
        peaks = {state: every[states == state].max() for state in (NEAR, APART)}
        for file in alike.index[alike["experiment"].isin(EXPERIMENTS)]:
            own = rows[rows["file"] == file].sort_values("request").index
            beside = found.placements(probes[file])
            if len(beside) != len(own) + 1:
                continue
            rows.loc[own, "placements"] = 2
            rows.loc[own, "placement"] = np.where(beside[:-1] == beside[1:], beside[1:], "")
            if alike.at[file, "bandwidth_bytes_per_s"] > 0 and not derived.in_cache(sidecars[file]):
                rows.loc[own, "bandwidth_bytes_per_s"] = rows.loc[own, "placement"].map(peaks)
    return rows


def counted(requests: pd.DataFrame) -> pd.DataFrame:
    """`requests` (`store.load`) without those that lie between probes of different placements."""
    return requests[(requests["placements"] < 2) | (requests["placement"] != "")]


def pinned_probes(sidecar: dict) -> np.ndarray:
    """The run's probes of memory in bytes/s, in the order of measuring; NaN where a reader was interrupted.

    Empty where the sidecar does not say how much of their cores the readers had, as of a GPU or in older
    files: two that share a core read as little as two processors that lie near each other.
    """
    probes = np.array(sidecar["bandwidth_probes_bytes_per_s"], dtype=float)
    shares = np.array(sidecar.get("probe_cpu_shares") or [], dtype=float)
    return np.where(shares >= derived.ALONE, probes, np.nan) if len(shares) == len(probes) else probes[:0]


class Split:
    """Two clusters of a machine's probes, logarithms of their bytes/s, of which the lower one is near.

    Each is a median with the scatter of its side towards the other: a probe that something disturbed reads
    too little, so the lower sides have tails.
    """

    def __init__(self, logs: np.ndarray) -> None:
        cut = _cut(logs)
        clusters = logs[logs <= cut], logs[logs > cut]
        self.centres = np.array([np.median(cluster) for cluster in clusters])
        half = np.ptp(self.centres) / 2 + 1e-9
        inner = [cluster[abs(cluster - self.centres.mean()) <= half] for cluster in clusters]
        scatter = np.sqrt([((each - centre) ** 2).mean() for each, centre in zip(inner, self.centres)])
        self.scatter = np.maximum(scatter, 1e-3)  # a thousandth, where all are equal

    def placements(self, probes: np.ndarray) -> np.ndarray:
        """NEAR or APART for each of `probes` in bytes/s; empty where it is NaN, where it lies beyond both
        clusters, or where it may be of either: the processors may have moved while memory was read."""
        logs = np.log(np.asarray(probes, dtype=float))
        near = logs <= self.centres[0] + BEYOND * self.scatter[0]
        apart = logs >= self.centres[1] - BEYOND * self.scatter[1]
        return np.select([near & ~apart, apart & ~near], [NEAR, APART], "")


def split(runs: list[np.ndarray]) -> Split | None:
    """The two states of a machine, from the probes of each of its `runs` in bytes/s; None where they are not
    two clusters, and for fewer runs than derived.ENOUGH_RUNS.

    Hartigan's dip test of one mode (Hartigan & Hartigan 1985) at LEVEL, on log(bytes/s). It holds for any
    shape with one mode, and draws the dip for as many independent probes as these are worth: those of one run
    are alike (design effect, Kish 1965: 1 + (probes per run - 1) × intraclass correlation).
    """
    runs = [np.log(run[run > 0]) for run in runs]
    runs = [run for run in runs if len(run)]
    logs = np.concatenate(runs) if runs else np.empty(0)
    worth = int(_independent(runs)) if len(logs) else 0
    if len(runs) < derived.ENOUGH_RUNS or worth < 4:  # the dip of fewer is always the same
        return None
    import diptest  # only where a machine's runs are read together: engines' own environments lack it

    if diptest.dipstat(logs) <= _largest_dip(worth):
        return None
    found = Split(logs)
    apart = np.exp(np.diff(found.centres)[0]) >= DISTINCT
    return found if apart and list(found.placements(np.exp(found.centres))) == [NEAR, APART] else None


@functools.cache
def _largest_dip(count: int) -> float:
    """The dip that `count` values of one state exceed with a probability of LEVEL: uniform ones, of all
    shapes with one mode those of the largest dip."""
    import diptest

    draws = np.random.default_rng(0).uniform(size=(DRAWS, count))
    return np.quantile([diptest.dipstat(draw) for draw in draws], 1 - LEVEL)


def _independent(runs: pd.Series) -> float:
    """How many independent values the values of `runs` are worth, by their intraclass correlation."""
    counts = np.array([len(run) for run in runs])
    total, k = counts.sum(), len(runs)
    if k == 1 or total == k:
        return total
    means = np.array([run.mean() for run in runs])
    grand = np.concatenate(runs).mean()
    within = sum(((run - run.mean()) ** 2).sum() for run in runs) / (total - k)
    between = (counts * (means - grand) ** 2).sum() / (k - 1)
    usual = (total - (counts**2).sum() / total) / (k - 1)
    shared = max(between - within, 0) / usual
    correlation = shared / (shared + within) if shared + within else 0
    return total / (1 + ((counts**2).sum() / total - 1) * correlation)


def _cut(logs: np.ndarray) -> float:
    """The value between two clusters that leaves the least scatter within them (two means)."""
    values = np.sort(logs)
    left = np.arange(1, len(values))
    sums = np.cumsum(values)
    low, high = sums[:-1] / left, (sums[-1] - sums[:-1]) / (len(values) - left)
    best = np.argmax(left * (len(values) - left) * (high - low) ** 2)
    return values[best]
