"""Intervals, rankings and the stopping rule against formulas worked out a second time."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import fft, stats

from bench.analysis import ranking, repeats, statistics

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


@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_a_ratio_by_hand(confidence):
    """Delta method and Welch and Satterthwaite's degrees of freedom."""
    (a, _, free_a), (b, _, free_b) = (error_and_half(v, confidence) for v in (VALUES, OTHERS))
    a, b = (a / VALUES.mean()) ** 2, (b / OTHERS.mean()) ** 2
    freedom = (a + b) ** 2 / (a**2 / free_a + b**2 / free_b)
    half = stats.t.ppf((1 + confidence) / 2, freedom) * math.sqrt(a + b)
    middle = math.log(VALUES.mean() / OTHERS.mean())
    p = 2 * stats.t.sf(middle / math.sqrt(a + b), freedom)
    assert statistics.log_ratio(VALUES, OTHERS, confidence) == pytest.approx((middle, half, p))
    found = statistics.ratio(VALUES, OTHERS, confidence=confidence)
    assert list(found) == statistics.RATIO and found["ratio"] == pytest.approx(math.exp(middle))
    assert (found["low"], found["high"]) == pytest.approx((math.exp(middle - half), math.exp(middle + half)))
    assert found["p"] == pytest.approx(p) and type(found["p"]) is float
    assert (found["runs"], found["baseline_runs"]) == (5, 3)
    back = statistics.log_ratio(OTHERS, VALUES, confidence)
    assert back == pytest.approx((-middle, half, p)), "p is that of both sides"


def test_runs_without_scatter_have_a_ratio_without_width():
    middle, half, p = statistics.log_ratio(np.array([3.0, 3.0]), np.array([2.0, 2.0, 2.0]))
    assert middle == pytest.approx(math.log(1.5)) and 0 <= half < 1e-300 and p == 0
    middle, half, p = statistics.log_ratio(np.array([[3.0, 3.0]]), np.array([[3.0, 3.0]]))
    assert middle[0] == 0 and p[0] == 1


def test_ratios_that_cannot_be_say_what_was_there():
    nothing = statistics.ratio([], [1.0, 2.0])
    assert nothing["verdict"] == statistics.NONE and (nothing["runs"], nothing["baseline_runs"]) == (0, 2)
    assert all(math.isnan(nothing[name]) for name in ("ratio", "low", "high", "p"))
    single = statistics.ratio([3.0], [1.0, 2.0])
    assert single["verdict"] == statistics.ONE_OF_ONE and single["ratio"] == 2 and math.isnan(single["high"])
    for values, baseline in (([1.0, -1.0], [1.0]), ([1.0], [2.0, 0.0])):
        with pytest.raises(ValueError, match="figures above zero"):
            statistics.ratio(values, baseline)
    assert statistics.ratio([0.5, 0.6, np.nan], [0.5, 0.6])["runs"] == 2


def test_the_edge_of_a_verdict():
    assert statistics.verdict(1.0, 1.2) == statistics.verdict(0.8, 1.0) == statistics.EQUAL
    assert statistics.verdict(1.01, 1.2) == statistics.FASTER == statistics.verdict(0.8, 0.9, False)
    assert statistics.verdict(0.8, 0.9) == statistics.SLOWER == statistics.verdict(1.01, 1.2, False)


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
    assert statistics.share_interval(1, 1)[0] == 1 and statistics.share_interval(np.float64(1), 2.0)[0] == 0.5


# --- rankings ---------------------------------------------------------------------------------------------


def test_holm_by_hand_and_in_order():
    assert ranking.holm(["0.02", "0.5", "0.01"]) == pytest.approx([0.04, 0.5, 0.03])
    assert ranking.holm([0.5, 0.4, 0.3]) == pytest.approx([0.9, 0.9, 0.9])


