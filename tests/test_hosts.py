"""Host ids begin with a letter, and the old ones are found by both spellings."""

import re

from builders import write_run

from bench import site
from bench.machine import identity
from bench.observations import checks, store
from bench.paths import ROOT
from bench.topics import machines, validity
from llm_measured.core import naming


def test_a_new_host_begins_with_a_letter(tmp_path, monkeypatch):
    monkeypatch.setattr(identity, "ROOT", tmp_path)
    drawn = identity.host()
    assert re.fullmatch("h[0-9a-f]{6}", drawn) and identity.host() == drawn
    assert naming.lettered_host(drawn) == drawn and naming.lettered_host("096e72") == "h096e72"


def test_an_old_host_is_read_by_both_spellings(tmp_path, monkeypatch):
    write_run(tmp_path, host="096e72", gpu="a-cpu")
    write_run(tmp_path, host="def456", gpu="b-cpu", run=1)
    requests = store.load(folder=tmp_path)
    for name in ("096e72", "h096e72", "a-cpu-096e72", "a-cpu-h096e72"):
        monkeypatch.setenv(machines.FRONT, name)
        assert machines.each(requests)[0][0] == ("a-cpu", "096e72"), name
    assert set(requests["host"]) == {"096e72", "def456"}, "files keep theirs"


def test_a_withdrawn_experiment_enters_no_table(tmp_path):
    write_run(tmp_path, experiment="bursts_conv")
    write_run(tmp_path)
    assert set(store.load(folder=tmp_path)["experiment"]) == {"latency"}
    excluded = validity.tables(store.files(tmp_path))["excluded"]
    assert excluded["run"].str.contains("/bursts_conv-").tolist() == [True]
    assert excluded["check"].tolist() == ["withdrawn"] and "first 120 requests" in excluded["reason"].iloc[0]


def test_the_six_committed_bursts_are_named_one_by_one():
    excluded = site.table("excluded")
    assert excluded["run"].str.contains("/bursts_").sum() == 6 and excluded["run"].is_unique


def test_the_twelve_committed_runs_of_overhead_are_withdrawn_and_stay_readable():
    files = sorted((ROOT / "_llama-inference").glob("*/overhead-*.csv"))
    named = site.table("excluded")["run"].str.contains("/overhead-")
    assert len(files) == named.sum() == len(validity.overhead(files)) == 12
    runs = store.read_all(files)
    assert not checks.rejected(runs) and len(runs.rows) == 12 * 16
