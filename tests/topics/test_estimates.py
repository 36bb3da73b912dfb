"""The regression of all machines: what it estimates, how wide, and what is not said."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats

from bench.topics import estimates

KEYS = ["backend", "option", "host"]


def made_up(figures: dict[tuple[str, str, int], list[float]]) -> pd.DataFrame:
    """Runs of {(option, host, session): rates}; sessions are a day apart."""
    rows = [
        {
            "backend": "engine",
            "option": option,
            "host": host,
            "started": pd.Timestamp("2026-11-01", tz="UTC") + pd.Timedelta(days=session, minutes=k),
            "rate": rate,
        }
        for (option, host, session), rates in figures.items()
        for k, rate in enumerate(rates)
    ]
    return pd.DataFrame(rows)


def drawn(seed: int, session: float = 0.1) -> pd.DataFrame:
    """Options a, b, c on two hosts in four sessions of three runs; c met nobody on host h2."""
    random, figures = np.random.default_rng(seed), {}
    for host in ("h1", "h2"):
        for day in range(4):
            shift = random.normal(0, session)
            options = "abc" if host == "h1" else "c" if day > 2 else "ab"
            for option in options:
                figures[option, host, day] = np.exp(4 + shift + random.normal(0, 0.05, 3))
    return made_up(figures)


def test_options_that_never_met_have_a_wider_interval_than_those_that_did():
    model = estimates.fit(drawn(1), KEYS, "rate")
    width = {
        pair: math.log(found["high"] / found["low"])
        for pair in ("ab", "ac")
        if (found := model.compare(*(("engine", option, "h2") for option in pair)))
    }
    assert width["ac"] > 1.5 * width["ab"]
    twice = 2 * model.variances["session"]
    error = width["ac"] / 2 / stats.t.ppf(0.975, model.session_freedom)
    assert error**2 > 0.9 * twice * 0.5  # c: one session; a: three


def test_variances_are_those_of_the_restricted_likelihood_in_a_balanced_design():
    runs = drawn(3)
    runs = runs[runs["host"] == "h1"]
    model = estimates.fit(runs, KEYS, "rate")
    table = estimates.cells(runs, KEYS, "rate")
    reference = sm.MixedLM(
        100 * table["mean"], pd.get_dummies(table["option"]).astype(float), groups=table["measuring_session"]
    ).fit(reml=True)
    assert model.variances["session"] == pytest.approx(float(reference.cov_re.iloc[0, 0]) / 1e4, rel=0.05)
    assert model.effects == pytest.approx(reference.fe_params.to_numpy() / 100, abs=1e-6)


def test_a_cell_of_one_run_varies_more_than_one_of_many():
    random = np.random.default_rng(5)
    figures = {("a", "h1", d): np.exp(random.normal(3, 0.1, 9)) for d in range(3)}
    figures |= {(o, "h1", d): np.exp(random.normal(3, 0.1, 1)) for d in range(3) for o in "b"}
    model = estimates.fit(made_up(figures), KEYS, "rate")
    variance = np.diag(model.covariance)
    assert variance[model.place(("engine", "b", "h1"))] > 1.5 * variance[model.place(("engine", "a", "h1"))]


def test_without_a_repeated_session_what_never_met_is_not_compared_and_a_session_is_named():
    runs = made_up({("a", "h1", 0): [1.0, 1.1], ("b", "h1", 5): [2.0, 2.1], ("c", "h1", 0): [2.0, 2.2]})
    model = estimates.fit(runs, KEYS, "rate")
    assert model.compare(("engine", "b", "h1"), ("engine", "a", "h1"))["verdict"] == estimates.NEVER_MET
    assert model.compare(("engine", "c", "h1"), ("engine", "a", "h1"))["verdict"] == estimates.FASTER
    assert set(model.means()["note"]) == {estimates.ONE_SESSION}


def test_one_run_each_has_no_interval():
    model = estimates.fit(made_up({("a", "h1", 0): [1.0], ("b", "h1", 0): [2.0]}), KEYS, "rate")
    found = model.compare(("engine", "b", "h1"), ("engine", "a", "h1"))
    assert found["ratio"] == pytest.approx(2) and math.isnan(found["low"])
    assert found["verdict"] == estimates.ONE_EACH


def test_hosts_are_never_pooled():
    model = estimates.fit(drawn(1), KEYS, "rate")
    assert math.isnan(model.compare(("engine", "a", "h1"), ("engine", "a", "h2"))["ratio"])
    with pytest.raises(ValueError, match="host"):
        estimates.fit(drawn(1), ["option"], "rate")


def test_a_mean_outside_the_range_of_its_runs_says_so():
    random = np.random.default_rng(2)
    figures = {("a", "h1", d): (100 if d else 200) * np.exp(random.normal(0, 0.01, 3)) for d in range(4)}
    figures["b", "h1", 0] = list(200 * np.exp(random.normal(0, 0.01, 3)))
    means = estimates.fit(made_up(figures), KEYS, "rate").means().set_index("option")
    assert means.loc["b", "mean"] < means.loc["b", "least"]
    assert estimates.OUTSIDE in means.loc["b", "note"]


def test_nothing_is_best_while_all_runs_of_one_that_was_not_compared_are_better():
    runs = made_up({("a", "h1", 0): [10, 10.1, 10.2], ("b", "h1", 0): [20, 20.1, 20.3], ("c", "h1", 0): [30]})
    runs = runs.assign(failed=(runs["option"] == "c").astype(int))
    leader, why = estimates.best(estimates.rank(runs, KEYS, "rate"))
    assert leader is None and "engine c (failed requests)" in why
    leader, why = estimates.best(estimates.rank(runs[runs["option"] != "c"], KEYS, "rate"))
    assert leader["option"] == "b" and not why


def test_a_mean_and_its_interval_are_students():
    mean, low, high = estimates.mean_interval([2.56, 2.74, 2.47])
    assert (round(mean, 2), round(high - mean, 2)) == (2.59, 0.34)
    assert mean - low == pytest.approx(high - mean)
    assert math.isnan(estimates.mean_interval([1.0])[1])


def test_a_rank_deficient_design_is_not_solved_in_silence(monkeypatch):
    """Were no session of a chain its reference, effects of sessions and of configurations would have no single solution."""
    alone = lambda graph: (len(graph), np.arange(len(graph)))  # noqa: E731
    assert estimates.fit(drawn(1), KEYS, "rate").session_freedom > 0
    monkeypatch.setattr(estimates.pd.Series, "duplicated", lambda series: series.notna())
    monkeypatch.setattr(estimates, "connected_components", alone)
    with pytest.raises(ValueError, match="The design has rank"):
        estimates.fit(drawn(1), KEYS, "rate")


def test_a_warning_of_a_fit_is_an_error(monkeypatch):
    def warns(*_, **__):
        warnings.warn("the fit did not converge", RuntimeWarning)

    monkeypatch.setattr("statsmodels.regression.linear_model.GLS", warns)
    with pytest.raises(RuntimeWarning, match="did not converge"):
        estimates.fit(drawn(1), KEYS, "rate")


def test_a_gain_inside_a_run_is_the_mean_over_runs():
    """W1 of the referee's report: openvino F16 was published as gaining most, with a mean above its runs."""
    gains = {"vllm": [3.41, 3.33, 4.04], "openvino": [2.56, 2.74, 2.47]}
    runs = pd.DataFrame(
        [(engine, gain) for engine, own in gains.items() for gain in own], columns=["backend", "gain"]
    )
    table = estimates.within_runs(runs, ["backend"], "gain").set_index("backend")
    assert table.loc["vllm", "mean"] == pytest.approx(3.593, abs=1e-3)
    assert table.loc["openvino", "mean"] == pytest.approx(2.59, abs=1e-2)
    assert table.loc["vllm", "low"] > table.loc["openvino", "mean"]


def test_what_was_not_judged_is_not_compared_and_nothing_slower_is_best():
    runs = made_up({("a", "h1", 0): [10, 10.1, 10.2], ("b", "h1", 0): [20, 20.1, 20.3]})
    runs = runs.assign(not_judged=["", "", "", "The reference takes 8 GB of memory.", "", ""])
    table = estimates.rank(runs, KEYS, "rate").set_index("option")
    assert table["reason"].to_dict() == {"a": "", "b": estimates.NOT_JUDGED}
    leader, why = estimates.best(table.reset_index())
    assert leader is None and "engine b (not judged)" in why
