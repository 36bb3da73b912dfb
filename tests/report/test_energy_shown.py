"""Joules per token: what the points are, what the figure and the table show of them, and nothing where nothing was read."""

import pytest
from builders import make_sidecar, write_run, write_serving, write_sweep
from pictures import words

from bench import html
from bench.analysis import energy as energy_analysis
from bench.observations import store
from bench.report import figures, pages, tables

IDLE = {"energy": {"idle": {"gpu_w": 90.0, "cpu_w": None}}}


@pytest.fixture
def requests(tmp_path):
    write_run(tmp_path, make_sidecar(**IDLE), gpu="h100", gpu_energy_j=30.0)
    write_run(tmp_path, make_sidecar(**IDLE), gpu="h100", gpu_energy_j=50.0, run=2)
    write_run(tmp_path, gpu="h100", option="int8", rate=200.0)  # nobody could tell
    write_sweep(tmp_path, gpu="h100", gpu_energy_j=32.0)
    write_serving(
        tmp_path, {1: (0.05, 0.01), 8: (0.1, 0.02)}, {2: (0.05, 0.01)}, gpu="h100", gpu_energy_j=5.5
    )
    return store.load(folder=tmp_path)


def test_joules_over_tokens_for_every_kind_of_run(requests):
    points = energy_analysis.points(requests).set_index(["kind", "loop", "load"])
    one = points.loc[("latency", "", 1)]
    assert one["joules_per_token"] == pytest.approx(4) and one["runs"] == 2 and one["idle_w"] == 90
    batches = points.loc["batching"]
    assert batches["joules_per_token"].tolist() == pytest.approx([32 / 64] * len(batches))
    assert sorted(batches.index.get_level_values("load")) == [1, 2, 4, 8, 16, 32, 64]
    assert batches["output_tokens_per_s"].is_monotonic_increasing
    levels = points.loc["serving"]
    assert {*levels.index} == {("closed", 1), ("closed", 8), ("open", 2)}
    assert levels["joules_per_token"].tolist() == pytest.approx([0.5] * 3)
    assert set(points["option"]) == {"float32"}


def test_on_a_cpu_it_is_the_cpus(tmp_path):
    write_run(tmp_path, gpu="epyc-zen5-2c", gpu_energy_j=1e6, cpu_energy_j=20.0)
    (joules,) = energy_analysis.points(store.load(folder=tmp_path))["joules_per_token"]
    assert joules == 2


def test_the_figure_names_what_was_counted(requests, tmp_path):
    drawn = figures.DRAWN["energy"](requests)
    assert [axes.get_title(loc="left") for axes in drawn.axes[:-1]] == [
        "One request at a time",
        "Batches",
        "A server under load",
    ]
    said = words(drawn)
    assert "energy of the GPUs alone" in said and "Idle, with an engine loaded: 90 W" in said
    figures.export(drawn, "energy", "redraw", tmp_path)


def test_the_table_has_the_columns_only_where_they_say_something(requests, tmp_path):
    table = tables.TABLES["latency"](requests)
    column = table["GPU energy per token (J)"]
    assert column.dropna().tolist() == pytest.approx([4]) and len(column) == 2
    assert table["GPU idle (W)"].dropna().tolist() == [90] and "CPU idle (W)" not in table
    write_run(tmp_path / "plain")
    plain = tables.TABLES["latency"](store.load(folder=tmp_path / "plain"))
    assert not [name for name in plain if "energy" in name or "idle" in name]
    assert html.EMPTY in words(figures.DRAWN["energy"](store.load(folder=tmp_path / "plain")))


def test_the_page_says_where_nothing_was_read(requests, tmp_path, monkeypatch):
    shown = []
    monkeypatch.setenv("SHOWN_ON_A_PAGE", "1")
    monkeypatch.setattr(pages, "display", lambda words: shown.append(words.data))
    write_run(tmp_path / "plain")
    pages.show_energy(store.load(folder=tmp_path / "plain"))
    pages.show_energy(requests)
    assert "No machine of these runs let its energy be read" in shown[0] and "<img" in shown[1]
