"""Several machines side by side: who is in front, what the others show, and that nobody's rows disappear."""

import itertools

import numpy as np
import pandas as pd
import pytest
from builders import make_sidecar, two_engines, write_run, write_sweep
from pictures import svg, words

from bench import backends, html, style
from bench.machine import identity
from bench.observations import checks, store
from bench.report import figures, pages, tables
from bench.topics import machines
from bench.topics import tables as topic_tables

pytestmark = pytest.mark.early

FIRST, SECOND = "test-cpu", "other-cpu"


@pytest.fixture(autouse=True)
def no_wish(monkeypatch):
    monkeypatch.delenv(machines.FRONT, raising=False)


@pytest.fixture
def both(tmp_path):
    """Two machines: latency of both, batches of the first alone."""
    write_sweep(two_engines(tmp_path), option="float32")
    write_run(tmp_path, backend="llamacpp", option="Q8_0", rate=90.0, host="def456", gpu=SECOND)
    return store.load(folder=tmp_path)


def labels(requests):
    return [label for label, _ in machines.labelled(requests)]


def test_the_machine_with_the_most_runs_is_in_front_unless_a_reader_says_otherwise(both, monkeypatch):
    assert labels(both) == [FIRST, SECOND]
    for wish in (SECOND, "def456", f"{SECOND}-def456"):
        monkeypatch.setenv(machines.FRONT, wish)
        assert labels(both) == [SECOND, FIRST]
        assert set(machines.on_default_machine(both, "latency")["gpu"]) == {SECOND}
    monkeypatch.setattr(identity, "host", lambda: "def456")
    monkeypatch.setenv(machines.FRONT, "here")
    assert labels(both) == [SECOND, FIRST]
    monkeypatch.setenv(machines.FRONT, "h100")
    with pytest.raises(ValueError, match=r"h100 names no machine .*test-cpu \(host abc123\)"):
        machines.each(both)
    assert labels(both[both["gpu"] == FIRST]) == [FIRST]  # of one machine nobody is chosen


def test_it_is_put_in_front_for_a_while(both):
    with machines.make_default("def456"):
        assert labels(both) == [SECOND, FIRST]
    assert labels(both) == [FIRST, SECOND]


def test_two_checkouts_on_the_same_kind_of_machine_are_named_apart(tmp_path):
    for host in ("aaa111", "bbb222"):
        write_run(tmp_path, host=host)
    requests = store.load(folder=tmp_path)
    names = [f"{FIRST} (aaa111)", f"{FIRST} (bbb222)"]
    assert sorted(labels(requests)) == names
    assert sorted(tables.TABLES["latency"](requests)["device"]) == names
    assert sorted(label for label, _ in figures.parts("latency", requests)) == names
    assert all(label in words(figure) for label, figure in figures.parts("latency", requests))


def test_an_experiment_that_a_machine_lacks_is_missing_not_borrowed(both, monkeypatch):
    monkeypatch.setenv(machines.FRONT, SECOND)
    assert machines.on_default_machine(both, "batching").empty
    table = topic_tables.tables(both)["batching"]
    assert set(table["machine"]) == {FIRST}


@pytest.mark.parametrize("name", ["latency", "ttft_tpot"])
def test_one_machine_is_drawn_as_if_there_were_no_others(name, both, tmp_path):
    own, draw = both[both["gpu"] == FIRST], figures.DRAWN[name]
    with style.style():
        alone = draw.__wrapped__(own) or style.nothing()
    assert svg(draw(own)) == svg(alone)


def test_another_machine_adds_its_part_and_changes_none(both):
    own, draw = both[both["gpu"] == FIRST], figures.DRAWN["latency"]
    alone, whole, parts = draw(own), draw(both), figures.parts("latency", both)
    for one in (alone, whole, *(figure for _, figure in parts)):
        one.canvas.draw()
    widths = lambda figure: [bar.get_width() for axes in figure.axes for bar in axes.patches]
    assert [label for label, _ in parts] == [FIRST, SECOND]
    assert widths(alone) == widths(whole) == widths(parts[0][1]) and len(widths(parts[1][1])) == 2
    assert alone.get_figheight() == whole.get_figheight()
    assert whole.get_suptitle() == f"{alone.get_suptitle()}\n{FIRST}"
    assert "1 other machine" in words(whole) and "other machine" not in words(alone)


