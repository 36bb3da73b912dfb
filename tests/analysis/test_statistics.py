"""Intervals, ratios, rankings, percentiles, the stopping rule, and the proof that they hold."""

import itertools
import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bench.analysis import proof, ranking, repeats, same, statistics

KEYS = ["backend", "option"]


def make_runs(rates, **more):
    """One row per run: `rates` is {(backend, option): [tokens/s of each run]}, measured in turn."""
    longest = max(map(len, rates.values()))
    return pd.DataFrame(
        [
            {
                "backend": backend,
                "option": option,
                "rate": values[n],
                "started": f"2026-01-{n + 1:02d}",
                "failed": 0,
            }
            | more
            for n in range(longest)
            for (backend, option), values in rates.items()
            if n < len(values)
        ]
    )


def test_coverage_of_all_cosines_without_correlation_is_students():
    for runs in (2, 3, 5, 12):
        quantile = stats.t.ppf(0.975, runs - 1)
        assert statistics.coverage(runs, runs - 1, quantile, 0.0) == pytest.approx(0.95, abs=1e-5)


@pytest.mark.parametrize("runs, correlation", [(3, 0.3), (5, 0.6), (10, 0.3)])
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


def test_interval_of_three_runs_is_the_critical_value_times_the_standard_error():
    values = [98.0, 100.0, 105.0]
    mean, low, high = statistics.mean_interval(values)
    half = statistics.critical_value(3) * np.std(values, ddof=1) / math.sqrt(3)
    assert (mean, low, high) == pytest.approx((101.0, 101.0 - half, 101.0 + half))
    assert half > stats.t.ppf(0.975, 2) * np.std(values, ddof=1) / math.sqrt(3)


def test_a_drift_widens_the_interval_more_than_the_same_scatter_without():
    drift = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    mixed = [5.0, 1.0, 8.0, 3.0, 6.0, 2.0, 7.0, 4.0]
    assert statistics.half_width(drift) > 2 * statistics.half_width(mixed)


def test_a_higher_confidence_is_wider():
    values = [10.0, 11.0, 12.5, 9.0]
    assert (
        statistics.half_width(values, 0.99)
        > statistics.half_width(values)
        > statistics.half_width(values, 0.8)
    )


def test_one_run_has_no_interval_and_a_run_without_value_does_not_count():
    assert statistics.mean_interval([7.0])[0] == 7.0
    assert all(map(math.isnan, statistics.mean_interval([7.0])[1:] + statistics.median_interval([7.0])[1:]))
    assert all(map(math.isnan, statistics.mean_interval([]) + statistics.median_interval([])))
    assert statistics.mean_interval([1.0, np.nan, 2.0, 3.0]) == statistics.mean_interval([1.0, 2.0, 3.0])


def test_the_median_is_known_less_well_than_the_mean():
    values = [1.0, 2.0, 4.0, 2.5, 9.0]
    median, low, high = statistics.median_interval(values)
    assert median == 2.5
    assert (high - low) / 2 == pytest.approx(statistics.half_width(values) * statistics.median_factor(5))
    assert statistics.median_factor(3) == pytest.approx(1.16, abs=0.01)


@pytest.mark.parametrize(
    "values, higher_is_better, expected",
    [
        ([200, 201, 202], True, "faster"),
        ([50, 51, 52], True, "slower"),
        ([200, 201, 202], False, "slower"),
        ([50, 51, 52], False, "faster"),
        ([90, 104, 112], True, "cannot be told apart"),
        ([100, 100, 100], True, "faster"),
        ([50], True, "one run of one of them"),
        ([], True, "no runs of one of them"),
    ],
)
def test_verdict_of_a_ratio(values, higher_is_better, expected):
    baseline = [99.0, 100.0, 101.0] if values != [100, 100, 100] else [90.0, 90.0, 90.0]
    assert statistics.ratio(values, baseline, higher_is_better)["verdict"] == expected


def test_one_run_each_gives_a_ratio_without_interval():
    found = statistics.ratio([120.0], [100.0])
    assert found["ratio"] == 1.2 and found["verdict"] == "one run each"
    assert math.isnan(found["low"]) and math.isnan(found["p"])