def test_pairs_are_ratios_of_every_two():
    table = ranking.pairs([VALUES, OTHERS, VALUES * 2])
    assert list(table.columns) == ["first", "second", "ratio", "p", "p_adjusted"]
    assert list(zip(table["first"], table["second"])) == [(0, 1), (0, 2), (1, 2)]
    assert table["ratio"][0] == pytest.approx(VALUES.mean() / OTHERS.mean())
    assert table["p"][1] == statistics.ratio(VALUES, VALUES * 2)["p"]
    assert list(table["p_adjusted"]) == list(ranking.holm(table["p"]))


def test_letters_beyond_the_alphabet_are_numbers():
    assert [ranking._letter(n) for n in (0, 25, 26, 51, 52, 53)] == ["a", "z", "A", "Z", "(53)", "(54)"]
    assert ranking.letters(1, []) == ["a"] and ranking.letters(4, [(0, 3), (1, 3), (0, 2)]) == [
        "a",
        "ab",
        "bc",
        "c",
    ]


def test_who_beats_the_best_by_hand():
    p = np.array([0.02495, 0.02505])
    assert list(ranking.beats(p, 3)) == [True, False] and list(ranking.beats(2 * p, 2)) == [True, False]
    assert list(ranking.beats(4 * p, 3, 0.8)) == [True, False]
    assert not ranking.beats(0.5, 2, 0.5) and ranking.beats(0.49, 2, 0.5), "at the edge nothing is decided"


def test_a_ranking_by_hand():
    table = runs(c=[7.0], a=list(VALUES), d=[7.0], b=list(VALUES * 3), e=[np.nan])
    found = ranking.rank(table, KEYS, "rate", confidence=0.9)
    assert list(found.columns) == [*KEYS, *ranking.RANK] and list(found.index) == [0, 1, 2, 3, 4]
    assert list(found["backend"]) == ["b", "a", "c", "d", "e"] and list(found["runs"]) == [5, 5, 1, 1, 0]
    assert tuple(found.loc[1, ["mean", "low", "high"]]) == pytest.approx(
        statistics.mean_interval(VALUES, 0.9)
    )
    assert list(found["groups"]) == ["a", "b", "", "", ""]
    assert list(found["may_be_best"]) == [True, False, False, False, False]
    assert list(found["rank_from"])[:2] == [1, 2] and list(found["rank_to"])[:2] == [1, 2]
    assert found.loc[2:, ["rank_from", "rank_to"]].isna().all().all()
    assert list(found["reason"]) == ["", "", "one run", "one run", "no value"]


def test_a_ranking_takes_the_order_the_column_of_failures_and_the_confidence():
    drift = [100.0, 101.0, 102.0, 103.0, 104.0, 105.0]
    table = runs(a=drift, b=[110.0, 108.0, 111.0, 109.0, 107.0, 112.0]).assign(lost=0)
    table["when"] = [1, 6, 2, 5, 3, 4] * 2
    shuffled = [drift[n] for n in np.argsort([1, 6, 2, 5, 3, 4])]
    found = ranking.rank(table, KEYS, "rate", order="when").set_index("backend")
    assert found.loc["a", "low"] == pytest.approx(statistics.mean_interval(shuffled)[1])
    sure, unsure = (ranking.rank(table, KEYS, "rate", confidence=c)["groups"] for c in (0.5, 0.9999999))
    assert list(sure) == ["a", "b"] and list(unsure) == ["a", "a"]
    lost = table.assign(lost=[2, *[0] * 11])
    assert list(ranking.rank(lost, KEYS, "rate", failed="lost")["reason"]) == ["", "failed requests"]
    assert list(ranking.rank(table.drop(columns="failed"), KEYS, "rate")["reason"]) == ["", ""]
    tied = ranking.rank(runs(**{f"e{n:02d}": [5.0, 5.0] for n in range(5)}), KEYS, "rate")
    assert list(tied["backend"]) == [f"e{n:02d}" for n in range(5)], "equals stay in their order"
    assert ranking.rank(runs(), KEYS, "rate").empty


