"""Two processors that answer each other quickly share a way to memory; those that lie apart do not."""

import io
import pathlib
import shutil
import subprocess

import pandas as pd
import pytest

from bench.analysis import placement
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
    method = (ROOT / "pages" / "method.qmd").read_text()
    assert "placement.core_placement()" in method and all("{" + name + "}" in method for name in said)


def test_the_page_is_right_that_neighbours_share_and_others_do_not():
    states = placement.states()
    together = states["two_cores_bytes_per_s"] / states["one_core_bytes_per_s"]
    assert together["near"] < 1.3 and together["apart"] > 1.5
    alone = states["one_core_bytes_per_s"]
    assert alone["apart"] == pytest.approx(alone["near"], rel=0.1)


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_the_program_compiles_and_writes_the_columns_of_the_table(tmp_path):
    if "avx" not in pathlib.Path("/proc/cpuinfo").read_text():
        pytest.skip("no AVX")
    built = tmp_path / "placement"
    subprocess.run(["cc", "-O3", "-mavx", "-pthread", PROGRAM, "-o", built], check=True)
    written = subprocess.run([built, "0.01"], capture_output=True, text=True, check=True).stdout
    table = pd.read_csv(io.StringIO(written))
    assert list(table.columns) == COLUMNS and (table > 0).all(axis=None)