@pytest.mark.parametrize("name", ["latency", "answers"])
def test_tables_name_the_device_and_keep_every_row(name, both):
    whole = tables.TABLES[name](both)
    for gpu, rows in both.groupby("gpu"):
        alone = tables.TABLES[name](rows.copy())
        assert set(alone["device"]) <= {gpu}
        same = whole[whole["device"] == gpu].reset_index(drop=True).astype(str)
        assert same.equals(alone.astype(str))


def test_rows_on_a_page_say_their_device_where_there_are_several(both):
    assert f'<tr data-device="{SECOND}">' in html.html(tables.TABLES["latency"](both))
    assert "data-device" not in html.html(tables.TABLES["latency"](both[both["gpu"] == FIRST]))


def test_a_look_follows_from_the_name_alone():
    looks = {name: style.look(name) for name in backends.names()}
    assert len(set(looks.values())) == len(looks)
    assert all(look == style.look.__wrapped__(name) for name, look in looks.items())
    common = "transformers", "llamacpp", "onnxruntime", "openvino", "ctranslate2", "vllm"
    apart = [
        np.linalg.norm(np.subtract(looks[a].colour, looks[b].colour))
        for a, b in itertools.combinations(common, 2)
    ]
    assert min(apart) > 0.15


@pytest.mark.check
def test_another_engine_changes_no_other_table(tmp_path):
    folder = tmp_path / "runs"
    two_engines(folder)
    write_sweep(folder, option="float32")
    before = topic_tables.tables(store.load(folder=folder))["batching"]
    write_run(folder, backend="aaa", option="int8")
    after = store.load(folder=folder)
    pd.testing.assert_frame_equal(before, topic_tables.tables(after)["batching"])
    assert "aaa int8" in words(figures.DRAWN["latency"](after))


def test_a_scratch_run_beside_a_neighbour_is_written_and_marked(tmp_path):
    busy = make_sidecar(busy_cores={"others": 0.9, "steal": 0.0})
    with pytest.raises(checks.Rejected, match="kept 0.90 cores busy"):
        write_run(tmp_path, busy)
    path = write_run(tmp_path, busy, scratch=True)
    assert "kept 0.90 cores busy" in store.read(path)[1]["shared"]
    assert "shared" not in store.read(write_run(tmp_path, run=2, scratch=True))[1]


def test_the_table_at_a_study_s_end_is_of_this_checkout(both, monkeypatch, capsys):
    monkeypatch.setattr(store, "load", lambda: both)
    monkeypatch.setattr(identity, "host", lambda: "def456")
    tables.main(["latency", "here"])
    shown = capsys.readouterr().out
    assert SECOND in shown and FIRST not in shown
    monkeypatch.setattr(identity, "host", lambda: "123abc")  # it has measured nothing
    tables.main(["latency", "here"])
    shown = capsys.readouterr().out
    assert SECOND in shown and FIRST in shown


def test_what_was_measured_is_said_with_models_and_machines(tmp_path, nothing):
    for n, gpu in enumerate(("cpu-a-2c", "cpu-b-2c", "cpu-b-2c")):
        write_run(tmp_path, gpu=gpu, host=f"host{n}", run=1)
    said = pages.measured(store.load(folder=tmp_path))
    assert (said["runs"], said["machines"]) == ("3 runs", "3 machines")
    assert said["devices"] == "2 × `cpu-b-2c` and `cpu-a-2c`"
    assert said["models"] == "`smollm2-135m` (0.13 billion parameters, 3 runs)"
    write_run(tmp_path / "other", model="hub:somebody/s-model", run=1)
    one = pages.measured(store.load(folder=tmp_path / "other"))
    assert (one["models"], one["machines"]) == ("`hub:somebody/s-model` (1 run)", "1 machine")
    assert pages.measured(nothing) == {}
