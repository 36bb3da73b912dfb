"""What holds on every machine: pooling after Hartung and Knapp, a further machine's ratio, and the verdicts."""

import numpy as np
import pandas as pd
import pytest
from builders import write_repeats, write_run
from scipy import optimize, stats

from bench.analysis import across_machines as across
from bench.analysis import across_machines_proof as proof
from bench.observations import store

# The 13 trials of the BCG vaccine (Colditz et al., JAMA 271, 1994), the example of R's metafor: vaccinated with
# and without tuberculosis, controls with and without.
BCG = np.array([
    (4, 119, 11, 128), (6, 300, 29, 274), (3, 228, 11, 209), (62, 13536, 248, 12619), (33, 5036, 47, 5761),
    (180, 1361, 372, 1079), (8, 2537, 10, 619), (505, 87886, 499, 87892), (29, 7470, 45, 7232),
    (17, 1699, 65, 1600), (186, 50448, 141, 27197), (5, 2493, 3, 2338), (27, 16886, 29, 17825),
])  # fmt: skip


def bcg():
    """(log risk ratios, their standard errors)."""
    a, b, c, d = BCG.T
    return np.log(a / (a + b) / (c / (c + d))), np.sqrt(1 / a - 1 / (a + b) + 1 / c - 1 / (c + d))


def test_the_pooled_interval_is_that_of_metafor():
    found = across.pool(*bcg())  # rma(yi, vi, data = dat.bcg, method = "REML", test = "knha")
    assert found.spread**2 == pytest.approx(0.3132, abs=5e-5)
    assert found.mean == pytest.approx(-0.7145, abs=5e-5)
    half = stats.t.ppf(0.975, 12) * 0.1807
    assert (found.low, found.high) == pytest.approx((-0.7145 - half, -0.7145 + half), abs=1e-3)


def test_mean_and_error_are_those_of_statsmodels_at_its_own_spread():
    from statsmodels.stats.meta_analysis import combine_effects

    y, error = bcg()
    theirs = combine_effects(y, error**2, method_re="iterated", use_t=True)
    mean, variance, factor = across.weighted(y, error**2, np.array(theirs.tau2))
    assert mean == pytest.approx(theirs.mean_effect_re)
    assert variance * factor == pytest.approx(theirs.var_hksj_re)


def test_the_spread_maximises_the_restricted_likelihood():
    random = np.random.default_rng(3)

    def loss(between, y, v):
        total = v + between
        mean = np.average(y, weights=1 / total)
        return 0.5 * (np.log(total).sum() + np.log((1 / total).sum()) + ((y - mean) ** 2 / total).sum())

    for count in (2, 3, 4, 9):
        v = random.uniform(0.001, 0.05, count)
        y = np.sqrt(v + 0.04) * random.standard_normal(count)
        best = optimize.minimize_scalar(
            loss, bounds=(0, 5), args=(y, v), options={"xatol": 1e-10}, method="bounded"
        )
        assert across.reml(y, v) == pytest.approx(best.x, abs=1e-5)


def test_machines_that_happen_to_agree_make_no_interval_of_nearly_no_width():
    found = across.pool(np.array([0.5, 0.5, 0.5]), np.array([0.1, 0.1, 0.1]))
    assert found.spread == 0
    assert found.high - found.mean == pytest.approx(stats.t.ppf(0.975, 2) * 0.1 / 3**0.5)
    assert found.predicted_low < 0.5 < found.predicted_high


def test_of_two_machines_nothing_is_said_of_a_third():
    found = across.pool(np.array([0.5, 0.7]), np.array([0.1, 0.1]))
    assert np.isnan([found.predicted_low, found.predicted_high]).all() and found.low < 0.6 < found.high


@pytest.mark.check
def test_published_intervals_hold_and_dersimonian_and_laird_s_does_not():
    found = proof.coverage(studies=1500, seed=2, counts=(4,))
    assert proof.broken(found).empty and len(found) == 5 * 3 * 2 * 2
    laird = found[(found["method"] == proof.LAIRD) & (found["spread"] > 0)]
    assert laird["share"].max() < 0.9


def test_an_interval_that_misses_more_often_is_reported_as_broken(monkeypatch):
    monkeypatch.setattr(across, "pool", lambda y, e: across.Pooled(*[y.mean(axis=1)] * 6))
    assert len(proof.broken(proof.coverage(studies=50, counts=(3,), spreads=(0.1,)))) == 8