def test_a_ratio_turned_round_has_the_interval_turned_round():
    first, second = [100.0, 104.0, 99.0, 101.0], [80.0, 90.0, 85.0]
    there, back = statistics.ratio(first, second), statistics.ratio(second, first)
    assert (there["low"], there["high"]) == pytest.approx((1 / back["high"], 1 / back["low"]))
    assert there["p"] == pytest.approx(back["p"])
    assert there["low"] < there["ratio"] < there["high"]


def test_equal_runs_without_scatter_cannot_be_told_apart():
    assert statistics.ratio([5.0, 5.0], [5.0, 5.0])["verdict"] == "cannot be told apart"


def test_a_ratio_of_nothing_names_what_to_do():
    with pytest.raises(ValueError, match="leave out runs without an answer"):
        statistics.ratio([1.0, 0.0], [1.0, 2.0])


def test_p_and_interval_of_a_ratio_agree():
    random = np.random.default_rng(2)
    for _ in range(50):
        found = statistics.ratio(random.normal(100, 5, 4), random.normal(107, 8, 5))
        assert (found["p"] < 0.05) == (found["verdict"] != "cannot be told apart")


def test_how_many_requests_bound_a_percentile():
    assert [statistics.requests_needed(p) for p in (0.5, 0.9, 0.95, 0.99)] == [5, 29, 59, 299]
    assert [statistics.requests_needed(p, **statistics.MLPERF) for p in (0.9, 0.99)] == [64, 662]


def test_a_percentile_is_named_only_where_the_requests_bound_it():
    assert statistics.percentile(range(1, 29), 0.9)["name"] == "slowest of 28"
    assert statistics.percentile(range(1, 29), 0.9)["value"] == 28
    found = statistics.percentile(range(1, 30), 0.9)
    assert (found["name"], found["at_most"], found["requests"]) == ("p90", 29, 29)
    assert found["value"] == pytest.approx(26.2)
    none = statistics.percentile([], 0.9)
    assert (none["name"], none["requests"]) == ("no requests", 0) and math.isnan(none["value"])
    assert statistics.percentile([3.0], 0.9)["value"] == 3.0
    assert statistics.percentile(range(100), 0.9, **statistics.MLPERF)["name"] == "p90"


def test_the_bound_of_a_percentile_holds_in_95_percent_of_samples():
    random = np.random.default_rng(3)
    samples = random.random((1000, 40))
    held = np.mean([statistics.percentile(sample, 0.9)["at_most"] >= 0.9 for sample in samples])
    assert 0.94 <= held <= 1 - 0.9**40 + 0.01


def test_clopper_pearson():
    assert statistics.share_interval(0, 10) == pytest.approx((0, 0, 0.3085), abs=1e-4)
    assert statistics.share_interval(5, 10) == pytest.approx((0.5, 0.1871, 0.8129), abs=1e-4)
    assert all(map(math.isnan, statistics.share_interval(0, 0)))


def test_summary_has_one_row_per_configuration_in_the_order_of_measuring():
    rates = {("a", "x"): [10.0, 20.0, 31.0, 40.0, 52.0], ("b", "y"): [5.0]}
    runs = make_runs(rates)
    found = statistics.summary(runs.sample(frac=1, random_state=1), KEYS, "rate").set_index("backend")
    expected = statistics.mean_interval(rates["a", "x"])
    assert tuple(found.loc["a", ["mean", "low", "high"]]) == pytest.approx(expected)
    expected = statistics.median_interval(rates["a", "x"])
    assert tuple(found.loc["a", ["median", "median_low", "median_high"]]) == pytest.approx(expected)
    assert found.loc["a", "spread"] == pytest.approx(np.std(rates["a", "x"], ddof=1) / 30.6)
    assert found.loc["b", "runs"] == 1
    assert found.loc["b", ["low", "high", "spread"]].isna().all()


def test_runs_without_a_column_are_named():
    with pytest.raises(ValueError, match="no column ttft_s"):
        statistics.summary(make_runs({("a", "x"): [1.0]}), KEYS, "ttft_s")


def test_holm():
    assert ranking.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert ranking.holm([0.6, 0.9]) == pytest.approx([1, 1])
    assert len(ranking.holm([])) == 0


