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
from bench.observations.peaks import measuring_sessions
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


def scatter(model: estimates.Fit) -> dict:
    """Return the standard deviation between runs of each (option, host)."""
    table = model.table.set_index(["option", "host"])
    return np.sqrt(table["variance"]).to_dict()


def test_each_host_and_each_option_has_its_own_scatter_shrunk_to_the_common_one():
    by_host = scatter(estimates.fit(drawn(1, scatter=(0.01, 0.1)), KEYS, "rate"))
    assert 0.005 < by_host["a", "h1"] < 0.025 and 0.06 < by_host["a", "h2"] < 0.13
    noisy = drawn(1, scatter=(0.02, 0.02))
    wild = np.exp(0.3 * np.random.default_rng(3).standard_normal(len(noisy)))
    model = estimates.fit(
        noisy.assign(rate=noisy["rate"] * np.where(noisy["option"] == "b", wild, 1)), KEYS, "rate"
    )
    by_option = scatter(model)
    assert by_option["b", "h1"] > 4 * by_option["a", "h1"] and by_option["b", "h2"] > 4 * by_option["a", "h2"]
    ab, ac = (model.compare(*(("engine", option, "h1") for option in pair)) for pair in ("ab", "ac"))
    assert math.log(ab["high"] / ab["low"]) > 2 * math.log(ac["high"] / ac["low"])


def test_a_variance_of_few_runs_lies_nearer_the_common_one_than_that_of_many():
    groups = pd.DataFrame({"squares": [4.0, 40.0, 0.5, 5.0, 1.0, 10.0], "freedom": [1.0, 10, 1, 10, 1, 10]})
    found = estimates.shrunk(groups)["variance"]
    assert found[1] > found[0] > found[4] and found[3] < found[2] < found[4]
    alike = estimates.shrunk(pd.DataFrame({"squares": [5.0] * 9, "freedom": [5.0] * 9}))
    assert alike["variance"].to_list() == pytest.approx([1.0] * 9, rel=1e-3), "groups that do not differ"
    assert alike["freedom"].to_list() == pytest.approx([45] * 9, rel=0.01), "share all their runs"


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


def test_lines_of_statsmodels_and_scipy_on_method_give_the_same_numbers():
    """Method's own lines, run as they stand there, against the committed table of ratios: within 1 %."""
    (lines,) = re.findall(
        r"```\{python\}\n(.*?)```", (paths.ROOT / "pages/_regression.qmd").read_text(), re.S
    )
    code = [line for line in lines.splitlines() if line and not line.startswith(("#", "import", "from"))]
    assert len(code) <= 30
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


@pytest.fixture(scope="module")
def committed():
    return across_machines.compared(store.load(store.committed_files()))


def test_intervals_of_simulated_studies_hold_the_truth(committed):
    """Equal options in the committed sessions, each with its own scatter on each host: 94 of 100 hold or more
    over all, and no option's fewer than nine in ten."""
    truth, random = estimates.fit(committed, latency.VERSIONED, latency.RATE), np.random.default_rng(39)
    table = truth.table
    hosts, name = table["host"].to_numpy(), (table["backend"] + " " + table["option"]).to_numpy()
    i, j = np.nonzero(np.triu(hosts[:, None] == hosts, 1))
    rows = committed[latency.VERSIONED].merge(table, "left", latency.VERSIONED)
    session, held = measuring_sessions(committed).to_numpy(), []
    for _ in range(60):
        shift = truth.session**0.5 * random.standard_normal(session.max() + 1)
        noise = rows["variance"].to_numpy() ** 0.5 * random.standard_normal(len(rows))
        drawn_ = committed.assign(**{latency.RATE: np.exp(shift[session] + noise)})
        model = estimates.fit(drawn_, latency.VERSIONED, latency.RATE)
        held.append(model.pairs(list(zip(i, j)))["verdict"] == estimates.EQUAL)
    share = pd.DataFrame({"met": truth.met[i, j], "held": np.mean(held, axis=0)})
    met = share[share["met"]]
    assert 0.94 < met["held"].mean() < 0.975 and 0.94 < share.loc[~share["met"], "held"].mean() < 0.99
    for option in set(name):
        assert (
            met.loc[(name[i] == option)[share["met"]] | (name[j] == option)[share["met"]], "held"].mean()
            > 0.9
        )


def missed(table: pd.DataFrame) -> dict[str, int]:
    """Return how many more shares of each kind lie above their band than chance explains in 99 of 100."""
    largest = table["option"].str.startswith("largest")
    kinds = {
        "hosts": table["option"] == "all",
        "options": (table["host"] == "all") & ~largest,
        "options of a host": (table["host"] != "all") & (table["option"] != "all"),
        "largest": largest,
    }
    above = table["differ"] > table["high"]
    more = {
        name: (above & own).sum() - stats.binom.ppf(0.99, own.sum(), 0.025) for name, own in kinds.items()
    }
    return {name: int(count) for name, count in more.items() if count > 0}


def test_an_option_differs_from_itself_as_often_as_the_model_says(committed):
    """A/A of the committed runs beside data sets drawn from the model: by host, by option, and the largest."""
    table = proof.equal_runs(committed, studies=20, deals=5)
    assert not missed(table), table[table["differ"] > table["high"]].to_string()


def test_the_check_of_equal_runs_sees_scatter_by_host_alone(committed, monkeypatch):
    """One option scatters by a further 0.25 on every host, and all options are given that of their hosts."""
    monkeypatch.setattr(estimates, "OPTION", ["weights"])
    wild = (committed["backend"] == "llamacpp") & (committed["option"] == "F16")
    noise = 0.25 * np.random.default_rng(1).standard_normal(len(committed))
    runs = committed.assign(**{latency.RATE: committed[latency.RATE] * np.exp(np.where(wild, noise, 0))})
    table = proof.equal_runs(runs, studies=10, deals=4)
    own = table[(table["host"] == "all") & table["option"].str.startswith("llamacpp F16 smollm2")]
    assert len(own) == 1 and (own["differ"] > own["high"]).all(), own.to_string()
