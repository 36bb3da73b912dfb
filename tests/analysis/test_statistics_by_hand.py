"""Intervals and the stopping rule against formulas worked out a second time."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import fft, stats

from bench.analysis import repeats, statistics

KEYS = ["backend"]
VALUES, OTHERS = np.array([100.0, 104.0, 99.0, 101.0, 97.0]), np.array([80.0, 90.0, 85.0])


def runs(**rates):
    """One row per run: {backend: [rate of each run]}, `started` in the order of each list."""
    rows = [(name, n, 0, rate) for name, values in rates.items() for n, rate in enumerate(values)]
    return pd.DataFrame(rows, columns=["backend", "started", "failed", "rate"])


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
@pytest.mark.parametrize("n", [3, 5, 9, 14])
def test_half_width_by_hand(n, confidence):
    values = np.random.default_rng(n).normal(100, 5, n)
    error, half, count = error_and_half(values, confidence)
    assert statistics.half_width(values, confidence) == pytest.approx(half)
    assert statistics.standard_error(values, confidence) == (pytest.approx(error), count)
    mean, low, high = statistics.mean_interval(values, confidence)
    assert (mean, low, high) == pytest.approx((values.mean(), values.mean() - half, values.mean() + half))
    middle, low, high = statistics.median_interval(values, confidence)
    wider = half * statistics.median_factor(n)
    assert (middle, high - middle, middle - low) == pytest.approx((np.median(values), wider, wider))


def test_intervals_of_many_studies_are_those_of_each():
    studies = np.random.default_rng(1).normal(100, 5, (4, 6))
    for interval in (statistics.mean_interval, statistics.median_interval):
        together = np.array(interval(studies)).T
        assert together == pytest.approx(np.array([interval(each) for each in studies]))
    error, freedom = statistics.standard_error(studies[:, :1])
    assert error.shape == (4,) and np.isnan(error).all() and freedom == 0
    assert np.isnan(statistics.half_width(studies[:, :1])).all()
    assert math.isnan(statistics.half_width([5.0])) and math.isnan(statistics.critical_value(1))
    assert all(map(math.isnan, statistics.median_interval(np.empty((2, 0)))))
    none, low, high = statistics.mean_interval(np.empty(0))
    assert math.isnan(none) and math.isnan(low) and math.isnan(high)


@pytest.mark.parametrize("n, aim", [(2, 0.9), (5, 0.9), (6, 0.91), (10, 0.91), (11, 0.92)])
def test_the_critical_value_aims_at_the_confidence(n, aim):
    critical, count = statistics.critical_value(n, 0.9), statistics.contrasts(n)
    assert np.mean([statistics.coverage(n, count, critical, r) for r in (0.0, 0.3)]) == pytest.approx(
        aim, abs=1e-7
    )


def test_coverage_of_one_cosine_of_correlated_runs_by_simulation():
    draws = np.random.default_rng(2).standard_normal((200_000, 4))
    for n in range(1, 4):
        draws[:, n] = 0.5 * draws[:, n - 1] + math.sqrt(0.75) * draws[:, n]
    square = np.mean(fft.dct(draws, norm="ortho", axis=1)[:, 1:3] ** 2, axis=1)
    held = np.mean(np.abs(draws.mean(axis=1)) <= 3.0 * np.sqrt(square / 4))
    assert statistics.coverage(4, 2, 3.0, 0.5) == pytest.approx(held, abs=0.004)


def test_the_factor_of_the_median():
    assert statistics.median_factor(1) == pytest.approx(1, abs=0.02)
    assert statistics.median_factor(2) == pytest.approx(1, abs=0.02)
    assert statistics.median_factor(4) == pytest.approx(1.092, abs=0.02)
    assert statistics.median_factor(101) == pytest.approx(1.25, abs=0.02)


def test_series_follow_the_order_that_is_named_and_keep_empty_keys():
    table = runs(a=[1.0, 2.0, np.nan, 4.0]).assign(when=[3, 2, 1, 0])
    ((key, values, rows),) = statistics.series(table, KEYS, "rate", "when")
    assert key == ("a",) and list(values) == [4.0, 2.0, 1.0] and len(rows) == 4
    table = pd.DataFrame({"backend": ["b", None, "a"], "rate": [1.0, 2.0, 3.0], "started": [1, 1, 1]})
    assert [list(values) for _, values, _ in statistics.series(table, KEYS, "rate")] == [[3.0], [1.0], [2.0]]
    ties = runs(a=list(range(40))).assign(started=[n % 2 for n in range(40)])
    ((_, values, _),) = statistics.series(ties, KEYS, "rate")
    assert list(values) == [*range(0, 40, 2), *range(1, 40, 2)], "runs of one moment stay as they are"
    with pytest.raises(ValueError, match="no column when: pass one row per run with backend, rate, when"):
        statistics.series(runs(a=[1.0]), KEYS, "rate", "when")


def test_a_summary_by_hand():
    table = runs(a=list(VALUES), b=[7.0]).assign(when=[4, 3, 2, 1, 0, 0])
    found = statistics.summary(table, KEYS, "rate", "when", 0.8)
    assert list(found.columns) == "backend mean low high median median_low median_high spread runs".split()
    backwards = VALUES[::-1]
    expected = [*statistics.mean_interval(backwards, 0.8), *statistics.median_interval(backwards, 0.8)]
    expected += [VALUES.std(ddof=1) / VALUES.mean(), 5]
    assert list(found.loc[0])[1:] == pytest.approx(expected) and found.loc[0, "backend"] == "a"
    assert found.loc[1, "mean"] == 7 == found.loc[1, "median"] and math.isnan(found.loc[1, "spread"])
    pair = statistics.summary(runs(a=[1.0, 3.0]), KEYS, "rate").loc[0]
    assert (
        pair["spread"] == pytest.approx(math.sqrt(2) / 2)
        and pair["low"] == statistics.mean_interval([1.0, 3.0])[1]
    )


def test_percentiles_of_other_confidence():
    assert statistics.requests_needed(0.9, 0.99) == 44 and statistics.requests_needed(0.5, 0.75) == 2
    assert statistics.requests_needed(0.5, 0.5) == 1 and statistics.requests_needed(0.5, 0.75, 1) == 5
    found = statistics.percentile([4.0, 1.0, np.nan, 3.0, 2.0, 5.0], 0.5, 0.75)
    place = int(stats.binom.ppf(0.75, 5, 0.5))
    assert found == {"name": "p50", "value": 3.0, "at_most": [1.0, 2.0, 3.0, 4.0, 5.0][place], "requests": 5}
    few = statistics.percentile([4.0, 1.0], 0.99)
    assert (
        few["name"] == "slowest of 2"
        and few["value"] == 4
        and math.isnan(few["at_most"])
        and few["requests"] == 2
    )
    assert statistics.percentile(range(1000), 0.995)["name"] == "p99.5"
    none = statistics.percentile([np.nan], 0.9)
    assert list(none) == ["name", "value", "at_most", "requests"] and math.isnan(none["at_most"])


def test_clopper_and_pearsons_interval_is_that_of_beta():
    share, low, high = statistics.share_interval(3, 10, 0.8)
    assert share == 0.3 and low == pytest.approx(stats.beta.ppf(0.1, 3, 8))
    assert high == pytest.approx(stats.beta.ppf(0.9, 4, 7))
    assert statistics.share_interval(0, 10) == pytest.approx((0, 0, 0.3085), abs=1e-4)
    assert all(map(math.isnan, statistics.share_interval(0, 0)))
    assert statistics.share_interval(1, 1)[0] == 1 and statistics.share_interval(np.float64(1), 2.0)[0] == 0.5


# --- rankings ---------------------------------------------------------------------------------------------


# --- the stopping rule ------------------------------------------------------------------------------------


def test_inflation_by_hand():
    # Three runs: the variance of their mean is (3 + 4 r + 2 r^2) / 9 of one run's.
    v = (3 + 4 * 0.4 + 2 * 0.16) / 3
    assert repeats.inflation(3) == pytest.approx(math.sqrt(v * 2 / (3 - v)))
    assert repeats.inflation(3, 0.0) == pytest.approx(1)


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_narrow_by_hand_for_many_studies(confidence):
    studies = np.random.default_rng(4).normal(100, 4, (30, 9))
    student = stats.t.ppf((1 + confidence) / 2, 8) * studies.std(axis=1, ddof=1) / 3 * repeats.inflation(9)
    wider = np.maximum(student, statistics.half_width(studies, confidence)) / studies.mean(axis=1)
    expected = wider <= 0.035
    assert 3 < expected.sum() < 27 and (repeats.narrow(studies, 0.035, confidence) == expected).all()
    assert (repeats.narrow(-studies, 0.035, confidence) == expected).all()
    assert (repeats.narrow(studies) == (repeats.narrow(studies, 0.03, 0.95))).all()


def test_enough_takes_three_narrow_looks_of_six_runs_at_least():
    studies = np.random.default_rng(5).normal(100, 3, (200, 9))
    for runs_, looks in ((8, (6, 7, 8)), (9, (7, 8, 9))):
        expected = np.all([repeats.narrow(studies[:, :n], 0.03, 0.9) for n in looks], axis=0)
        assert 5 < expected.sum() < 195
        assert (repeats.enough(studies[:, :runs_], 0.03, 0.9) == expected).all()
    assert repeats.enough(studies[:, :7], 10.0).tolist() == [False] * 200
    assert repeats.enough([100.0] * 8) and not repeats.enough([100.0] * 7)


def test_each_study_is_held_against_its_own_mean():
    calm = np.array([100.0, 101.0, 99.0, 100.0, 100.5, 99.5])
    assert repeats.narrow(np.array([calm, calm - 95])).tolist() == [True, False]
    assert repeats.enough(np.array([calm])).dtype == bool


def test_what_is_done_next():
    assert repeats.decide([], budget=20) == ("more runs", 8) and repeats.decide([], budget=5) == (
        "more runs",
        5,
    )
    wild = [100.0, 140.0, 80.0, 120.0, 90.0, 150.0, 70.0, 130.0, 60.0]
    assert repeats.decide(wild) == ("more runs", 1) == repeats.decide(wild, budget=10)
    assert repeats.decide(wild, budget=9) == ("budget spent", 0) and repeats.decide(wild, 10.0) == (
        "within",
        0,
    )
    assert repeats.decide(wild[:2], measured=19) == ("more runs", 1)
    assert repeats.decide(wild[:2], measured=20) == ("budget spent", 0) == repeats.decide([1.0] * 20, -1)


def test_a_plan_by_hand():
    table = runs(a=[100.0, 140.0, np.nan], b=[100.0] * 8, c=[np.nan]).assign(when=[3, 2, 1, *range(8), 1])
    found = repeats.plan(table, KEYS, "rate", within=0.05, budget=3, order="when").set_index("backend")
    assert list(found.columns) == repeats.COLUMNS
    half = statistics.half_width([140.0, 100.0]) / 120
    assert tuple(found.loc["a", ["runs", "mean", "half_width_share"]]) == pytest.approx((2, 120, half))
    assert list(found["state"]) == ["budget spent", "within", "more runs"] and list(found["more"]) == [
        0,
        0,
        2,
    ]
    assert found.loc["a", "sentence"] == (
        f"2 runs: ± {half * 100:.2g} %; the budget of 3 runs is spent before ± 5 % is reached."
    )
    assert found.loc["b", "sentence"] == "8 runs: ± 0 %, within ± 5 %." and math.isnan(found.loc["c", "mean"])
    lost = table.assign(lost=[1, *[0] * 11])
    sentence = repeats.plan(lost, KEYS, "rate", failed="lost").loc[0, "sentence"]
    assert sentence.startswith("2 runs, some with failed requests")
    without = repeats.plan(table.drop(columns="failed"), KEYS, "rate")
    assert list(without["state"]) == ["more runs", "within", "more runs"]
    assert repeats.plan(table, KEYS, "rate", budget=2)["state"][1] == "within"