def test_letters_are_shared_exactly_by_those_that_cannot_be_told_apart():
    random = np.random.default_rng(4)
    for count in (1, 2, 5, 8):
        for _ in range(20):
            every = list(itertools.combinations(range(count), 2))
            different = [pair for pair in every if random.random() < 0.4]
            names = ranking.letters(count, different)
            for i, j in every:
                assert bool(set(names[i]) & set(names[j])) == ((i, j) not in different)


def test_letters_overlap():
    assert ranking.letters(3, [(0, 2)]) == ["a", "ab", "b"]
    assert ranking.letters(0, []) == []


def test_rank_groups_what_cannot_be_told_apart():
    rates = {
        ("a", "x"): [200, 201, 199, 200.5, 200],
        ("b", "y"): [100, 101, 102, 99, 100],
        ("c", "z"): [101, 99, 98, 102, 100],
    }
    found = ranking.rank(make_runs(rates), KEYS, "rate")
    assert list(found["backend"]) == ["a", "b", "c"]
    assert list(found["groups"]) == ["a", "b", "b"]
    assert list(zip(found["rank_from"], found["rank_to"])) == [(1, 1), (2, 3), (2, 3)]
    assert list(ranking.leaders(found)["backend"]) == ["a"]
    slowest = ranking.rank(make_runs(rates), KEYS, "rate", higher_is_better=False)
    assert list(slowest["backend"])[-1] == "a" and slowest["rank_from"].iloc[-1] == 3
    assert set(ranking.leaders(slowest)["backend"]) == {"b", "c"}


def test_one_run_and_failed_requests_are_not_ranked():
    runs = make_runs(
        {
            ("a", "x"): [200.0, 201, 199],
            ("b", "y"): [900.0],
            ("c", "z"): [500.0, 501, 502],
            ("d", "w"): [np.nan],
        }
    )
    runs.loc[runs.index[(runs["backend"] == "c")][1], "failed"] = 1
    found = ranking.rank(runs, KEYS, "rate").set_index("backend")
    assert list(found.index)[0] == "a"
    assert dict(found["reason"]) == {"a": "", "b": "one run", "c": "failed requests", "d": "no value"}
    assert (
        list(found.loc[["b", "c", "d"], "groups"]) == ["", "", ""]
        and found.loc[["b", "c", "d"], "rank_from"].isna().all()
    )
    assert list(ranking.leaders(found.reset_index())["backend"]) == ["a"]


def test_the_best_needs_fewer_comparisons_than_all_pairs():
    crowd = {(f"e{n}", "z"): [60.0 + n, 64.0 + n, 62.0 + n] for n in range(12)}
    found = ranking.rank(make_runs(crowd | {("a", "x"): [100.0, 103.0, 101.0]}), KEYS, "rate")
    assert list(ranking.leaders(found)["backend"]) == ["a"]
    assert (found["rank_from"] == 1).sum() >= 1
    assert list(ranking.beats(np.array([0.0051, 0.0049]), 11)) == [False, True]


def test_of_two_one_is_the_best_only_where_they_are_told_apart():
    """A superlative never stands beside an interval of the ratio that holds 1, nor beside places 1-2 of both."""
    random = np.random.default_rng(3)
    for _ in range(200):
        two = {("a", "x"): list(random.normal(100, 3, 4)), ("b", "x"): list(random.normal(105, 3, 4))}
        found = ranking.rank(make_runs(two), KEYS, "rate")
        verdict = statistics.ratio(*two.values())["verdict"]
        assert (len(ranking.leaders(found)) == 1) == (verdict != statistics.EQUAL)
        assert (len(ranking.leaders(found)) == 1) == (list(found["rank_to"]) == [1, 2])


def test_more_configurations_make_a_difference_harder_to_believe():
    pair = {("a", "x"): [100.0, 103.0, 101.0], ("b", "y"): [110.0, 113.0, 112.0]}
    crowd = pair | {(f"e{n}", "z"): [100.0 + n, 104.0 + n, 102.0 + n] for n in range(12)}
    alone, among = (
        ranking.rank(make_runs(r), KEYS, "rate").set_index("backend")["groups"] for r in (pair, crowd)
    )
    assert not set(alone["a"]) & set(alone["b"])
    assert set(among["a"]) & set(among["b"])


