"""The stopping rule of REPEATS=auto."""

import math

import numpy as np
import pytest
from builders import make_runs
from scipy import stats

from bench.analysis import repeats, statistics

KEYS = ["backend"]


def test_auto_takes_eight_runs_at_least_and_stops_when_they_agree():
    steady = [100.0, 100.2, 99.9, 100.1, 100.0, 99.8, 100.1, 100.0]
    assert repeats.decide(steady[:1]) == ("more runs", 7)
    assert repeats.decide(steady[:7]) == ("more runs", 1)
    assert repeats.decide(steady) == ("within", 0)


def test_auto_spends_its_budget_and_says_so():
    wild = [100.0, 140.0, 80.0, 120.0, 90.0, 150.0]
    assert repeats.decide(wild, budget=6) == ("budget spent", 0)
    assert repeats.decide(wild, budget=7) == ("more runs", 1)
    runs = make_runs(a=wild, b=[100.0] * 6)
    found = repeats.plan(runs, KEYS, "rate", budget=6).set_index("backend")
    assert "the budget of 6 runs is spent before ± 3 %" in found.loc["a", "sentence"]
    with pytest.raises(ValueError, match="take at least 2"):
        repeats.plan(runs, KEYS, "rate", budget=1)


def test_auto_adds_no_runs_where_requests_fail():
    found = repeats.plan(make_runs(a=[100.0, 101.0]).assign(failed=1), KEYS, "rate")
    assert tuple(found.loc[0, ["state", "more"]]) == ("failed requests", 0)


def test_plan_says_how_wide_the_interval_is():
    values = [100.0, 104.0, 99.0]
    found = repeats.plan(make_runs(a=values), KEYS, "rate", budget=20).loc[0]
    share = statistics.half_width(values) / 101
    assert found["half_width_share"] == pytest.approx(share) and found["mean"] == 101
    assert found["sentence"] == f"3 runs: ± {share * 100:.2g} %; 5 more before it is looked at again."
    steady = make_runs(a=[100.0, 100.1] * 4)
    half = statistics.half_width([100.0, 100.1] * 4) / 100.05
    expected = f"8 runs: ± {half * 100:.2g} %, within ± 3 %."
    assert repeats.plan(steady, KEYS, "rate").loc[0, "sentence"] == expected
    assert repeats.plan(make_runs(a=values), KEYS, "rate", budget=2).loc[0, "state"] == "budget spent"
    single = repeats.plan(make_runs(a=[5.0]), KEYS, "rate").loc[0, "sentence"]
    assert single == "1 run: no interval; 7 more before it is looked at again."


def test_auto_counts_runs_without_a_value_against_the_budget():
    runs = make_runs(a=[100.0, np.nan, np.nan, 101.0])
    assert repeats.plan(runs, KEYS, "rate", budget=4).loc[0, "state"] == "budget spent"
    assert repeats.plan(runs, KEYS, "rate", budget=5).loc[0, "more"] == 1


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
    assert repeats.decide([], budget=20) == ("more runs", 8)
    assert repeats.decide([], budget=5) == ("more runs", 5)
    wild = [100.0, 140.0, 80.0, 120.0, 90.0, 150.0, 70.0, 130.0, 60.0]
    assert repeats.decide(wild) == ("more runs", 1) == repeats.decide(wild, budget=10)
    assert repeats.decide(wild, budget=9) == ("budget spent", 0)
    assert repeats.decide(wild, 10.0) == ("within", 0)
    assert repeats.decide(wild[:2], measured=19) == ("more runs", 1)
    assert repeats.decide(wild[:2], measured=20) == ("budget spent", 0) == repeats.decide([1.0] * 20, -1)


def test_a_plan_by_hand():
    table = make_runs(a=[100.0, 140.0, np.nan], b=[100.0] * 8, c=[np.nan]).assign(
        when=[3, 2, 1, *range(8), 1]
    )
    found = repeats.plan(table, KEYS, "rate", within=0.05, budget=3, order="when").set_index("backend")
    assert list(found.columns) == repeats.COLUMNS
    half = statistics.half_width([140.0, 100.0]) / 120
    assert tuple(found.loc["a", ["runs", "mean", "half_width_share"]]) == pytest.approx((2, 120, half))
    assert list(found["state"]) == ["budget spent", "within", "more runs"]
    assert list(found["more"]) == [0, 0, 2]
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
