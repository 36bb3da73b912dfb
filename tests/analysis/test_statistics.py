"""Intervals, percentiles, the stopping rule, and the proof that they hold."""

import itertools
import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bench.analysis import proof, repeats, statistics

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


def test_a_drift_widens_the_interval_more_than_the_same_scatter_without():
    drift = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    mixed = [5.0, 1.0, 8.0, 3.0, 6.0, 2.0, 7.0, 4.0]
    assert statistics.half_width(drift) > 2 * statistics.half_width(mixed)


def test_one_run_has_no_interval_and_a_run_without_value_does_not_count():
    assert statistics.mean_interval([7.0])[0] == 7.0
    assert all(map(math.isnan, statistics.mean_interval([7.0])[1:] + statistics.median_interval([7.0])[1:]))
    assert all(map(math.isnan, statistics.mean_interval([]) + statistics.median_interval([])))
    assert statistics.mean_interval([1.0, np.nan, 2.0, 3.0]) == statistics.mean_interval([1.0, 2.0, 3.0])


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


def test_runs_without_a_column_are_named():
    with pytest.raises(ValueError, match="no column ttft_s"):
        statistics.summary(make_runs({("a", "x"): [1.0]}), KEYS, "ttft_s")


def test_auto_takes_eight_runs_at_least_and_stops_when_they_agree():
    steady = [100.0, 100.2, 99.9, 100.1, 100.0, 99.8, 100.1, 100.0]
    assert repeats.decide(steady[:1]) == ("more runs", 7)
    assert repeats.decide(steady[:7]) == ("more runs", 1)
    assert repeats.decide(steady) == ("within", 0)


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
    assert record["studies"] >= 1000 and record["designs"] >= 100


def test_the_committed_proof_keeps_every_promise():
    results = proof.load()
    assert proof.broken(results).empty
    ours = results[(results["method"] == proof.OURS) & (results["quantity"] == proof.MEAN)]
    assert set(itertools.product(["3", "5", "10", "auto"], [0.0, 0.3, 0.6])) <= set(
        zip(ours["runs"], ours["correlation"])
    )
    assert (ours["studies"] >= 1000).all()


def test_a_broken_promise_is_found():
    random = np.random.default_rng(1)
    results = pd.DataFrame(proof.fixed(random, 1000, 10, 0.3))
    assert proof.broken(results).empty
    assert len(proof.broken(results[results["method"] == proof.STUDENT].assign(method=proof.OURS))) == 1


def test_the_table_of_the_proof_has_a_column_per_correlation():
    found = proof.table(proof.load())
    assert {0.0, 0.3, 0.6, "width", "runs_used", "studies"} <= set(found.columns)
    assert {proof.OURS, proof.STUDENT} == set(found["method"])
    assert not found[[0.0, 0.3, 0.6]].isna().any().any()


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