def test_compare_with_a_baseline():
    runs = make_runs({("a", "x"): [100.0, 101, 99], ("b", "y"): [200.0, 201, 199], ("c", "z"): [150.0]})
    found = ranking.compare(runs, KEYS, "rate", ("a", "x")).set_index("backend")
    assert dict(found["verdict"]) == {"b": "faster", "c": "one run of one of them"}
    with pytest.raises(ValueError, match="No run of"):
        ranking.compare(runs, KEYS, "rate", ("z", "z"))


def test_versions_are_compared_and_not_pooled():
    runs = make_runs({("a", "x"): [100.0, 101.0, 99.0, 130.0, 131.0, 129.0], ("b", "y"): [50.0, 51.0]})
    runs["backend_version"] = np.where(runs["rate"] > 120, "2.0", "1.0")
    found = ranking.upgrades(runs, KEYS, "rate")
    assert len(found) == 1
    assert tuple(found.loc[0, ["before", "after", "verdict"]]) == ("1.0", "2.0", "faster")
    assert found.loc[0, "ratio"] == pytest.approx(1.3)


def test_auto_takes_eight_runs_at_least_and_stops_when_they_agree():
    steady = [100.0, 100.2, 99.9, 100.1, 100.0, 99.8, 100.1, 100.0]
    assert repeats.decide(steady[:1]) == ("more runs", 7)
    assert repeats.decide(steady[:7]) == ("more runs", 1)
    assert repeats.decide(steady) == ("within", 0)


def test_auto_goes_on_after_one_narrow_look():
    calm = [100.0, 100.2, 99.9, 100.1, 100.0, 99.8, 100.1, 100.0]
    shaken = np.array([*calm[:6], 130.0, *[100.0] * 30])
    first = next(n for n in range(8, len(shaken)) if repeats.narrow(shaken[:n]))
    assert not repeats.enough(shaken[:first])
    assert not repeats.enough(shaken[: first + 1])
    assert repeats.enough(shaken[: first + 2])


def test_auto_spends_its_budget_and_says_so():
    wild = [100.0, 140.0, 80.0, 120.0, 90.0, 150.0]
    assert repeats.decide(wild, budget=6) == ("budget spent", 0)
    assert repeats.decide(wild, budget=7) == ("more runs", 1)
    runs = make_runs({("a", "x"): wild, ("b", "y"): [100.0] * 6})
    found = repeats.plan(runs, KEYS, "rate", budget=6).set_index("backend")
    assert "the budget of 6 runs is spent before ± 3 %" in found.loc["a", "sentence"]
    with pytest.raises(ValueError, match="take at least 2"):
        repeats.plan(runs, KEYS, "rate", budget=1)


def test_auto_adds_no_runs_where_requests_fail():
    found = repeats.plan(make_runs({("a", "x"): [100.0, 101.0]}, failed=1), KEYS, "rate")
    assert tuple(found.loc[0, ["state", "more"]]) == ("failed requests", 0)


def test_inflation_is_what_correlation_does_to_students_error():
    assert repeats.inflation(5, 0.0) == pytest.approx(1)
    values = proof.simulate(np.random.default_rng(6), (40_000, 5), 0.4)
    truth = values.mean(axis=1).std() / math.sqrt(values.var(axis=1, ddof=1).mean() / 5)
    assert repeats.inflation(5, 0.4) == pytest.approx(truth, rel=0.02)


@pytest.mark.parametrize("scatter", [proof.NORMAL, proof.SKEWED, proof.SPEEDS])
def test_simulated_runs_have_the_spread_and_correlation_that_they_claim(scatter):
    values = proof.simulate(np.random.default_rng(1), (20_000, 4), 0.6, scatter, spread=0.1) - 1
    assert values.mean() == pytest.approx(0, abs=0.005)
    assert values.std() == pytest.approx(0.1, rel=0.05)
    assert np.corrcoef(values[:, 1], values[:, 2])[0, 1] == pytest.approx(0.6, abs=0.06)


def test_the_committed_proof_holds_for_these_modules():
    record = json.loads(proof.FILE.with_suffix(".json").read_text())
    assert record["modules"] == proof.digests(), (
        "run python -m bench.analysis.proof and commit what it writes"
    )
    assert record["studies"] >= 1000


