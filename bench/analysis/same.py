"""A/A: how often one configuration, its runs dealt into two, is told apart from itself.

`python -m bench.analysis.same` prints it for the runs of this checkout. No model of the scatter is supposed:
the runs are those that were measured.
"""

import argparse

import numpy as np
import pandas as pd

from bench.analysis import latency, proof, statistics
from bench.observations import schema, store

RATE = "output_tokens_per_s"
FEWEST = 20
RESAMPLINGS = 1000
DEALT, NEIGHBOURS = "dealt at random", "one after the other"
NEIGHBOUR_COLUMNS = "correlation expected low high observed runs_measured configurations".split()
COLUMNS = "source runs_measured way runs_each resamplings told_apart low high".split()


def halves(values, size, resamplings=RESAMPLINGS, way=DEALT, seed=1):
    """Two sets of different runs out of `values`, each in the order of measuring, as (resamplings, size).

    DEALT draws both without replacement; NEIGHBOURS takes 2 · `size` neighbouring runs (the last is followed
    by the first) and cuts them in the middle, as two configurations measured one after the other are; there
    are only as many such cuts as runs. ValueError for too few runs.
    """
    values = np.asarray(values, dtype=float)
    if len(values) < 2 * size:
        raise ValueError(f"Two sets of {size} runs take {2 * size} runs, and there are {len(values)}.")
    random = np.random.default_rng(seed)
    if way == NEIGHBOURS:
        start = random.integers(0, len(values), (resamplings, 1))
        both = values[(start + np.arange(2 * size)) % len(values)]
        swap = random.random((resamplings, 1)) < 0.5
        first, second = both[:, :size], both[:, size:]
        return np.where(swap, second, first), np.where(swap, first, second)
    drawn = random.permuted(np.tile(np.arange(len(values)), (resamplings, 1)), axis=1)[:, : 2 * size]
    return values[np.sort(drawn[:, :size], axis=1)], values[np.sort(drawn[:, size:], axis=1)]


def told_apart(values, size, resamplings=RESAMPLINGS, way=DEALT, seed=1):
    """(share, low, high) of resamplings whose two sets of `size` runs are told apart, in either direction."""
    middle, half, _ = statistics.log_ratio(*halves(values, size, resamplings, way, seed))
    return statistics.share_interval(int((np.abs(middle) > half).sum()), resamplings)


def pooled(runs, keys, metric, order="started", fewest=3):
    """The runs of all configurations with at least `fewest`, each over its configuration's mean.

    It stands in for many runs of one configuration, in the order of measuring; the distance of each to its
    own mean is scaled by √(n / (n − 1)), because the mean follows its n runs.
    """
    known = runs.dropna(subset=[metric])
    own = known.groupby(list(keys), dropna=False)[metric]
    count = own.transform("count")
    around = 1 + (known[metric] / own.transform("mean") - 1) * np.sqrt(count / (count - 1).clip(lower=1))
    chosen = known.assign(around=around)[count >= fewest]
    return chosen.sort_values(order, kind="stable")["around"].to_numpy()


def table(runs, keys, metric, resamplings=RESAMPLINGS, order="started", sizes=(3, 5, 10), seed=1):
    """How often equal runs are told apart, for every configuration of `runs` with at least FEWEST runs.

    One row per source, way of dealing (DEALT, NEIGHBOURS) and number of runs on each side; columns COLUMNS:
    told_apart is the share of `resamplings`, low and high its Clopper-Pearson interval. Where no
    configuration has FEWEST runs, the source is all of them `pooled`, and says so.
    """
    sources = []
    for key, values, _ in statistics.series(runs, keys, metric, order):
        if len(values) >= FEWEST:
            words = [str(part) for part in key if part != 1]  # one device, one copy: nothing to say
            sources.append((" ".join(words), values))
    if not sources:
        sources = [
            ("all configurations, each run over its configuration's mean", pooled(runs, keys, metric, order))
        ]
    rows = []
    for name, values in sources:
        for way in (DEALT, NEIGHBOURS):
            for size in [n for n in sizes if 2 * n <= len(values)]:
                found = told_apart(values, size, resamplings, way, seed)
                rows.append((name, len(values), way, size, resamplings, *found))
    return pd.DataFrame(rows, columns=COLUMNS)


