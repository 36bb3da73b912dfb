"""The regression of all machines: what it estimates, how wide, and what is not said."""

import math
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bench import paths
from bench.observations import store
from bench.topics import across_machines, estimates, latency, proof

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
    return pd.DataFrame(rows).assign(failed=0, not_judged="")


def drawn(seed: int, session: float = 0.1, scatter: tuple[float, float] = (0.05, 0.05)) -> pd.DataFrame:
    """Options a, b, c on two hosts in four sessions of three runs; c met nobody on host h2."""
    random, figures = np.random.default_rng(seed), {}
    for host, own in zip(("h1", "h2"), scatter):
        for day in range(4):
            shift = random.normal(0, session)
            options = "abc" if host == "h1" else "c" if day > 2 else "ab"
            for option in options:
                figures[option, host, day] = np.exp(4 + shift + random.normal(0, own, 3))
    return made_up(figures)


def test_options_that_never_met_have_a_wider_interval_than_those_that_did():
    model = estimates.fit(drawn(1), KEYS, "rate")
    width = {
        pair: math.log(found["high"] / found["low"])
        for pair in ("ab", "ac")
        if (found := model.compare(*(("engine", option, "h2") for option in pair)))
    }
    assert width["ac"] > 1.5 * width["ab"]
    error = width["ac"] / 2 / stats.t.ppf(0.975, model.session_freedom)
    assert error**2 > 0.9 * model.session  # c: one session; a: three


def test_each_host_has_its_own_scatter_shrunk_to_the_pooled_one():
    model = estimates.fit(drawn(1, scatter=(0.01, 0.1)), KEYS, "rate")
    own, shrunk = np.sqrt(model.hosts["own"]), np.sqrt(model.hosts["variance"])
    assert own["h1"] < shrunk["h1"] < 0.02 and 0.05 < shrunk["h2"] < own["h2"]
    one = drawn(1)[lambda runs: runs["host"] == "h1"]
    alike = estimates.fit(pd.concat([one, one.assign(host="h2")], ignore_index=True), KEYS, "rate").hosts
    assert alike["variance"].to_list() == pytest.approx(alike["own"].to_list()), "hosts that do not differ"
    assert (alike["freedom"] == 2 * len(one) - 2 * 6).all(), "share all their runs"


def test_a_host_without_a_repeated_run_has_the_scatter_of_the_others():
    once = made_up({("a", "h3", 0): [50.0], ("b", "h3", 0): [80.0]})
    model = estimates.fit(pd.concat([drawn(1), once], ignore_index=True), KEYS, "rate")
    found = model.compare(("engine", "b", "h3"), ("engine", "a", "h3"))
    assert found["ratio"] == pytest.approx(1.6) and found["verdict"] == estimates.FASTER
    assert found["low"] < 1.45


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


def test_a_mean_and_its_interval_are_students():
    mean, low, high = estimates.mean_interval([2.56, 2.74, 2.47])
    assert (round(mean, 2), round(high - mean, 2)) == (2.59, 0.34)
    assert mean - low == pytest.approx(high - mean)
    assert math.isnan(estimates.mean_interval([1.0])[1])


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


def test_what_was_not_judged_is_not_compared():
    runs = made_up({("a", "h1", 0): [10, 10.1, 10.2], ("b", "h1", 0): [20, 20.1, 20.3]})
    runs = runs.assign(not_judged=["", "", "", "The reference takes 8 GB of memory.", "", ""])
    table = estimates.rank(runs, KEYS, "rate", True, estimates.fit(runs, KEYS, "rate")).set_index("option")
    assert table["reason"].to_dict() == {"a": "", "b": estimates.NOT_JUDGED}
    assert table["may_be_best"].to_dict() == {"a": True, "b": False}


