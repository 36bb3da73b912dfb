"""One model of the runs: sittings, placements, and what can be compared."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.regression.mixed_linear_model import MixedLM

from bench.analysis import comparison

KEYS = ["engine"]
# A prior under which a sitting does the same to every configuration: the model is then the textbook's.
NO_MOODS = {"sitting": (math.log(1e-5), 1e-3), "placement": (math.log(1e-5), 1e-3)}


def runs(*groups):
    """Runs of (engine, sitting, figures): sittings are two hours apart, runs two minutes."""
    rows = []
    clock = {}
    for engine, sitting, figures in groups:
        for figure in figures:
            at = clock.get(sitting, 0)
            clock[sitting] = at + 1
            began = pd.Timestamp("2026-01-01", tz="UTC") + pd.Timedelta(hours=2 * sitting, minutes=2 * at)
            ended = began + pd.Timedelta("1min")
            rows.append((engine, figure, "h", "latency", began.isoformat(), ended.isoformat()))
    return pd.DataFrame(rows, columns=["engine", "rate", "host", "experiment", "started", "ended"])


def scattered(rng, level, count, spread=0.01):
    return level * np.exp(spread * rng.standard_normal(count))


def test_unequal_sittings_do_not_decide_a_ratio():
    rng = np.random.default_rng(3)
    # A is 1.25 times as fast in both sittings, but most of its runs lie in the slow one.
    table = runs(
        ("a", 0, scattered(rng, 125, 3)), ("a", 1, scattered(rng, 100, 8)),
        ("b", 0, scattered(rng, 100, 20)), ("b", 1, scattered(rng, 80, 3)),
    )  # fmt: skip
    plain = table.groupby("engine")["rate"].mean()
    assert plain["a"] / plain["b"] < 1.12
    found = comparison.fit(table, KEYS, "rate").compare(["a"], ["b"])
    assert found["ratio"] == pytest.approx(1.25, rel=0.02)
    assert found["low"] < 1.25 < found["high"]
    assert found["verdict"] == comparison.FASTER


def test_a_sitting_ends_where_an_hour_passes_between_an_end_and_the_next_start():
    def times(clock):
        return [f"2026-01-01T{at}Z" for at in clock.split()]

    table = pd.DataFrame(
        {
            "host": ["h"] * 4 + ["other"],
            "experiment": ["latency"] * 3 + ["serving"] + ["latency"],
            "started": times("00:00 01:30 03:00 09:00 00:00"),
            "ended": times("00:31 01:59 03:01 09:01 00:01"),
        }
    )
    # 59 minutes after an end is the same sitting, 61 are another; other hosts and experiments count apart.
    assert comparison.sittings(table).tolist() == [0, 0, 1, 0, 0]
    assert comparison.sittings(table.drop(columns="ended")).tolist() == [0, 1, 2, 0, 0]
    assert comparison.sittings(table, gap_s=6 * 3600).tolist() == [0, 0, 0, 0, 0]
    shuffled = table.sample(frac=1, random_state=1)
    assert comparison.sittings(shuffled)[table.index].tolist() == [0, 0, 1, 0, 0]


def test_what_no_chain_of_sittings_connects_is_not_compared():
    table = runs(
        ("a", 0, [100, 101]), ("b", 0, [50, 51]), ("b", 1, [50, 52]), ("c", 1, [25, 26]), ("d", 2, [10, 11])
    )
    model = comparison.fit(table, KEYS, "rate")
    # a and c never met, but b met both.
    assert model.compare(["a"], ["c"])["ratio"] == pytest.approx(4, rel=0.05)
    lone = model.compare(["a"], ["d"])
    assert lone["verdict"] == comparison.NOT_CONNECTED
    assert all(math.isnan(lone[name]) for name in ("ratio", "low", "high", "p"))


def test_runs_of_which_none_was_repeated_have_no_intervals():
    model = comparison.fit(runs(("a", 0, [100]), ("b", 0, [50])), KEYS, "rate")
    found = model.compare(["a"], ["b"])
    assert found["ratio"] == pytest.approx(2)
    assert found["verdict"] == comparison.ONE_EACH
    assert math.isnan(found["low"])
    assert model.means()[["low", "high"]].isna().all().all()


def test_a_single_run_borrows_the_scatter_of_the_others_and_says_so():
    rng = np.random.default_rng(5)
    table = runs(
        *((engine, sitting, scattered(rng, 100, 3, 0.05)) for engine in "abcd" for sitting in (0, 1)),
        ("once", 0, [300]),
    )
    means = comparison.fit(table, KEYS, "rate").means().set_index("engine")
    assert means.loc["once", "note"] == comparison.ONE_RUN
    # Its own 5 % of scatter, or a little more, at the 0.975 quantile of few degrees of freedom.
    assert 0.08 < math.log(means.loc["once", "high"] / means.loc["once", "mean"]) < 0.25
    assert means.loc["a", "note"] == ""


def test_a_configuration_of_one_sitting_says_so():
    table = runs(("a", 0, [100, 103, 99]), ("a", 1, [101, 98]), ("b", 0, [50, 52, 51]))
    means = comparison.fit(table, KEYS, "rate").means().set_index("engine")
    assert (means.loc["b", "note"], means.loc["b", "sittings"], means.loc["b", "runs"]) == (
        comparison.ONE_SITTING,
        1,
        3,
    )


def test_one_sitting_without_moods_is_the_t_test_with_pooled_scatter():
    figures = {"a": [100, 104, 98, 101], "b": [90, 87, 93, 91], "c": [50, 53, 49, 52]}
    table = runs(*((engine, 0, values) for engine, values in figures.items()))
    found = comparison.fit(table, KEYS, "rate", prior=NO_MOODS).compare(["a"], ["b"])
    logs = {engine: np.log(values) for engine, values in figures.items()}
    pooled = sum(values.var(ddof=1) for values in logs.values()) / 3
    middle = logs["a"].mean() - logs["b"].mean()
    half = stats.t.ppf(0.975, 9) * math.sqrt(2 * pooled / 4)
    assert found["degrees_of_freedom"] == pytest.approx(9, rel=0.01)
    assert math.log(found["low"]) == pytest.approx(middle - half, rel=0.01)
    assert math.log(found["high"]) == pytest.approx(middle + half, rel=0.01)


def test_the_variances_are_those_of_statsmodels_where_the_prior_says_nothing():
    rng = np.random.default_rng(11)
    engines, sittings = "abcdefgh", range(5)
    groups = []
    for engine, sitting in itertools.product(engines, sittings):
        mood = 0.1 * rng.standard_normal()
        groups.append((engine, sitting, 100 * np.exp(mood + 0.05 * rng.standard_normal(4))))
    table = runs(*groups)
    vague = {"sitting": (0.0, 100.0)}
    model = comparison.fit(table, KEYS, "rate", prior=vague)
    number = comparison.sittings(table)
    design = np.hstack([pd.get_dummies(table["engine"]), pd.get_dummies(number).to_numpy()[:, 1:]]).astype(
        float
    )
    expected = MixedLM(np.log(table["rate"]), design, groups=table["engine"] + number.astype(str)).fit(
        method="lbfgs"
    )
    assert model.variances["residual"] == pytest.approx(expected.scale, rel=0.01)
    assert model.variances["sitting"] == pytest.approx(float(expected.cov_re.iloc[0, 0]), rel=0.02)


def test_covariance_slopes_and_information_are_those_of_the_whole_covariance_of_the_runs():
    """Which are made configuration by configuration: here all runs stand in one matrix each."""
    rng = np.random.default_rng(5)
    engines, sittings = ["a", "b", "c"], [0, 1, 2]
    groups = [(e, s, scattered(rng, 100, 2 + s)) for e in engines for s in sittings]
    table = runs(*groups)
    table["placement"] = np.where(rng.random(len(table)) < 0.5, "near", "apart")
    prior = {"sitting": (-1.0, 2.0), "placement": (-1.0, 2.0)}
    model = comparison.fit(table, KEYS, "rate", prior=prior)
    engine = pd.get_dummies(table["engine"]).to_numpy(dtype=float)
    sitting = pd.get_dummies(comparison.sittings(table)).to_numpy(dtype=float)
    side = comparison.sides(table)[:, None]
    design = np.hstack([engine, sitting[:, :-1] - sitting[:, -1:], side])
    own = np.hstack([engine[:, [k]] * sitting for k in range(3)])
    parts = {"residual": np.eye(len(table)), "sitting": own @ own.T}
    parts["placement"] = (engine * side) @ (engine * side).T
    # A step of the residual's logarithm moves all variances, one of a ratio its own.
    steps = [sum(model.variances[name] * parts[name] for name in parts)]
    steps += [model.variances[name] * parts[name] for name in ("sitting", "placement")]
    inverse = np.linalg.inv(steps[0])
    covariance = np.linalg.inv(design.T @ inverse @ design)
    lever = inverse @ design @ covariance
    projection = inverse - lever @ design.T @ inverse
    assert model.effects == pytest.approx((lever.T @ np.log(table["rate"]))[:3])
    assert model.covariance == pytest.approx(covariance[:3, :3])
    for number, step in enumerate(steps):
        assert model.gradients[number] == pytest.approx((lever.T @ step @ lever)[:3, :3])
        expected = [0.5 * np.trace(projection @ step @ projection @ other) for other in steps]
        expected[number] += 1 / prior["sitting"][1] ** 2 if number else 0
        assert model.information[number] == pytest.approx(expected)


def test_placements_weigh_equally_however_often_each_was_met():
    rng = np.random.default_rng(2)
    near, apart = 100.0, 140.0
    table = runs(
        *((engine, sitting, scattered(rng, level * factor, count))
          for engine, factor, most_near in (("a", 1.0, True), ("b", 1.1, False))
          for sitting in (0, 1)
          for level, count in ((near, 6 if most_near else 2), (apart, 2 if most_near else 6)))
    )  # fmt: skip
    table["placement"] = np.where(table["rate"] < 122, "near", "apart")
    without = comparison.fit(table.drop(columns="placement"), KEYS, "rate").compare(["b"], ["a"])
    found = comparison.fit(table, KEYS, "rate").compare(["b"], ["a"])
    assert without["ratio"] > 1.2
    assert found["ratio"] == pytest.approx(1.1, rel=0.01)
    assert found["high"] / found["low"] < without["high"] / without["low"]


def test_intervals_hold_and_equals_are_seldom_distinguished():
    rng = np.random.default_rng(1)
    covered, false = [], []
    for _ in range(60):
        sittings = 0.05 * rng.standard_normal(3)
        groups = [
            (
                engine,
                sitting,
                100
                * np.exp(sittings[sitting] + 0.02 * rng.standard_normal() + 0.06 * rng.standard_normal(n)),
            )
            for engine, counts in (("a", (12, 3, 0)), ("b", (1, 3, 2)), ("c", (3, 0, 3)), ("d", (0, 3, 0)))
            for sitting, n in enumerate(counts)
        ]
        model = comparison.fit(runs(*groups), KEYS, "rate")
        found = model.pairs(list(itertools.combinations(range(4), 2)))
        covered += ((found["low"] <= 1) & (found["high"] >= 1)).tolist()
        false.append((found["p"] < 0.05 / 6).any())
    assert np.mean(covered) > 0.92
    assert np.mean(false) < 0.1


def test_rounds_that_would_settle_are_those_that_narrow_the_interval_enough():
    rng = np.random.default_rng(4)
    table = runs(
        *(
            (engine, s, scattered(rng, level, 3, 0.06))
            for engine, level in (("a", 100), ("b", 104), ("c", 50))
            for s in (0, 1)
        )
    )
    model = comparison.fit(table, KEYS, "rate")
    found = model.compare(["a"], ["b"])
    assert found["verdict"] == comparison.EQUAL
    rounds = found["rounds_to_settle"]
    assert rounds % comparison.ROUNDS_A_SITTING == 0
    residual, mood = model.variances["residual"], model.variances["sitting"]
    # So many rounds in further sittings, three in each, added to what is known.
    error = math.log(found["high"] / found["ratio"]) / stats.t.ppf(0.975, found["degrees_of_freedom"])

    def known(n):
        return 1 / error**2 + n / 3 / (2 * mood + 2 * residual / 3)

    needed = (1.959964 / abs(math.log(found["ratio"]))) ** 2
    assert known(rounds) >= needed > known(rounds - 3)
    # Nearly equal ones are never settled.
    assert model.rounds_to_settle(1e-6, error) == math.inf
    assert math.isnan(model.compare(["a"], ["c"])["rounds_to_settle"])


@pytest.mark.parametrize("figures", [[0.0, 1.0], [-1.0, 2.0]])
def test_a_figure_that_is_not_above_zero_is_refused(figures):
    with pytest.raises(ValueError, match="rate is not above zero"):
        comparison.fit(runs(("a", 0, figures)), KEYS, "rate")


def test_an_unknown_configuration_names_those_that_there_are():
    with pytest.raises(KeyError, match="take one of a, b"):
        comparison.fit(runs(("a", 0, [1, 2]), ("b", 0, [1, 2])), KEYS, "rate").compare(["a"], ["x"])


def test_the_order_of_the_rows_does_not_matter():
    rng = np.random.default_rng(9)
    table = runs(*((e, s, scattered(rng, 100, 3, 0.05)) for e in "abc" for s in (0, 1)))
    one = comparison.fit(table, KEYS, "rate").means()
    other = comparison.fit(table.sample(frac=1, random_state=0), KEYS, "rate").means()
    pd.testing.assert_frame_equal(one, other, rtol=1e-6)