def _lag_one(each):
    """Pooled lag-1 correlation of several series, each around its own mean and in its own standard
    deviations."""
    scaled = [(v - v.mean()) / v.std(ddof=1) for v in each]
    return sum((v[1:] * v[:-1]).sum() for v in scaled) / sum((v**2).sum() for v in scaled)


def neighbours(runs, keys, metric, order="started", draws=400, seed=1):
    """How correlated neighbouring runs are, beside what simulated runs of a known correlation would show.

    One row per correlation of `proof.CORRELATIONS`; columns NEIGHBOUR_COLUMNS: expected (mean of `draws` sets
    of simulated runs, as many and as long as the real ones), low, high (the middle 95 % of them), observed.
    Series of few runs show negative correlations even where there are none, which is why both stand beside
    each other. Counts configurations of at least three runs that differ.
    """
    each = [values for _, values, _ in statistics.series(runs, keys, metric, order)]
    each = [values for values in each if len(values) >= 3 and values.std() > 0]
    if not each:
        return pd.DataFrame(columns=NEIGHBOUR_COLUMNS)
    random, rows = np.random.default_rng(seed), []
    for correlation in proof.CORRELATIONS:
        shown = [
            _lag_one([proof.simulate(random, (len(v),), correlation) for v in each]) for _ in range(draws)
        ]
        low, high = np.quantile(shown, [0.025, 0.975])
        rows.append((correlation, np.mean(shown), low, high, _lag_one(each), sum(map(len, each)), len(each)))
    return pd.DataFrame(rows, columns=NEIGHBOUR_COLUMNS)


AIM = 0.05


def sample(requests):
    """What the A/A test of the latency runs among `requests` stands on and shows, in a sentence.

    It takes FEWEST runs of one configuration and version; of fewer it says that they are too few.
    """
    runs = latency.runs(requests[(requests["experiment"] == "latency") & (requests["error"] == "")])
    keys = [*schema.CONFIGURATION, "backend_version"]
    sizes = runs.groupby(keys, dropna=False).size()
    if not len(sizes) or sizes.max() < FEWEST:
        most = int(sizes.max()) if len(sizes) else 0
        return (
            f"The sample is too small: no configuration has more than {most} runs, and an A/A test takes "
            f"{FEWEST}. What is shown in its place pools runs of all configurations."
        )
    found = table(runs, keys, RATE)
    dealt, apart = (found.loc[found["way"] == way, "told_apart"].max() for way in (DEALT, NEIGHBOURS))
    names = found["source"].nunique()
    return (
        f"{names} configuration{'s have' if names > 1 else ' has'} at least {FEWEST} runs. {RESAMPLINGS:,} "
        f"times {DEALT} into two sets, either is told apart from the other in at most {dealt:.1%}, "
        f"{'as' if dealt <= AIM else 'which is not what'} is aimed at ({AIM:.0%}); of sets measured "
        f"{NEIGHBOURS} in {apart:.1%}, of which there are only as many as runs."
    )


def main():
    """Print the table for the latency runs, and how many runs the largest configuration has."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.analysis.same", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument(
        "--results", default=None, help="folder of observations (default: that of this repository)"
    )
    parser.add_argument("--metric", default=RATE, help="column of the runs (default: output_tokens_per_s)")
    chosen = parser.parse_args()
    requests = store.load(experiment="latency", folder=chosen.results)
    runs = latency.runs(requests[requests["error"] == ""])
    keys = [*schema.CONFIGURATION, "backend_version"]
    print(sample(requests))
    print(table(runs, keys, chosen.metric).round(3).to_string(index=False))
    print(neighbours(runs, keys, chosen.metric).round(3).to_string(index=False))


if __name__ == "__main__":
    main()
