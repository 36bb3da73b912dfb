"""The share of requests that do something, bounded over runs: requests of one run are not independent.

A run's requests share its moment of the machine, so a run has a share of its own about that of all runs
(beta-binomial). How alike they are is the intraclass correlation, pooled over all levels of a machine, for
three runs of one level say nothing of it.
"""

import functools
from collections.abc import Callable, Sequence

import numpy as np
from scipy import optimize, stats

FEWEST_RUNS = 3  # with fewer it is not known how much runs differ
CORRELATION_LEVEL = 0.8  # the correlation's upper bound holds so often
# Correlation where no level of a machine has hits and misses in several runs: the largest that the proof has.
UNKNOWN = 0.2
TAIL = (1 - 0.95) / 2  # that each bound leaves out
MOST = 0.99  # beyond it a run is one request


def correlation(levels: list[list[tuple[int, int]]]) -> float:
    """Upper bound (CORRELATION_LEVEL) of the intraclass correlation of requests of one run, at least 0.

    `levels` are those of one machine; of each the (hits, requests) of its runs. From the ratio of the mean
    squares between and within runs (Searle, Linear Models, 1971: exact for normal values); levels without
    hits or without misses have neither. UNKNOWN where no level has several runs and both.
    """
    between = within = freedom_between = freedom_within = usual = 0.0
    for runs in levels:
        hits, counts = np.array([run for run in runs if run[1] > 0], dtype=float).reshape(-1, 2).T
        total, k = counts.sum(), len(counts)
        if k < 2 or total <= k or not 0 < hits.sum() < total:
            continue
        shares, share = hits / counts, hits.sum() / total
        # Weighted by how much a share of that size can scatter, so that no level outweighs the others.
        scale = share * (1 - share)
        between += (counts * (shares - share) ** 2).sum() / scale
        within += (counts * shares * (1 - shares)).sum() / scale
        usual += total - (counts**2).sum() / total
        freedom_between += k - 1
        freedom_within += total - k
    if not freedom_between or not within:
        return UNKNOWN
    usual /= freedom_between  # requests per run
    ratio = between / freedom_between / (within / freedom_within)
    ratio /= stats.f.ppf(1 - CORRELATION_LEVEL, freedom_between, freedom_within)
    bound = (ratio - 1) / (ratio - 1 + usual)
    return float(np.clip(np.ceil(100 * bound) / 100, 0, MOST))  # hundredths: many levels share their bounds


def interval(runs: tuple[tuple[int, int], ...], correlation: float) -> tuple[float, float, float]:
    """(share, low, high) of the (hits, requests) of each of `runs`; low and high NaN for fewer than
    FEWEST_RUNS, all NaN for no requests.

    Exact bounds of the total over beta-binomial runs, as Clopper and Pearson's (1934) are over binomial
    requests, which they equal without correlation.
    """
    runs = [run for run in runs if run[1] > 0]
    hits, total = (int(sum(column)) for column in zip(*runs)) if runs else (0, 0)
    if not total:
        return np.nan, np.nan, np.nan
    if len(runs) < FEWEST_RUNS:
        return hits / total, np.nan, np.nan
    counts = tuple(sorted(int(count) for _, count in runs))
    return hits / total, *_bounds(hits, counts, correlation, TAIL)


@functools.lru_cache(maxsize=100_000)
def _bounds(hits: int, counts: tuple[int, ...], correlation: float, tail: float) -> tuple[float, float]:
    """(low, high) of the share of which there were `hits` in runs of so many requests each."""
    low = _bound(lambda share: _chances(share, correlation, counts)[hits:].sum() - tail) if hits else 0.0
    high = (
        _bound(lambda share: tail - _chances(share, correlation, counts)[: hits + 1].sum())
        if hits < sum(counts)
        else 1.0
    )
    return low, high


def _bound(excess: Callable[[float], float]) -> float:
    """The share at which `excess`, which grows with it, is zero."""
    return float(optimize.brentq(excess, 1e-9, 1 - 1e-9, xtol=1e-6))


def _chances(share: float, correlation: float, counts: Sequence[int]) -> np.ndarray:
    """Probabilities of 0, 1, … hits in all of runs with so many requests each."""
    chances = np.ones(1)
    for count in counts:
        k = np.arange(count + 1)
        if correlation < 1e-6:
            own = stats.binom.pmf(k, count, share)
        else:
            spread = 1 / correlation - 1
            own = stats.betabinom.pmf(k, count, share * spread, (1 - share) * spread)
        chances = np.convolve(chances, own)
    return chances
