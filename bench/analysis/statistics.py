"""Intervals over repeats of one thing, bounds of percentiles, and shares.

Configurations are compared by `comparison`. Runs of one sitting resemble their neighbours, and few of them
are measured, so Student's interval is too narrow. Here the variance of the mean comes from the slow movements
of the series alone (its lowest cosines: Lazarus, Lewis, Stock and Watson, *HAR Inference: Recommendations for
Practice*, JBES 36(4), 2018), and the critical value is the one whose exact coverage, averaged over a lag-1
correlation of 0 and one of 0.3, is the confidence that was asked for. `bench.analysis.proof` counts how often
the intervals hold.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from scipy import fft, linalg, optimize, stats

CONFIDENCE = 0.95
# The lag-1 correlations of neighbouring runs over which coverage is averaged, and up to which it is promised.
CORRELATIONS = 0.0, 0.3
# What MLPerf takes for a percentile: 99 % confidence, and one request beyond the value that is shown
# (mlcommons/inference, loadgen/early_stopping.cc).
MLPERF = {"confidence": 0.99, "beyond": 1}
NODES, NODE_WEIGHTS = np.polynomial.legendre.leggauss(200)
# One figure of one series, or an array of them where `values` holds several series.
Figure: TypeAlias = Any


def contrasts(runs: int) -> int:
    """How many cosines the variance of the mean is taken from: all for four runs, three for five to eight.

    With fewer the interval depends less on the correlation, and is wider; this many keep the exact coverage
    of the mean between 93 and 97 % for correlations from 0 to 0.3.
    """
    return min(runs - 1, max(3, 1 + math.ceil(runs / 4)))


def _contrast_squares(values: np.ndarray, count: int) -> Figure:
    """Mean square of the `count` lowest Type-II cosines along the last axis; of all: the sample variance."""
    return np.mean(fft.dct(values, norm="ortho")[..., 1 : count + 1] ** 2, axis=-1)


def correlations(runs: int, correlation: float) -> np.ndarray:
    """Correlation matrix of `runs` neighbouring runs whose memory fades as that of an AR(1) process does."""
    return linalg.toeplitz(float(correlation) ** np.arange(runs))


def coverage(runs: int, count: int, critical: float, correlation: float) -> float:
    """Exact coverage of mean ± critical · √(mean square of `count` cosines / runs), for normal AR(1) runs.

    One quadratic form of the runs is smaller than another, and the probability of that is one integral
    (Bakirov and Székely, *Student's t-test for Gaussian scale mixtures*, 2005; used so by Müller, *HAC
    Corrections for Strongly Autocorrelated Time Series*, JBES 32(3), 2014).
    """
    cosines = fft.dct(np.eye(runs), norm="ortho", axis=0)[: count + 1]
    weights = np.r_[1.0, np.full(count, -(critical**2) / count)]
    root = linalg.cholesky(correlations(runs, correlation), lower=True)
    values = linalg.eigvalsh(root.T @ (cosines.T * weights) @ cosines @ root)
    others = -values[:-1] / values[-1]
    others = others[others > 1e-12]
    angle = (NODES + 1) * np.pi / 4  # the integral over u from 0 to 1, with u = sin(angle)
    rest = np.cos(angle)
    inside = rest ** len(others) / np.sqrt(np.prod(rest[:, None] ** 2 + others, axis=1))
    return float(1 - 2 / np.pi * np.sum(NODE_WEIGHTS * np.pi / 4 * inside))


@lru_cache(maxsize=None)
def critical_value(runs: int, confidence: float = CONFIDENCE) -> float:
    """The factor whose coverage, averaged over CORRELATIONS, is `confidence`; NaN for fewer than two runs.

    From the sixth run on a tenth of the misses less is aimed at, from the eleventh on a fifth: that is what
    deciding after each run whether to add another (`bench.analysis.repeats`) costs.
    """
    if runs < 2:
        return math.nan
    aim = confidence + (1 - confidence) * (0.2 if runs > 10 else 0.1 if runs > 5 else 0.0)
    count = contrasts(runs)

    def excess(critical: float) -> float:
        return float(np.mean([coverage(runs, count, critical, r) for r in CORRELATIONS])) - aim

    return optimize.brentq(excess, 0.1, 1e4)


def standard_error(values: np.ndarray, confidence: float = CONFIDENCE) -> tuple[Figure, int]:
    """(standard error of the mean, degrees of freedom) over the last axis: runs in the order of measuring.

    The error is scaled so that Student's quantile of these degrees of freedom, times it, is `half_width`.
    """
    runs = values.shape[-1]
    if runs < 2:
        return np.full(values.shape[:-1], np.nan), 0
    count = contrasts(runs)
    scale = critical_value(runs, confidence) / stats.t.ppf((1 + confidence) / 2, count)
    return scale * np.sqrt(_contrast_squares(values, count) / runs), count


def _clean(values: Sequence[float] | pd.Series | np.ndarray) -> np.ndarray:
    """`values` as an array of floats; where it is one series, without the runs that have no value."""
    values = np.asarray(values, dtype=float)
    return values[~np.isnan(values)] if values.ndim == 1 else values


def half_width(values: Sequence[float] | np.ndarray, confidence: float = CONFIDENCE) -> Figure:
    """Half width of the interval of the mean over the last axis, in the unit of `values`; NaN for one run."""
    values = _clean(values)
    error, freedom = standard_error(values, confidence)
    return error * stats.t.ppf((1 + confidence) / 2, freedom)


def mean_interval(
    values: Sequence[float] | pd.Series | np.ndarray, confidence: float = CONFIDENCE
) -> tuple[Figure, Figure, Figure]:
    """(mean, low, high) over the last axis: one figure per run, in the order of measuring.

    The interval is NaN for one run.
    """
    values = _clean(values)
    if values.shape[-1] == 0:
        return math.nan, math.nan, math.nan
    middle, half = values.mean(axis=-1), half_width(values, confidence)
    return middle, middle - half, middle + half


def series(
    runs: pd.DataFrame, keys: Sequence[str], metric: str, order: str = "started"
) -> list[tuple[tuple, np.ndarray, pd.DataFrame]]:
    """[(key, values of `metric`, rows)] per configuration of `runs` (one row per run), sorted by `order`."""
    columns = [*keys, metric, order]
    missing = [column for column in columns if column not in runs]
    if missing:
        raise ValueError(
            f"The runs have no column {missing[0]}: pass one row per run with {', '.join(columns)}."
        )
    grouped = runs.sort_values(order, kind="stable").groupby(list(keys), dropna=False)
    return [(key, _clean(rows[metric]), rows) for key, rows in grouped]


@lru_cache(maxsize=None)
def requests_needed(share: float, confidence: float = CONFIDENCE, beyond: int = 0) -> int:
    """The fewest requests of which the slowest (the slowest but `beyond`) is at least the percentile `share`.

    The smallest n with P(Binomial(n, 1 − share) ≤ beyond) ≤ 1 − confidence, the order-statistic bound (David
    and Nagaraja, *Order Statistics*, 2003, section 7.1): 29 for p90 and 299 for p99 at 95 %; 64 and 662 with
    MLPERF.
    """
    n = beyond + 1
    while stats.binom.cdf(beyond, n, 1 - share) > 1 - confidence:
        n += 1
    return n


def share_interval(count: int, total: int, confidence: float = CONFIDENCE) -> tuple[float, float, float]:
    """(share, low, high) of `count` of `total`, after Clopper and Pearson (1934); NaN for none."""
    if total == 0:
        return math.nan, math.nan, math.nan
    found = stats.binomtest(int(count), int(total)).proportion_ci(confidence, method="exact")
    return count / total, found.low, found.high