@pytest.mark.check
def test_the_committed_proof_is_that_of_this_code():
    committed = proof.load()
    assert proof.broken(committed).empty and list(committed) == proof.COVERAGE
    again = proof.coverage(int(committed["studies"].iloc[0]), counts=(3,), spreads=(0.0,))
    pd.testing.assert_frame_equal(again.round(4), committed.head(len(again)), check_dtype=False)
    assert set(committed["machines"]) == set(proof.COUNTS) and set(committed["spread"]) == set(proof.SPREADS)


@pytest.mark.parametrize(
    "intervals, repeated, pooled, said",
    [
        ([(0.1, 0.3), (0.2, 0.4), (0.1, 0.9)], 3, (0.1, 0.5), "faster on every machine"),
        ([(0.1, 0.3), (0.2, 0.4), (0.1, 0.9), (0.1, 2)], 3, (0.1, 0.5), "faster on every machine"),
        ([(0.1, 0.3), (0.2, 0.4), (0.1, 0.9)], 2, (0.1, 0.5), "faster so far on all 3"),
        ([(-0.3, -0.1), (-0.4, -0.2)], 2, (-2, 2), "slower so far on all 2"),
        ([(-0.3, -0.1)] * 3, 3, (-0.3, -0.1), "slower on every machine"),
        ([(0.1, 0.3), (-0.4, -0.2), (0.1, 0.9)], 3, (-1, 1), "depends on the machine"),
        ([(0.5, 0.7), (-0.1, 0.2), (0.1, 0.9)], 3, (0.1, 0.5), "depends on the machine"),
        ([(0.1, 0.3), (-0.1, 0.4), (0.1, 0.9)], 3, (0.1, 0.5), "faster on average"),
        ([(-0.3, -0.1), (-0.4, 0.2)], 0, (-0.3, -0.1), "slower on average"),
        ([(0.1, 0.3), (-0.1, 0.4), (0.1, 0.9)], 3, (-0.1, 0.5), "cannot be distinguished"),
        ([(np.nan, np.nan), (0.1, 0.4)], 0, (np.nan, np.nan), "one run each"),
    ],
)
def test_verdicts(intervals, repeated, pooled, said):
    lows, highs = np.array(intervals).T
    assert across.verdict(lows, highs, repeated, *pooled) == said


# --- from runs ---------------------------------------------------------------------------------------------

MACHINES = [("a-2c", "aaa111"), ("b-2c", "bbb222"), ("c-2c", "ccc333")]


def write_machines(folder, rates, machines=MACHINES, **more):
    """Three runs of each option of `rates` {option: tokens/s} on each machine, 1 % apart."""
    for k, (gpu, host) in enumerate(machines):
        for option, rate in rates.items():
            each = [rate * (1 + k / 5) * factor for factor in (0.99, 1.0, 1.01)]
            write_repeats(folder, each, option=option, gpu=gpu, host=host, **more)
    return store.load(folder=folder)


def test_what_is_faster_by_far_is_so_on_every_machine(tmp_path):
    requests = write_machines(tmp_path, {"int4": 100.0, "int8": 50.0, "float32": 50.4})
    found = across.every_pair(requests).set_index(["option", "than_option"])
    assert len(found) == 3
    row = found.loc["int4", "int8"]
    assert row["verdict"] == "faster on every machine" and (row["machines"], row["repeated"]) == (3, 3)
    assert row["ratio"] == pytest.approx(1.64, rel=0.1) and row["low"] < row["ratio"] < row["high"]
    assert found.loc["float32", "int8"]["verdict"] == across.OPEN
    against = across.against_leader(requests)
    assert set(against["than_option"]) == {"int4"} and list(against["option"]) == ["float32", "int8"]
    assert set(against["verdict"]) == {"slower on every machine"}