def test_the_committed_proof_keeps_every_promise():
    results = proof.load()
    assert proof.broken(results).empty
    ours = results[(results["method"] == proof.OURS) & (results["quantity"] == proof.MEAN)]
    assert set(itertools.product(["3", "5", "10", "auto"], [0.0, 0.3, 0.6])) <= set(
        zip(ours["runs"], ours["correlation"])
    )
    assert (ours["studies"] >= 1000).all()
    pairs = results[(results["quantity"] == proof.TOLD) & (results["correlation"] <= 0.3)]
    assert len(pairs) == 6 and (pairs["share_low"] <= 0.05).all()
    kept = results[(results["quantity"] == proof.BEST) & (results["correlation"] <= 0.3)]
    assert len(kept) == 6 and (kept["share_high"] >= 0.95).all()


def test_a_broken_promise_is_found():
    random = np.random.default_rng(1)
    results = pd.DataFrame(proof.fixed(random, 1000, 10, 0.3))
    assert proof.broken(results).empty
    assert len(proof.broken(results[results["method"] == proof.STUDENT].assign(method=proof.OURS))) == 1


def test_the_table_of_the_proof_has_a_column_per_correlation():
    found = proof.table(proof.load())
    assert {0.0, 0.3, 0.6, "width", "runs_used", "studies"} <= set(found.columns)
    assert (found["quantity"] == proof.TOLD).sum() == 3
    assert not found[[0.0, 0.3, 0.6]].isna().any().any()


@pytest.mark.parametrize("way", [same.DEALT, same.NEIGHBOURS])
def test_two_halves_share_no_run(way):
    first, second = same.halves(np.arange(20), 10, 50, way)
    assert first.shape == second.shape == (50, 10)
    assert all(set(a) | set(b) == set(range(20)) for a, b in zip(first, second))
    with pytest.raises(ValueError, match="take 22 runs"):
        same.halves(np.arange(20), 11, 50, way)


def test_a_configuration_is_rarely_told_apart_from_itself_and_a_drift_is_found():
    random = np.random.default_rng(8)
    assert same.told_apart(random.normal(100, 4, 40), 5)[0] <= 0.05
    steps = np.r_[np.full(20, 100.0), np.full(20, 150.0)] + random.normal(0, 1, 40)
    assert same.told_apart(steps, 5, way=same.NEIGHBOURS)[0] > 0.05


def test_without_twenty_runs_of_one_configuration_the_runs_of_all_stand_in_and_say_so():
    random = np.random.default_rng(9)
    few = make_runs({(f"e{n}", "x"): list(random.normal(100 * (n + 1), 3, 4)) for n in range(8)})
    found = same.table(few, KEYS, "rate", resamplings=200)
    assert set(found["source"]) == {"all configurations, each run over its configuration's mean"}
    assert (found["runs_measured"] == 32).all() and (found["resamplings"] == 200).all()
    many = make_runs({("a", "x"): list(random.normal(100, 3, 22))})
    assert set(same.table(many, KEYS, "rate", resamplings=200)["source"]) == {"a x"}
    assert same.pooled(few, KEYS, "rate").mean() == pytest.approx(1)


@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_the_correlation_of_neighbours_is_recognised(correlation):
    random = np.random.default_rng(12)
    rates = {(f"e{n}", "x"): list(proof.simulate(random, (6,), correlation)) for n in range(60)}
    found = same.neighbours(make_runs(rates | {("one", "x"): [1.0]}), KEYS, "rate", draws=100).set_index(
        "correlation"
    )
    assert (found["configurations"] == 60).all() and (found["runs_measured"] == 360).all()
    inside = (found["low"] <= found["observed"]) & (found["observed"] <= found["high"])
    assert inside[correlation] and not inside[0.6 - correlation]
    assert same.neighbours(make_runs({("one", "x"): [1.0]}), KEYS, "rate").empty


@pytest.mark.parametrize("values", [[100, 104, 99, 105, 98, 103, 99], [100, 101, 102, 103, 104, 105, 106]])
def test_narrow_takes_the_wider_of_two_intervals(values):
    values = np.array(values, dtype=float)
    student = stats.t.ppf(0.975, 6) * values.std(ddof=1) / math.sqrt(7) * repeats.inflation(7)
    wider = max(student, statistics.half_width(values)) / values.mean()
    assert repeats.narrow(values, wider * 1.0001) and not repeats.narrow(values, wider * 0.9999)