def test_at_the_edge_of_the_confidence_two_are_not_told_apart(monkeypatch):
    edge = ranking.pairs([VALUES, OTHERS]).assign(p_adjusted=0.5)
    monkeypatch.setattr(ranking, "pairs", lambda values: edge)
    table = runs(a=list(VALUES), b=list(OTHERS))
    for confidence, groups in ((0.5, ["a", "a"]), (0.4375, ["a", "b"])):
        assert list(ranking.rank(table, KEYS, "rate", confidence=confidence)["groups"]) == groups


def test_who_may_be_best_is_decided_with_the_confidence():
    table = runs(a=[100.0, 101.0, 102.5], b=[103.0, 104.5, 105.0])
    p = statistics.ratio([103.0, 104.5, 105.0], [100.0, 101.0, 102.5])["p"]
    for confidence, alone in ((1 - p * 1.1, True), (1 - p * 0.9, False)):
        found = ranking.rank(table, KEYS, "rate", confidence=confidence)
        assert list(found["may_be_best"]) == [True, not alone]
        assert list(ranking.leaders(found)["backend"]) == (["b"] if alone else ["b", "a"])


def test_a_comparison_by_hand():
    table = runs(a=list(VALUES), b=list(OTHERS)).assign(when=[5, 1, 4, 2, 3, 3, 1, 2])
    found = ranking.compare(table, KEYS, "rate", ("b",), False, "when", 0.9)
    first, second = VALUES[np.argsort([5, 1, 4, 2, 3])], OTHERS[np.argsort([3, 1, 2])]
    expected = statistics.ratio(first, second, False, 0.9)
    assert list(found.columns) == [*KEYS, *statistics.RATIO]
    assert found.loc[0].to_dict() == pytest.approx({"backend": "a"} | expected)
    alone = ranking.compare(runs(a=[1.0, 2.0]), KEYS, "rate", ("a",))
    assert alone.empty and list(alone.columns) == [*KEYS, *statistics.RATIO]
    with pytest.raises(ValueError, match=r"No run of \('z',\): take one of \('a',\), \('b',\)"):
        ranking.compare(table, KEYS, "rate", ("z",))


def test_upgrades_by_hand():
    table = pd.DataFrame(
        {
            "backend": ["b", "b", None, None, "b", "b", "b", "b"],
            "backend_version": ["2", "2", "1", "1", "1", "1", "3", "3"],
            "rate": [20.0, 21.0, 1.0, 2.0, 10.0, 11.0, 30.0, 31.0],
            "started": [2, 2, 1, 1, 1, 1, 3, 3],
        }
    )
    found = ranking.upgrades(table, KEYS, "rate")
    assert list(found.columns) == [*KEYS, "before", "after", *statistics.RATIO]
    assert list(zip(found["before"], found["after"])) == [("1", "2"), ("2", "3")]
    assert found.loc[0, "ratio"] == pytest.approx(20.5 / 10.5) and list(found["verdict"])[0] == "faster"
    assert ranking.upgrades(table, KEYS, "rate", higher_is_better=False).loc[0, "verdict"] == "slower"
    more = pd.concat([table, table.assign(backend_version="4", started=[9, 9, 9, 9, 9, 9, 9, 9])])
    assert list(ranking.upgrades(more, KEYS, "rate")["backend"].fillna("none")) == ["b", "b", "b", "none"]
    many = pd.DataFrame({"backend": "b", "backend_version": ["1"] * 20 + ["2"] * 20, "rate": range(1, 41)})
    first = ranking.upgrades(many.assign(started=[0] * 20 + [1] * 20), KEYS, "rate").loc[0]
    assert first["low"] == statistics.ratio(range(21, 41), range(1, 21))["low"], (
        "runs of one moment stay as they are"
    )
    renamed = table.rename(columns={"backend_version": "v", "started": "when"})
    assert len(ranking.upgrades(renamed, KEYS, "rate", "v", True, "when")) == 2
    assert list(ranking.upgrades(table[:0], KEYS, "rate").columns) == list(found.columns)


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
