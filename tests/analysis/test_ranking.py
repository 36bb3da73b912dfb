"""Who is faster than whom: all pairs at once, letters, places, and the best."""

import itertools

import numpy as np
import pandas as pd
import pytest

from bench.analysis import comparison, ranking

KEYS = ["backend", "option"]


def make_runs(rates, **more):
    """One row per run: `rates` is {(backend, option): [tokens/s of each run]}, measured in turn, a minute each,
    in one sitting."""
    longest = max(map(len, rates.values()))
    order = [(n, key) for n in range(longest) for key in rates if n < len(rates[key])]
    started = pd.Timestamp("2026-01-01", tz="UTC") + pd.to_timedelta(np.arange(len(order)), unit="min")
    rows = [(*key, rates[key][n], when.isoformat(), 0) for (n, key), when in zip(order, started)]
    return pd.DataFrame(rows, columns=[*KEYS, "rate", "started", "failed"]).assign(
        host="h", experiment="latency", **more
    )


def test_holm():
    assert ranking.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert ranking.holm([0.6, 0.9]) == pytest.approx([1, 1])
    assert len(ranking.holm([])) == 0


def test_letters_are_shared_exactly_by_those_that_cannot_be_distinguished():
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


def test_rank_groups_what_cannot_be_distinguished():
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
    assert found["mean"].tolist() == pytest.approx([200.1, 100.4, 100], rel=0.001)
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
    assert list(found.loc[["b", "c", "d"], "groups"]) == ["", "", ""]
    assert found.loc[["b", "c", "d"], "rank_from"].isna().all()
    assert list(ranking.leaders(found.reset_index())["backend"]) == ["a"]


def test_what_shares_no_sitting_with_the_others_is_not_ranked():
    runs = make_runs(
        {("a", "x"): [200.0, 201, 199], ("b", "y"): [100.0, 101, 99], ("c", "z"): [900.0, 901, 899]}
    )
    later = pd.to_datetime(runs["started"]) + pd.to_timedelta((runs["backend"] == "c").astype(int), unit="D")
    found = ranking.rank(runs.assign(started=later.map(pd.Timestamp.isoformat)), KEYS, "rate").set_index(
        "backend"
    )
    assert dict(found["reason"]) == {"a": "", "b": "", "c": ranking.APART}
    assert found.loc["c", "mean"] == pytest.approx(900, rel=0.01)


def test_the_best_needs_fewer_comparisons_than_all_pairs():
    assert list(ranking.beats(np.array([0.0051, 0.0049]), 11)) == [False, True]


def test_of_two_one_is_the_best_only_where_they_are_distinguished():
    """A superlative never stands beside an interval of the ratio that holds 1, nor beside places 1-2 of both."""
    random, parted = np.random.default_rng(3), 0
    for _ in range(40):
        two = {("a", "x"): list(random.normal(100, 3, 4)), ("b", "x"): list(random.normal(105, 3, 4))}
        runs = make_runs(two)
        found = ranking.rank(runs, KEYS, "rate")
        verdict = comparison.fit(runs, KEYS, "rate").compare(*two)["verdict"]
        assert (len(ranking.leaders(found)) == 1) == (verdict != comparison.EQUAL)
        assert (len(ranking.leaders(found)) == 1) == (list(found["rank_to"]) == [1, 2])
        parted += verdict != comparison.EQUAL
    assert 0 < parted < 40


def test_more_configurations_make_a_difference_harder_to_believe():
    random = np.random.default_rng(8)
    pair = {("a", "x"): [100.0, 103.0, 101.0], ("b", "y"): [106.0, 108.5, 107.0]}
    crowd = pair | {(f"e{n}", "z"): list(random.normal(100 + 0.1 * n, 2, 3)) for n in range(12)}
    alone, among = (
        ranking.rank(make_runs(r), KEYS, "rate").set_index("backend")["groups"] for r in (pair, crowd)
    )
    assert not set(alone["a"]) & set(alone["b"])
    assert set(among["a"]) & set(among["b"])


def test_an_open_place_says_how_many_rounds_would_settle_it():
    random = np.random.default_rng(1)
    rates = {
        (name, "x"): list(random.normal(mean, 4, 3)) for name, mean in (("a", 104), ("b", 101), ("c", 50))
    }
    found = ranking.rank(make_runs(rates), KEYS, "rate")
    assert found["may_be_best"].tolist() == [True, True, False]
    assert found["rounds_to_settle"].notna().tolist() == [False, True, False]
    assert found["rounds_to_settle"][1] >= comparison.ROUNDS_A_SITTING


def test_compare_with_a_baseline():
    runs = make_runs({("a", "x"): [100.0, 101, 99], ("b", "y"): [200.0, 201, 199], ("c", "z"): [150.0]})
    found = ranking.compare(runs, KEYS, "rate", ("a", "x")).set_index("backend")
    assert dict(found["verdict"]) == {"b": "faster", "c": "faster"}
    assert dict(found["runs"]) == {"b": 3, "c": 1}
    with pytest.raises(KeyError, match="No run of"):
        ranking.compare(runs, KEYS, "rate", ("z", "z"))


def test_versions_are_compared_and_not_pooled():
    runs = make_runs({("a", "x"): [100.0, 101.0, 99.0, 130.0, 131.0, 129.0], ("b", "y"): [50.0, 51.0]})
    runs["backend_version"] = np.where(runs["rate"] > 120, "2.0", "1.0")
    found = ranking.upgrades(runs, KEYS, "rate")
    assert len(found) == 1
    assert tuple(found.loc[0, ["before", "after", "verdict"]]) == ("1.0", "2.0", "faster")
    assert found.loc[0, "ratio"] == pytest.approx(1.3, rel=1e-3)


def test_verdicts_that_hold_one_by_one_may_not_hold_at_once():
    rows = [{"p": p, "verdict": comparison.FASTER} for p in (0.001, 0.03, 0.04)]
    rows.append({"p": np.nan, "verdict": comparison.NOT_CONNECTED})
    ranking.distinguished_at_once(rows)
    expected = [comparison.FASTER, comparison.EQUAL, comparison.EQUAL, comparison.NOT_CONNECTED]
    assert [row["verdict"] for row in rows] == expected
