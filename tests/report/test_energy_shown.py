"""Joules per token in the table, and no column where nothing was read."""

import pytest
from builders import make_sidecar, write_run

from bench.observations import store
from bench.report import tables

IDLE = {"energy": {"idle": {"gpu_w": 90.0, "cpu_w": None}}}


@pytest.fixture
def requests(tmp_path):
    write_run(tmp_path, make_sidecar(**IDLE), gpu="h100", gpu_energy_j=30.0)
    write_run(tmp_path, make_sidecar(**IDLE), gpu="h100", gpu_energy_j=50.0, run=2)
    write_run(tmp_path, gpu="h100", option="int8", rate=200.0)  # nobody could tell
    return store.load(folder=tmp_path)


def test_the_table_has_the_columns_only_where_they_say_something(requests, tmp_path):
    table = tables.TABLES["latency"](requests)
    column = table["GPU energy per token (J)"]
    assert column.dropna().tolist() == pytest.approx([4]) and len(column) == 2
    assert table["GPU idle (W)"].dropna().tolist() == [90] and "CPU idle (W)" not in table
    write_run(tmp_path / "plain")
    plain = tables.TABLES["latency"](store.load(folder=tmp_path / "plain"))
    assert not [name for name in plain if "energy" in name or "idle" in name]
