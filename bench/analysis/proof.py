"""How often the intervals of this study hold, counted on simulated studies: `python -m bench.analysis.proof`.

The truth is known where the runs are made up. Each study has runs whose neighbours are correlated (AR(1)),
the methods of `bench.analysis` say what they make of them, and the share that is right is counted. Writes
`data/proof/coverage.csv`, and beside it which modules it holds for; exits with 1 where a promise is broken.
"""

import argparse
import hashlib
import itertools
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from bench.analysis import ranking, repeats, statistics

ROOT = Path(__file__).parents[2]
FILE = ROOT / "data" / "proof" / "coverage.csv"
MODULES = [Path(module.__file__).relative_to(ROOT).as_posix() for module in (statistics, repeats, ranking)]
MODULES.append(Path(__file__).relative_to(ROOT).as_posix())
RUNS = 3, 5, 10
CORRELATIONS = 0.0, 0.3, 0.6
SPREADS = 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.08, 0.12  # standard deviation of runs over their mean
SPREAD = 0.05
REQUESTS = 9
COLUMNS = (
    "quantity method runs scatter spread correlation studies "  # what was simulated
    "share share_low share_high width runs_used"  # what came of it
).split()
MEAN, MEDIAN, RATIO, TOLD = "mean", "median", "ratio of two", "told apart of ten equal ones"
BEST = "best of ten among the leaders"
OURS, STUDENT, BOOTSTRAP = "low cosines", "Student's t", "hierarchical bootstrap"
HOLM, HSU = "Holm", "Hsu"
PROMISE = 0.93, 0.97
NORMAL, SKEWED, SPEEDS = "normal", "skewed", "two speeds"


def simulate(random, shape, correlation, scatter=NORMAL, spread=SPREAD):
    """Runs along the last axis, of mean 1 and standard deviation `spread`; normal ones are an AR(1) process.

    SKEWED runs are log-normal (shape 0.6) over such a process. Those of two SPEEDS have two equally likely
    speeds, two spreads apart; a run keeps the speed of the one before with the probability `correlation`,
    else it draws again; a fifth of `spread` lies upon that as normal scatter.
    """
    draws = random.standard_normal(shape)
    if scatter == SPEEDS:
        keeps = random.random(shape) < correlation
        state = random.integers(0, 2, shape)
        for n in range(1, shape[-1]):
            state[..., n] = np.where(keeps[..., n], state[..., n - 1], state[..., n])
        return 1 + (state - 0.5) * 2 * spread + draws * spread / 5
    for n in range(1, shape[-1]):
        draws[..., n] = correlation * draws[..., n - 1] + np.sqrt(1 - correlation**2) * draws[..., n]
    if scatter == SKEWED:
        skewed = np.exp(0.6 * draws)
        mean, deviation = np.exp(0.18), np.sqrt((np.exp(0.36) - 1) * np.exp(0.36))
        return 1 + spread * (skewed - mean) / deviation
    return 1 + spread * draws


def student(values):
    """(low, high) of Student's interval of the mean over the last axis."""
    runs = values.shape[-1]
    half = stats.t.ppf(0.975, runs - 1) * values.std(axis=-1, ddof=1) / np.sqrt(runs)
    return values.mean(axis=-1) - half, values.mean(axis=-1) + half


def bootstrap(values, random, resamples=400, requests=REQUESTS):
    """(low, high) of the percentile interval of the mean over the last axis, from a hierarchical bootstrap.

    Runs, and requests within them, are drawn again. The requests of a run scatter around it as much as runs
    do, and their mean is the run's figure.
    """
    studies, runs = values.shape
    within = SPREAD * random.standard_normal((studies, runs, requests))
    each = values[:, :, None] + within - within.mean(axis=2, keepdims=True)
    bounds = []
    for study in each:
        chosen = random.integers(0, runs, (resamples, runs, 1))
        means = study[chosen, random.integers(0, requests, (resamples, runs, requests))].mean(axis=(1, 2))
        bounds.append(np.quantile(means, [0.025, 0.975]))
    return np.array(bounds).T


def _row(quantity, method, runs, correlation, right, width, scatter=NORMAL, spread=SPREAD, runs_used=None):
    """One row of the results from `right` (a Boolean per study) and `width` (half width over the mean)."""
    share, low, high = statistics.share_interval(right.sum(), len(right))
    used = runs if runs_used is None else runs_used
    values = quantity, method, str(runs), scatter, spread, correlation, len(right), share, low, high
    return dict(zip(COLUMNS, (*values, float(np.mean(width)), float(np.mean(used)))))


def _covers(low, high):
    """Whether each interval holds 1."""
    return (low <= 1) & (high >= 1)


