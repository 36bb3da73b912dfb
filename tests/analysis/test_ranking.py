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
    many = ranking.letters(12, [(k, k + 1) for k in range(0, 12, 2)])  # 64 groups, half of them with each
    assert many[1] == "GHIJKLMNOPQRSTUVWXYZ" + "".join(f"({n})" for n in range(53, 65))


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
    assert ranking.rank(make_runs(rates).drop(columns="failed"), KEYS, "rate").equals(found)
    slowest = ranking.rank(make_runs(rates), KEYS, "rate", higher_is_better=False)
    assert list(slowest["backend"])[-1] == "a" and slowest["rank_from"].iloc[-1] == 3
    assert set(ranking.leaders(slowest)["backend"]) == {"b", "c"}


def test_one_run_and_failed_requests_are_not_ranked():
    runs = make_runs(
        {
            ("a", "x"): [200.0, 201, 199],
            ("b", "y"): [900.0],
            ("c", "z"): [500.0, 501, 502],
            ("e", "w"): [np.nan],
            ("d", "w"): [np.nan],
            ("f", None): [300.0, 301, 302],
        }
    )
    runs.loc[runs["rate"].isin([501, 301]), "failed"] = 1
    found = ranking.rank(runs, KEYS, "rate")
    reasons = ["", "one run", "failed requests", "failed requests", "no value", "no value"]
    assert list(zip(found["backend"], found["reason"])) == list(zip("abcfde", reasons))
    assert list(found["runs"]) == [3, 1, 3, 3, 0, 0] and found["runs"].dtype == int
    assert set(found["groups"][1:]) == {""} and found["rank_from"][1:].isna().all()
    assert list(ranking.leaders(found)["backend"]) == ["a"]
    nobody = ranking.rank(runs[runs["backend"] == "b"], KEYS, "rate")
    assert nobody[["rank_from", "rank_to", "rounds_to_settle"]].dtypes.tolist() == [float] * 3


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
    assert not ranking.beats(np.array([1 - comparison.CONFIDENCE]), 2), "at the level nothing is parted yet"


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
    rates = {("a", "x"): [101.0, 104, 102], ("b", "x"): [100.0, 102, 101], ("c", "x"): [50.0, 51, 52]}
    found, model = (
        ranking.rank(make_runs(rates), KEYS, "rate"),
        comparison.fit(make_runs(rates), KEYS, "rate"),
    )
    assert found["may_be_best"].tolist() == [True, True, False]
    assert found["rounds_to_settle"].notna().tolist() == [False, True, False]
    (difference,), (error,), _ = model.contrasts(np.array([[1.0, -1, 0]]))
    assert found["rounds_to_settle"][1] == model.rounds_to_settle(difference, error, comparisons=2) == 18


def test_who_is_content_with_less_confidence_parts_more():
    runs = make_runs(
        {("a", "x"): [101.0, 104, 102], ("b", "x"): [99.0, 101, 100], ("c", "x"): [50.0, 51, 52]}
    )
    sure, unsure = (ranking.rank(runs, KEYS, "rate", confidence=c) for c in (comparison.CONFIDENCE, 0.5))
    assert (list(sure["groups"]), sure["may_be_best"].sum()) == (["a", "a", "b"], 2)
    assert (list(unsure["groups"]), unsure["may_be_best"].sum()) == (["a", "b", "c"], 1)


def test_versions_are_compared_and_not_pooled():
    rates = {("b", "x"): [50.0, 51, 50, 40, 41, 40], ("a", None): [100.0, 101, 99, 130, 131, 129]}
    runs = make_runs(rates).sample(frac=1, random_state=1)
    runs["backend_version"] = np.where(runs["started"] < "2026-01-01T00:06", "1.9", "1.10")
    found = ranking.upgrades(runs, KEYS, "rate", higher_is_better=False)
    shown = found[["backend", "before", "after", "verdict"]].itertuples(index=False, name=None)
    assert list(shown) == [("a", "1.9", "1.10", "slower"), ("b", "1.9", "1.10", "faster")]
    assert found.loc[0, "ratio"] == pytest.approx(1.3, rel=1e-3)
    assert list(ranking.upgrades(runs, KEYS, "rate")["verdict"]) == ["faster", "slower"]
    none = ranking.upgrades(runs[:0], KEYS, "rate")
    assert none.empty and list(none) == list(found)


def test_verdicts_that_hold_one_by_one_may_not_hold_at_once():
    rows = [{"p": p, "verdict": comparison.FASTER} for p in (0.001, 0.03, 0.04)]
    rows.append({"p": np.nan, "verdict": comparison.NOT_CONNECTED})
    ranking.distinguished_at_once(rows)
    rows.append({"p": 1 - comparison.CONFIDENCE, "verdict": comparison.FASTER})
    ranking.distinguished_at_once(rows[-1:])
    expected = [comparison.FASTER, comparison.EQUAL, comparison.EQUAL, comparison.NOT_CONNECTED]
    assert [row["verdict"] for row in rows] == [*expected, comparison.EQUAL]
