"""Intervals, percentiles and shares: against simulation, and against formulas worked out a second time."""

import math

import numpy as np
import pandas as pd
import pytest
from builders import make_runs
from scipy import fft, stats

from bench.analysis import proof, statistics

KEYS = ["backend"]


def test_coverage_of_all_cosines_without_correlation_is_students():
    for runs in (2, 3, 5, 12):
        quantile = stats.t.ppf(0.975, runs - 1)
        assert statistics.coverage(runs, runs - 1, quantile, 0.0) == pytest.approx(0.95, abs=1e-5)


@pytest.mark.parametrize("runs, correlation", [(3, 0.3), (6, 0.9), (10, 0.3)])
def test_exact_coverage_agrees_with_simulation(runs, correlation):
    values = proof.simulate(np.random.default_rng(5), (20_000, runs), correlation)
    _, low, high = statistics.mean_interval(values)
    exact = statistics.coverage(
        runs, statistics.contrasts(runs), statistics.critical_value(runs), correlation
    )
    assert np.mean((low <= 1) & (high >= 1)) == pytest.approx(exact, abs=0.008)


@pytest.mark.parametrize("runs", [2, 3, 4, 5, 6, 8, 9, 10, 11, 14, 20])
def test_exact_coverage_of_the_mean_is_as_promised(runs):
    for correlation in statistics.CORRELATIONS:
        found = statistics.coverage(
            runs, statistics.contrasts(runs), statistics.critical_value(runs), correlation
        )
        assert 0.93 <= found <= 0.97


def test_a_drift_widens_the_interval_more_than_the_same_scatter_without():
    drift = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    mixed = [5.0, 1.0, 8.0, 3.0, 6.0, 2.0, 7.0, 4.0]
    assert statistics.half_width(drift) > 2 * statistics.half_width(mixed)


def test_one_run_has_no_interval_and_a_run_without_value_does_not_count():
    assert statistics.mean_interval([7.0])[0] == 7.0
    assert all(map(math.isnan, statistics.mean_interval([7.0])[1:] + statistics.mean_interval([])))
    whole = statistics.mean_interval([1.0, 2.0, 3.0])
    assert statistics.mean_interval([1.0, np.nan, 2.0, 3.0]) == whole
    assert statistics.mean_interval(pd.Series([1.0, None, 2.0, 3.0], dtype=object)) == whole


def test_how_many_requests_bound_a_percentile():
    assert [statistics.requests_needed(p) for p in (0.5, 0.9, 0.95, 0.99)] == [5, 29, 59, 299]
    assert [statistics.requests_needed(p, **statistics.MLPERF) for p in (0.9, 0.99)] == [64, 662]


def error_and_half(values, confidence=0.95):
    """Standard error of the mean and half width, from the lowest cosines as the module's text has them."""
    n = len(values)
    count = min(n - 1, max(3, 1 + math.ceil(n / 4)))
    cosines = [
        math.sqrt(2 / n) * sum(v * math.cos(math.pi * k * (i + 0.5) / n) for i, v in enumerate(values))
        for k in range(1, count + 1)
    ]
    half = statistics.critical_value(n, confidence) * math.sqrt(np.mean(np.square(cosines)) / n)
    return half / stats.t.ppf((1 + confidence) / 2, count), half, count


def test_how_many_cosines():
    counted = [statistics.contrasts(n) for n in (2, 3, 4, 5, 8, 9, 12, 13, 16, 17, 20)]
    assert counted == [1, 2, 3, 3, 3, 4, 4, 5, 5, 6, 6]


def test_correlations_fade_with_distance():
    assert statistics.correlations(3, 0.5) == pytest.approx(
        np.array([[1, 0.5, 0.25], [0.5, 1, 0.5], [0.25, 0.5, 1]])
    )
    assert statistics.correlations(2, 0).tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("n", [2, 3, 5, 9, 14])
def test_half_width_by_hand(n, confidence):
    values = np.random.default_rng(n).normal(100, 5, n)
    error, half, count = error_and_half(values, confidence)
    assert statistics.half_width(values, confidence) == pytest.approx(half)
    assert statistics.standard_error(values, confidence) == (pytest.approx(error), count)
    mean, low, high = statistics.mean_interval(values, confidence)
    assert (mean, low, high) == pytest.approx((values.mean(), values.mean() - half, values.mean() + half))


