"""Where the processors lay beside each request: by the probes on both sides of it, and by nothing else."""

import numpy as np
import pytest
from builders import APART, NEAR, PROBES, write_flipping, write_run

from bench.analysis import latency, serving_proof
from bench.observations import placement, store


def two_states(random, ratio):
    """Probes of 20 runs of a machine whose processors move now and then, in two narrow states."""
    moved = np.cumsum(random.random((20, 10)) < 0.1, axis=1) + random.integers(0, 2, (20, 1))
    return list(NEAR * ratio ** (moved % 2) * np.exp(random.standard_normal((20, 10)) / 200))


@pytest.mark.parametrize("shape", serving_proof.SHAPES)
def test_of_200_machines_with_one_state_at_most_5_percent_are_split(shape):
    random = np.random.default_rng(1)
    for runs, alike in ((3, 0.0), (3, 0.6), (12, 0.0), (12, 0.6)):
        machines = (serving_proof.probes(random, shape, runs, alike) for _ in range(200))
        split = sum(placement.split(probes) is not None for probes in machines)
        assert split <= 10, (runs, alike, split)


def test_machines_with_two_states_are_split_where_they_part():
    random = np.random.default_rng(2)
    for runs in (20, 40):
        machines = [serving_proof.probes(random, serving_proof.TWO, runs, 0) for _ in range(100)]
        found = [placement.split(probes) for probes in machines]
        assert sum(each is not None for each in found) >= 90, runs
    states = [each.placements([NEAR, 1.5 * NEAR]) for each in found if each]
    assert all(list(each) == ["near", "apart"] for each in states)


def test_two_states_that_hardly_differ_are_no_placements():
    random = np.random.default_rng(3)
    assert placement.split(two_states(random, 1.1)) is None
    assert placement.split(two_states(random, 1.3)) is not None


def test_no_probes_and_equal_ones_are_one_state():
    assert placement.split([]) is None and placement.split([np.empty(0), np.array([np.nan])]) is None
    assert placement.split([np.full(10, NEAR)] * 5) is None


def test_a_probe_between_the_states_is_in_neither():
    found = placement.split([np.array(PROBES) * factor for factor in (0.97, 0.98, 1, 1.01, 1.02)])
    states = found.placements([NEAR / 3, NEAR, np.sqrt(NEAR * APART), APART, 3 * APART, np.nan])
    assert list(states) == ["near", "near", "", "apart", "apart", ""]


def loaded(folder):
    return store.load(folder=folder).sort_values(["run_id", "request"])


def test_a_request_has_the_placement_of_both_its_probes_and_that_peak(tmp_path):
    for run in (1, 2, 3):
        write_flipping(tmp_path, run, probes=[probe * (1 + run / 100) for probe in PROBES])
    rows = loaded(tmp_path)
    assert (rows["placements"] == 2).all()
    assert rows["placement"].tolist() == ["near", "near", "", "apart", "apart", ""] * 3
    peaks = rows.groupby("placement")["bandwidth_bytes_per_s"].first()
    assert peaks["near"] == pytest.approx(NEAR * 1.03) and peaks["apart"] == pytest.approx(APART * 1.03)
    assert rows.groupby("placement")["bandwidth_bytes_per_s"].nunique()["near"] == 1, "of all runs together"
    assert rows.loc[rows["placement"] == "", ["bandwidth_bytes_per_s", "mbu"]].isna().all(axis=None)
    near = rows[rows["placement"] == "near"].iloc[0]
    context = near["prompt_tokens"] + near["output_tokens"] / 2
    read = (near["weight_bytes"] + context * 1000 * 4) / near["tpot_s"]
    assert near["mbu"] == pytest.approx(read / (NEAR * 1.03), rel=1e-2)


def test_the_placement_does_not_hang_on_any_time(tmp_path):
    for run in (1, 2, 3):
        write_flipping(tmp_path / "slow", run)
        write_flipping(tmp_path / "fast", run, steps=(0.03, 0.001, 0.02, 0.03, 0.001, 0.02))
    slow, fast = (loaded(tmp_path / name)["placement"].tolist() for name in ("slow", "fast"))
    assert slow == fast


def test_a_machine_is_judged_by_all_its_runs_and_by_no_other_machine(tmp_path):
    for run in (1, 2, 3):
        write_flipping(tmp_path, run)
        write_flipping(tmp_path, run, probes=[APART] * 7, shares=[1.0] * 7, host="def456", gpu="other-cpu")
    write_flipping(tmp_path, 4, probes=[NEAR * 1.01] * 7, shares=[1.0] * 7)
    rows = loaded(tmp_path)
    assert set(rows.loc[rows["run_id"].str.endswith("-abc123-4"), "placement"]) == {"near"}
    other = rows[rows["host"] == "def456"]
    assert set(other["placement"]) == {""} and (other["placements"] == 1).all()
    assert (other["bandwidth_bytes_per_s"] == APART).all(), "one state: the run's best probe, as it was found"
    assert len(placement.counted(rows)) == len(rows) - 2 * 3


def test_probes_of_one_way_and_of_three_are_two_scales(tmp_path):
    ways = [{"reduction": NEAR, "dot_product": NEAR, "matrix_vector": NEAR}] * 7
    for run in (1, 2, 3):
        write_flipping(tmp_path, run, probes=[NEAR] * 7, shares=[1.0] * 7)
        write_flipping(tmp_path, run + 3, probes=[APART] * 7, shares=[1.0] * 7, probe_ways_bytes_per_s=ways)
    assert set(loaded(tmp_path)["placement"]) == {""}, "each kind of probe has found one state"


def test_probes_that_may_have_shared_a_core_and_runs_of_many_requests_at_once_say_nothing(tmp_path):
    for run in (1, 2, 3):
        write_flipping(tmp_path, run, shares=[])
        write_flipping(tmp_path, run, experiment="overhead", gpu="other-cpu")
    rows = loaded(tmp_path)
    assert set(rows["placement"]) == {""} and (rows["placements"] == 1).all()


def test_a_run_gives_one_value_of_each_placement_with_its_number_of_requests(tmp_path):
    for run in (1, 2, 3):
        steps = (0.01, 0.01, 0.01, 0.5, 0.012, 0.012, 0.012)
        write_flipping(tmp_path, run, steps, probes=[NEAR] * 4 + [APART] * 4, shares=[1.0] * 8)
    write_run(tmp_path, host="def456", gpu="other-cpu")
    cells = latency.runs(store.load(folder=tmp_path), strata=True)
    flipping = cells[cells["host"] == "abc123"]
    assert flipping["placement"].tolist() == ["apart", "near"] * 3
    assert set(flipping["requests"]) == {latency.FEWEST_REQUESTS}
    assert flipping["tpot_s"].tolist() == pytest.approx([0.012, 0.01] * 3), "of its own requests alone"
    (single,) = cells[cells["host"] == "def456"].to_dict("records")
    assert single["placement"] == "" and single["requests"] == 3
    assert len(latency.runs(store.load(folder=tmp_path))) == 4