def test_ten_lines_of_statsmodels_on_method_give_the_same_numbers():
    """Method's own lines, run as they stand there, against the committed table of ratios: within 1 %."""
    (lines,) = re.findall(
        r"```\{python\}\n(.*?)```", (paths.ROOT / "pages/_regression.qmd").read_text(), re.S
    )
    code = [line for line in lines.splitlines() if line and not line.startswith(("#", "import", "from"))]
    assert len(code) <= 20  # four that read, ten that fit, six that give the ratio
    names: dict = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a rank that is not full: only what is left of the runs is used
        exec(lines.replace("data/tables", str(paths.TABLES)), names)
    table = pd.read_csv(paths.TABLES / "across_machines.csv", dtype=str).dropna(subset=["low"])
    assert len(table) > 300
    for row in table.to_dict("records"):
        place = [row["model"], row["weights"], row["host"]]
        first = " ".join([row["backend"], row["option"], row["backend_version"], *place])
        second = " ".join([row["than_backend"], row["than_option"], row["than_backend_version"], *place])
        for name, value in zip(("ratio", "low", "high"), names["ratio"](first, second)):
            assert value == pytest.approx(float(row[name]), rel=0.01), (first, second, name)


def test_intervals_of_simulated_studies_hold_the_truth(committed):
    """Equal options in the committed sessions: those of one session, and on each host by its own scatter."""
    cells = estimates.cells(committed, latency.VERSIONED, latency.RATE)
    truth, random = estimates.fit_cells(cells, latency.VERSIONED), np.random.default_rng(39)
    hosts, runs = truth.table["host"].to_numpy(), cells["runs"].to_numpy()
    i, j = np.nonzero(np.triu(hosts[:, None] == hosts, 1))
    variance = truth.hosts["variance"].reindex(cells["host"]).to_numpy()
    numbers, held = pd.factorize(cells["measuring_session"])[0], []
    for _ in range(60):
        session = truth.session**0.5 * random.standard_normal(numbers.max() + 1)
        mean = session[numbers] + (variance / runs) ** 0.5 * random.standard_normal(len(cells))
        squares = variance * random.chisquare(np.maximum(runs - 1, 1)) * (runs > 1)
        model = estimates.fit_cells(cells.assign(mean=mean, squares=squares), latency.VERSIONED)
        held.append(model.pairs(list(zip(i, j)))["verdict"] == estimates.EQUAL)
    share = pd.DataFrame({"host": hosts[i], "met": truth.met[i, j], "held": np.mean(held, axis=0)})
    print(share.groupby(["met", "host"])["held"].agg(["mean", "size"]))
    assert share[share["met"]].groupby("host")["held"].mean().between(0.92, 0.985).all()
    assert 0.94 < share.loc[~share["met"], "held"].mean() < 0.99


@pytest.fixture(scope="module")
def committed():
    return across_machines.compared(store.load(store.committed_files()))


def test_an_option_differs_from_itself_as_often_as_the_model_says(committed):
    """A/A of the committed runs: every host in the band of the 100 data sets that `make proof` has drawn, and
    no more options above theirs than chance allows of so many (97.5 % of the binomial distribution)."""
    now = proof.equal_runs(committed, studies=1).set_index(["host", "option"])["differ"]
    table = pd.read_csv(paths.ROOT / "data/proof/equal_runs.csv").set_index(["host", "option"])
    assert now.to_dict() == pytest.approx(table["differ"].to_dict(), rel=1e-3), "run: make proof"
    hosts = table.xs("all", level="option")
    assert len(hosts) == 4 and hosts["differ"].between(hosts["low"], hosts["high"]).all(), hosts.to_string()
    options = table.drop(index="all", level="option").drop(index="all", level="host")
    above = int((options["differ"] > options["high"]).sum())
    assert len(options) > 60 and above <= stats.binom.ppf(0.975, len(options), 0.025), above


def test_the_check_of_equal_runs_sees_a_host_whose_scatter_is_too_small(committed, monkeypatch):
    """Were the scatter of all hosts pooled as before, and one host scattered twice as much, it would show."""
    random = np.random.default_rng(1)
    one = committed["host"] == "5f20d6"
    noise = np.where(one, np.exp(0.2 * random.standard_normal(len(committed))), 1.0)
    wild = committed.assign(output_tokens_per_s=committed["output_tokens_per_s"] * noise)
    pooled = estimates.scatter

    def one_scatter(*design):
        hosts = pooled(*design)
        return hosts.assign(variance=(hosts["own"] * hosts["freedom"]).sum() / hosts["freedom"].sum())

    monkeypatch.setattr(estimates, "scatter", one_scatter)
    table = proof.equal_runs(wild, studies=15, deals=3).set_index(["host", "option"])
    own = table.loc[("5f20d6", "all")]
    assert own["differ"] > own["high"]
