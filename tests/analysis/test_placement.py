"""Two processors that answer each other quickly share a way to memory; those that lie apart do not."""

import io
import pathlib
import shutil
import subprocess

import pandas as pd
import pytest
from builders import NEAR, PROBES, SHARES, write_flipping

from bench.analysis import placement
from bench.observations import store
from bench.paths import ROOT
from bench.report import placement as sentences

COLUMNS = "elapsed_s one_core_bytes_per_s two_cores_bytes_per_s round_trip_s".split()
PROGRAM = ROOT / "bench/machine/core_placement.c"


def test_the_states_by_hand():
    rows = [(0, 38e9, 44e9, 90e-9), (1, 36e9, 42e9, 110e-9), (2, 30e9, 40e9, 200e-9), (3, 35e9, 70e9, 450e-9)]
    states = placement.states(pd.DataFrame(rows, columns=COLUMNS))
    assert states["samples"].to_dict() == {"near": 3, "apart": 1}
    assert states.loc["near", "two_cores_bytes_per_s"] == 42e9
    assert states.loc["apart", "round_trip_s"] == 450e-9


def test_the_page_says_what_the_table_holds():
    states, said = placement.states(), sentences.core_placement()
    assert said["near_two"] == f"{states.loc['near', 'two_cores_bytes_per_s'] / 1e9:.0f}"
    assert said["near"] + said["apart"] == states["samples"].sum()
    method = (ROOT / "method.qmd").read_text()
    assert "placement.core_placement()" in method and all("{" + name + "}" in method for name in said)


def test_the_page_is_right_that_neighbours_share_and_others_do_not():
    states = placement.states()
    together = states["two_cores_bytes_per_s"] / states["one_core_bytes_per_s"]
    assert together["near"] < 1.3 and together["apart"] > 1.5
    alone = states["one_core_bytes_per_s"]
    assert alone["apart"] == pytest.approx(alone["near"], rel=0.1)


def effects(folder):
    return placement.effects(store.load(folder=folder))


def test_a_run_is_compared_with_itself(tmp_path):
    write_flipping(tmp_path, 1)
    write_flipping(tmp_path, 2, steps=(0.02, 0.02, 0.5, 0.024, 0.024, 0.5))
    assert effects(tmp_path).empty, "two runs are too few"
    write_flipping(tmp_path, 3, steps=(0.02, 0.02, 0.5, 0.025, 0.025, 0.5))
    (row,) = effects(tmp_path).to_dict("records")
    assert (row["runs"], row["near"], row["apart"]) == (3, 6, 6)
    assert row["ratio"] == pytest.approx((1.2 * 1.2 * 1.25) ** (1 / 3))
    assert 1 < row["low"] < row["ratio"] < row["high"]


def test_runs_of_one_place_and_probes_without_shares_say_nothing(tmp_path):
    for run in (1, 2, 3):
        write_flipping(tmp_path / "one", run, probes=[NEAR * (1 + k / 50) for k in range(7)])
        write_flipping(tmp_path / "old", run, shares=[])
        write_flipping(tmp_path / "few", run, probes=PROBES[:-1], shares=SHARES[:-1])
        write_flipping(tmp_path / "disturbed", run, shares=[1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5])
    for name in ("one", "old", "few", "disturbed"):
        assert effects(tmp_path / name).empty, name
        assert sentences.effect(store.load(folder=tmp_path / name)) == ""


def test_the_more_is_compared_the_wider_it_gets(tmp_path):
    for run, far in ((1, 0.012), (2, 0.0122), (3, 0.0125)):
        write_flipping(tmp_path, run, steps=(0.01, 0.01, 0.5, far, far, 0.5))
    (alone,) = effects(tmp_path).to_dict("records")
    for run, far in ((1, 0.007), (2, 0.0071), (3, 0.0069)):
        write_flipping(
            tmp_path, run, steps=(0.01, 0.01, 0.5, far, far, 0.5), backend="openvino", option="F16"
        )
    first, last = effects(tmp_path).to_dict("records")
    assert (first["backend"], last["backend"]) == ("openvino", "fake"), "the one that gains most comes first"
    assert first["ratio"] < 1 and last["high"] / last["low"] > alone["high"] / alone["low"]


def test_the_sentence_follows_the_data(tmp_path):
    for run in range(1, 5):
        for backend, far in (("fake", 0.0125), ("openvino", 0.007), ("vllm", 0.01)):
            write_flipping(tmp_path, run, steps=(0.01, 0.01, 0.5, far, far, 0.5), backend=backend)
    said = sentences.effect(store.load(folder=tmp_path))
    assert "12 runs of 3 configurations on `test-cpu` met both placements" in said
    assert "For 1 a token takes less time while they lie apart" in said
    assert "openvino float32, 0.7 times as long (0.7 to 0.7)" in said
    assert "For 1 a token takes longer" in said
    assert "fake float32, 1.25 times" in said
    assert "Of 1 the effect is not significant." in said


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_the_program_compiles_and_writes_the_columns_of_the_table(tmp_path):
    if "avx" not in pathlib.Path("/proc/cpuinfo").read_text():
        pytest.skip("no AVX")
    built = tmp_path / "placement"
    subprocess.run(["cc", "-O3", "-mavx", "-pthread", PROGRAM, "-o", built], check=True)
    written = subprocess.run([built, "0.01"], capture_output=True, text=True, check=True).stdout
    table = pd.read_csv(io.StringIO(written))
    assert list(table.columns) == COLUMNS and (table > 0).all(axis=None)
