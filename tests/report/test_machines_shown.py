"""Several machines side by side: who is in front, what the others show, and that nobody's rows disappear."""

import itertools

import numpy as np
import pytest
from builders import two_engines, write_run, write_sweep
from pictures import shown, words

from bench import backends, site, style
from bench.machine import identity
from bench.observations import store
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


def test_two_checkouts_on_the_same_kind_of_machine_are_named_apart(tmp_path):
    for host in ("aaa111", "bbb222"):
        write_run(tmp_path, host=host)
    requests = store.load(folder=tmp_path)
    names = [f"{FIRST} (aaa111)", f"{FIRST} (bbb222)"]
    assert sorted(labels(requests)) == names
    rows = topic_tables.of_each_machine(requests, topic_tables.latency)
    assert sorted(rows["machine"]) == names


def test_an_experiment_that_a_machine_lacks_is_missing_not_borrowed(both, monkeypatch):
    monkeypatch.setenv(machines.FRONT, SECOND)
    assert machines.on_default_machine(both, "batching").empty
    table = topic_tables.tables(both)["batching"]
    assert set(table["machine"]) == {FIRST}


def test_a_figure_is_of_one_machine(both, tmp_path):
    whole = words(shown("fig-latency", both, tmp_path / "b"))
    assert FIRST in whole and SECOND not in whole
    with machines.make_default(SECOND):
        assert SECOND in words(shown("fig-latency", both, tmp_path / "b"))


def test_a_machine_that_measured_something_else_is_said_to_lack_this(both, tmp_path, monkeypatch, capsys):
    topic_tables.write(both, tmp_path / "t" / "tables")
    monkeypatch.setenv(machines.FRONT, SECOND)
    with site.reading(tmp_path / "t" / "tables"):
        assert set(site.machine(site.table("latency"))["machine"]) == {SECOND}
        assert capsys.readouterr().out == ""
        assert set(site.machine(site.table("batching"))["machine"]) == {FIRST}
        assert f"{SECOND} has not measured this: shown is {FIRST}" in capsys.readouterr().out
        monkeypatch.setenv(machines.FRONT, "h100")
        with pytest.raises(ValueError, match="h100 names no machine that has measured: test-cpu, other-cpu"):
            site.machine(site.table("batching"))


def test_no_two_engines_look_alike():
    looks = {name: style.look(name) for name in backends.names()}
    assert len(set(looks.values())) == len(looks)
    common = "transformers", "llamacpp", "onnxruntime", "openvino", "ctranslate2", "vllm"
    apart = [
        np.linalg.norm(np.subtract(looks[a].colour, looks[b].colour))
        for a, b in itertools.combinations(common, 2)
    ]
    assert min(apart) > 0.15