def test_a_machine_with_one_run_enters_with_the_scatter_of_others_and_is_marked(tmp_path):
    write_machines(tmp_path, {"int4": 100.0, "float32": 50.0}, MACHINES[:2])
    for option, rate in (("int4", 100.0), ("float32", 50.0)):
        write_run(tmp_path, option=option, rate=rate, gpu="d-2c", host="ddd444")
    runs = across.compared(store.load(folder=tmp_path))
    deviation, freedom = across.scatter(runs)
    assert 0.005 < deviation < 0.015 and freedom == 8  # four cells of three runs, that scatter alike
    pair = (("fake", "int4", "1.0"), ("fake", "float32", "1.0"))
    each = across.ratios(runs, [pair]).set_index("machine")
    assert list(each["borrowed"]) == [False, False, True]
    assert each.loc["d-2c", "standard_error"] == pytest.approx(deviation * 2**0.5)
    assert each.loc["d-2c", "degrees_of_freedom"] == freedom
    row = across.pooled(each.reset_index()).iloc[0]
    assert (row["machines"], row["repeated"], row["borrowed"]) == (3, 2, 1)
    assert row["verdict"] == "faster so far on all 3"


def test_scatter_that_differs_between_configurations_is_known_less_well():
    random, rows = np.random.default_rng(1), []
    for k in range(60):
        for deviation in (0.05, 0.01 if k % 2 else 0.2):
            for value in random.normal(0, deviation, 4):
                rows.append(("m", "e", f"{deviation} {k}", "1", np.exp(value)))
    runs = pd.DataFrame(rows, columns=["machine", *across.KEYS, across.RATE]).assign(placement="")
    alike = runs[runs["option"].str.startswith("0.05 ")]
    deviation, freedom = across.scatter(alike)
    assert deviation == pytest.approx(0.05, rel=0.3)
    assert across.scatter(runs)[1] < min(6, freedom)
    assert np.isnan(across.scatter(runs.drop_duplicates("option"))[0])


def test_one_run_everywhere_is_no_verdict(tmp_path):
    for gpu, host in MACHINES:
        for option, rate in (("int4", 100.0), ("float32", 50.0)):
            write_run(tmp_path, option=option, rate=rate, gpu=gpu, host=host)
    row = across.every_pair(store.load(folder=tmp_path)).iloc[0]
    assert row["verdict"] == across.ONE_RUN_EACH and np.isnan(row["low"])


def test_versions_are_apart(tmp_path):
    write_machines(tmp_path, {"int4": 100.0, "float32": 50.0}, MACHINES[:1])
    requests = write_machines(tmp_path, {"int4": 100.0}, MACHINES[1:], backend_version="2.0")
    assert across.every_pair(requests).empty  # no other machine has both of one version
    assert set(across.compared(requests)["option"]) == {"int4 (1.0)", "int4 (2.0)", "float32"}


def test_two_checkouts_on_one_kind_of_processor_are_two_machines(tmp_path):
    requests = write_machines(
        tmp_path, {"int4": 100.0, "float32": 50.0}, [("a-2c", "aaa111"), ("a-2c", "bbb222")]
    )
    each = across.each_against_leader(requests)
    assert list(each["machine"]) == ["a-2c (aaa111)", "a-2c (bbb222)"]


def test_processors_are_not_pooled_with_gpus_nor_models_with_others(tmp_path):
    write_machines(tmp_path, {"int4": 100.0, "float32": 50.0}, [*MACHINES[:2], ("h200", "eee555")])
    requests = write_machines(
        tmp_path, {"int4": 100.0}, MACHINES[:2], model="shape:tinyllama-1.1b", weights="synthetic"
    )
    runs = across.compared(requests)
    assert set(runs["gpu"]) == {"a-2c", "b-2c"} and set(runs["model"]) == {"smollm2-135m"}


def test_failed_runs_are_left_out(tmp_path):
    requests = write_machines(tmp_path, {"int4": 100.0, "float32": 50.0})
    failed = requests["option"] == "float32"
    requests.loc[failed & (requests["gpu"] != "a-2c"), "error"] = "RuntimeError: lost"
    assert across.every_pair(requests).empty


def test_rounds_are_counted_over_configurations(tmp_path):
    write_machines(tmp_path, {"int4": 100.0, "float32": 50.0}, MACHINES[:2])
    write_run(tmp_path, option="int4", gpu="c-2c", host="ccc333")
    assert across.machines_with_rounds(store.load(folder=tmp_path)) == ["a-2c", "b-2c"]


def test_without_runs_there_is_nothing(tmp_path):
    nothing = store.load(folder=tmp_path)
    assert across.every_pair(nothing).empty and across.against_leader(nothing).empty
    assert across.leader(across.compared(nothing)) is None and across.machines_with_rounds(nothing) == []