def test_intervals_of_many_studies_are_those_of_each():
    studies = np.random.default_rng(1).normal(100, 5, (4, 6))
    together = np.array(statistics.mean_interval(studies)).T
    assert together == pytest.approx(np.array([statistics.mean_interval(each) for each in studies]))
    error, freedom = statistics.standard_error(studies[:, :1])
    assert error.shape == (4,) and np.isnan(error).all() and freedom == 0
    assert np.isnan(statistics.half_width(studies[:, :1])).all()
    assert math.isnan(statistics.half_width([5.0])) and math.isnan(statistics.critical_value(1))
    assert all(map(math.isnan, statistics.mean_interval(np.empty((2, 0)))))
    none, low, high = statistics.mean_interval(np.empty(0))
    assert math.isnan(none) and math.isnan(low) and math.isnan(high)


@pytest.mark.parametrize(
    "confidence, runs, aim",
    [
        *((0.9, n, aim) for n, aim in ((2, 0.9), (5, 0.9), (6, 0.91), (10, 0.91), (11, 0.92))),
        (0.5, 20, 0.6),
        *((0.95, n, aim) for n, aim in ((5, 0.95), (6, 0.955), (10, 0.955), (11, 0.96))),
    ],
)
def test_more_is_aimed_at_where_auto_may_have_stopped(confidence, runs, aim):
    critical, count = statistics.critical_value(runs, confidence), statistics.contrasts(runs)
    found = [statistics.coverage(runs, count, critical, r) for r in statistics.CORRELATIONS]
    assert np.mean(found) == pytest.approx(aim, abs=1e-6)


def test_coverage_of_one_cosine_of_correlated_runs_by_simulation():
    draws = np.random.default_rng(2).standard_normal((200_000, 4))
    for n in range(1, 4):
        draws[:, n] = 0.5 * draws[:, n - 1] + math.sqrt(0.75) * draws[:, n]
    square = np.mean(fft.dct(draws, norm="ortho", axis=1)[:, 1:3] ** 2, axis=1)
    held = np.mean(np.abs(draws.mean(axis=1)) <= 3.0 * np.sqrt(square / 4))
    assert statistics.coverage(4, 2, 3.0, 0.5) == pytest.approx(held, abs=0.004)


def test_series_follow_the_order_that_is_named_and_keep_empty_keys():
    table = make_runs(a=[1.0, 2.0, np.nan, 4.0]).assign(when=[3, 2, 1, 0])
    ((key, values, rows),) = statistics.series(table, KEYS, "rate", "when")
    assert key == ("a",) and list(values) == [4.0, 2.0, 1.0] and len(rows) == 4
    table = pd.DataFrame({"backend": ["b", None, "a"], "rate": [1.0, 2.0, 3.0], "started": [1, 1, 1]})
    assert [list(values) for _, values, _ in statistics.series(table, KEYS, "rate")] == [[3.0], [1.0], [2.0]]
    ties = make_runs(a=list(range(40))).assign(started=[n % 2 for n in range(40)])
    ((_, values, _),) = statistics.series(ties, KEYS, "rate")
    assert list(values) == [*range(0, 40, 2), *range(1, 40, 2)], "runs of one moment stay as they are"
    with pytest.raises(ValueError, match="no column when: pass one row per run with backend, rate, when"):
        statistics.series(make_runs(a=[1.0]), KEYS, "rate", "when")


def test_how_many_requests_at_another_confidence():
    assert statistics.requests_needed(0.9, 0.99) == 44 and statistics.requests_needed(0.5, 0.75) == 2
    assert statistics.requests_needed(0.5, 0.5) == 1 and statistics.requests_needed(0.5, 0.75, 1) == 5


def test_clopper_and_pearsons_interval_is_that_of_beta():
    share, low, high = statistics.share_interval(3, 10, 0.8)
    assert share == 0.3 and low == pytest.approx(stats.beta.ppf(0.1, 3, 8))
    assert high == pytest.approx(stats.beta.ppf(0.9, 4, 7))
    assert statistics.share_interval(0, 10) == pytest.approx((0, 0, 0.3085), abs=1e-4)
    assert all(map(math.isnan, statistics.share_interval(0, 0)))
    assert statistics.share_interval(1, 1)[0] == 1 and statistics.share_interval(np.float64(1), 2.0)[0] == 0.5