def test_the_order_of_a_higher_and_a_lower_is_better_metric_by_default():
    assert statistics.ratio([2.0, 2.1, 2.0], [1.0, 1.1, 1.0])["verdict"] == "faster"
    runs = make_runs({("a", "x"): [1.0, 1.1], ("b", "y"): [2.0, 2.1]})
    assert list(ranking.rank(runs, KEYS, "rate")["backend"]) == ["b", "a"]
    assert list(ranking.compare(runs, KEYS, "rate", ("a", "x"))["ratio"]) == [pytest.approx(2.05 / 1.05)]


def test_pooled_and_neighbours_take_configurations_of_three_runs():
    rates = {("a", "x"): [9.0, 10.0, 11.0], ("b", "y"): [5.0, 7.0]}
    around = same.pooled(make_runs(rates), KEYS, "rate")
    assert list(around) == pytest.approx([1 - 0.1 * math.sqrt(1.5), 1.0, 1 + 0.1 * math.sqrt(1.5)])
    found = same.neighbours(make_runs(rates), KEYS, "rate", draws=5)
    assert (found["configurations"] == 1).all() and (found["observed"] == 0).all()
    zigzag = same.neighbours(make_runs({("a", "x"): [9.0, 11.0, 9.0, 11.0]}), KEYS, "rate", draws=5)
    assert zigzag["observed"].iloc[0] == pytest.approx(-0.75)


def test_versions_follow_each_other_as_they_were_measured():
    runs = make_runs({("a", "x"): [130.0, 131.0, 129.0, 100.0, 101.0, 99.0]})
    runs["backend_version"] = np.where(runs["rate"] > 120, "2.0", "1.0")
    found = ranking.upgrades(runs.sample(frac=1, random_state=3), KEYS, "rate")
    assert tuple(found.loc[0, ["before", "after", "verdict"]]) == ("2.0", "1.0", "slower")


def test_two_runs_are_ranked_and_a_failed_run_counts_once():
    found = ranking.rank(make_runs({("a", "x"): [1.0, 1.1], ("b", "y"): [9.0, 9.1]}), KEYS, "rate")
    assert list(found["reason"]) == ["", ""] and list(found["runs"]) == [2, 2]
    one = make_runs({("a", "x"): [1.0, 1.1, 1.2]}).assign(failed=[0, 0, 1])
    assert list(ranking.rank(one, KEYS, "rate")["reason"]) == ["failed requests"]


def test_plan_says_how_wide_the_interval_is():
    values = [100.0, 104.0, 99.0]
    found = repeats.plan(make_runs({("a", "x"): values}), KEYS, "rate", budget=20).loc[0]
    share = statistics.half_width(values) / 101
    assert found["half_width_share"] == pytest.approx(share) and found["mean"] == 101
    assert found["sentence"] == f"3 runs: ± {share * 100:.2g} %; 5 more before it is looked at again."
    steady = make_runs({("a", "x"): [100.0, 100.1] * 4})
    half = statistics.half_width([100.0, 100.1] * 4) / 100.05
    expected = f"8 runs: ± {half * 100:.2g} %, within ± 3 %."
    assert repeats.plan(steady, KEYS, "rate").loc[0, "sentence"] == expected
    assert (
        repeats.plan(make_runs({("a", "x"): values}), KEYS, "rate", budget=2).loc[0, "state"]
        == "budget spent"
    )
    single = repeats.plan(make_runs({("a", "x"): [5.0]}), KEYS, "rate").loc[0, "sentence"]
    assert single == "1 run: no interval; 7 more before it is looked at again."


def test_auto_counts_runs_without_a_value_against_the_budget():
    runs = make_runs({("a", "x"): [100.0, np.nan, np.nan, 101.0]})
    assert repeats.plan(runs, KEYS, "rate", budget=4).loc[0, "state"] == "budget spent"
    assert repeats.plan(runs, KEYS, "rate", budget=5).loc[0, "more"] == 1


@pytest.mark.parametrize("runs, aim", [(5, 0.95), (6, 0.955), (10, 0.955), (11, 0.96)])
def test_more_is_aimed_at_where_auto_may_have_stopped(runs, aim):
    critical, count = statistics.critical_value(runs), statistics.contrasts(runs)
    found = [statistics.coverage(runs, count, critical, r) for r in statistics.CORRELATIONS]
    assert np.mean(found) == pytest.approx(aim, abs=1e-6)