def fixed(random, studies, runs, correlation):
    """Rows for studies of a fixed number of runs: mean, median, ratio, Student's interval, the bootstrap."""
    rows = []
    for scatter in (NORMAL, SKEWED, SPEEDS):
        values = simulate(random, (studies, runs), correlation, scatter)
        for method, (low, high) in ((OURS, statistics.mean_interval(values)[1:]), (STUDENT, student(values))):
            rows.append(_row(MEAN, method, runs, correlation, _covers(low, high), (high - low) / 2, scatter))
    values = simulate(random, (studies, runs), correlation)
    _, low, high = statistics.median_interval(values)
    rows.append(_row(MEDIAN, OURS, runs, correlation, _covers(low, high), (high - low) / 2))
    low, high = bootstrap(values[:1000], random)
    rows.append(_row(MEAN, BOOTSTRAP, runs, correlation, _covers(low, high), (high - low) / 2))
    middle, half, _ = statistics.log_ratio(
        values, simulate(random, values.shape, correlation, spread=SPREAD / 2)
    )
    return [*rows, _row(RATIO, OURS, runs, correlation, np.abs(middle) <= half, half)]


def automatic(random, studies, correlation, spread, budget=repeats.BUDGET):
    """One row: how often the interval holds that is left where `REPEATS=auto` ends."""
    values = simulate(random, (studies, budget), correlation, spread=spread)
    low, high = np.full((2, studies), np.nan)
    used = np.zeros(studies, dtype=int)
    for runs in range(repeats.FEWEST, budget + 1):
        ends = (used == 0) & (repeats.enough(values[:, :runs]) | (runs == budget))
        _, low[ends], high[ends] = statistics.mean_interval(values[ends, :runs])
        used[ends] = runs
    width = (high - low) / (high + low)
    return _row(MEAN, OURS, "auto", correlation, _covers(low, high), width, spread=spread, runs_used=used)


def told_apart(random, studies, runs, correlation, configurations=10):
    """Two rows for ten equal configurations of 1 to 10 % spread: how often any two of them are told apart,
    and how often the last, which is as good as the others, is left among those that may be the best."""
    spreads = np.geomspace(0.01, 0.1, configurations)[:, None]
    values = 1 + spreads * (simulate(random, (studies, configurations, runs), correlation, spread=1) - 1)
    first, second = np.array(list(itertools.combinations(range(configurations), 2))).T
    middle, half, p = statistics.log_ratio(values[:, first], values[:, second])
    # Two are told apart if the smallest of the p-values is: Holm's first step.
    wrong = p.min(axis=1) * p.shape[1] < 1 - statistics.CONFIDENCE
    last = second == configurations - 1
    beaten = (middle[:, last] > 0) & ranking.beats(p[:, last], configurations)
    left = ~beaten.any(axis=1)
    return [
        _row(TOLD, HOLM, runs, correlation, wrong, half, spread=np.nan),
        _row(BEST, HSU, runs, correlation, left, half, spread=np.nan),
    ]


def coverage(studies=10_000, seed=1):
    """All results; one row per quantity, method, number of runs, scatter, spread and correlation.

    Columns COLUMNS: share of `studies` whose interval holds the truth (of TOLD: that tell two equal ones
    apart), its Clopper-Pearson interval, width (mean half width over the mean), runs_used (mean).
    """
    random = np.random.default_rng(seed)
    rows = []
    for correlation in CORRELATIONS:
        for runs in RUNS:
            rows += fixed(random, studies, runs, correlation)
            rows += told_apart(random, max(studies // 5, 1), runs, correlation)
        rows += [automatic(random, studies, correlation, spread) for spread in SPREADS]
    return pd.DataFrame(rows, columns=COLUMNS)


def broken(results):
    """The rows of `coverage` outside PROMISE: intervals of the mean of normal runs, correlations up to
    0.3."""
    promised = (results["quantity"] == MEAN) & (results["method"] == OURS) & (results["scatter"] == NORMAL)
    promised &= results["correlation"] <= statistics.CORRELATIONS[-1]
    return results[promised & ~results["share"].between(*PROMISE)]


def table(results):
    """`coverage` for a page.

    One row per quantity, method, number of runs, scatter and spread; columns 0.0, 0.3 and 0.6 (the share at
    that correlation), width and runs_used without correlation, studies.
    """
    keys = "quantity method runs scatter spread".split()
    shares = results.set_index([*keys, "correlation"])["share"].unstack(sort=False)
    plain = results[results["correlation"] == 0].set_index(keys)[["width", "runs_used", "studies"]]
    return shares.join(plain).reset_index()


def digests():
    """{path: SHA-256} of the modules that the results hold for."""
    return {path: hashlib.sha256((ROOT / path).read_bytes()).hexdigest() for path in MODULES}


def load(file=FILE):
    """The committed results, as `coverage` gives them."""
    return pd.read_csv(file, dtype={"runs": str})


def main():
    """Simulate, print the table, write it; the exit status is 1 where a promise is broken."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.analysis.proof", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument(
        "--studies", type=int, default=10_000, help="simulated studies per row (default: 10000)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers (default: 1)")
    chosen = parser.parse_args()
    results = coverage(chosen.studies, chosen.seed)
    FILE.parent.mkdir(parents=True, exist_ok=True)
    results.round(4).to_csv(FILE, index=False, lineterminator="\n")
    record = {"modules": digests(), "studies": chosen.studies, "seed": chosen.seed}
    FILE.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
    print(table(results).round(3).to_string(index=False))
    wrong = broken(results)
    print(
        f"{len(wrong)} intervals outside 93 to 97 %."
        if len(wrong)
        else "All promised intervals hold in 93 to 97 %."
    )
    return int(len(wrong) > 0)


if __name__ == "__main__":
    sys.exit(main())
