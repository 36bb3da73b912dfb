"""Gates that keep a run out for what happened around it, each on a run that passes without the fault."""

import json
import math
import shutil
import subprocess

import pandas as pd
import pytest
from builders import make_rows, make_sidecar, write_run, write_serving

from bench import environment
from bench.machine import identity
from bench.observations import checks, provenance, schema, store
from bench.paths import ROOT
from bench.topics import validity


def refusal(rows, **sidecar):
    """The sentence with which the validity checks reject a made-up run; empty where it passes."""
    try:
        checks.check(schema.frame(rows), make_sidecar(**sidecar), rows[0]["run_id"])
        return ""
    except checks.Rejected as refused:
        return str(refused)


@pytest.fixture
def group(tmp_path, monkeypatch):
    """A function that makes the files of a control group, {path: text}, and the line of this process."""

    def make(line, files):
        monkeypatch.setattr(environment, "CGROUPS", tmp_path)
        monkeypatch.setattr(environment, "OWN_CGROUP", tmp_path / "own")
        (tmp_path / "own").write_text(line + "\n")
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text + "\n")

    return make


OLDER = {
    "cpu/job/cpu.cfs_period_us": "100000",
    "cpu/job/cpu.stat": "nr_throttled 3\nthrottled_time 2500000000",
}


@pytest.mark.parametrize(
    ("line", "files", "cores", "held_s"),
    [
        ("0::/", {"cpu.max": "max 100000", "cpu.stat": "throttled_usec 0"}, math.inf, 0),
        ("0::/", {"cpu.max": "100000 100000", "cpu.stat": "throttled_usec 1500000"}, 1, 1.5),
        ("0::/pod/job", {"pod/cpu.max": "150000 100000", "pod/job/cpu.max": "max 100000"}, 1.5, None),
        ("0::/on/the/host", {"cpu.max": "100000 100000"}, 1, None),
        ("4:cpu,cpuacct:/job", {"cpu/job/cpu.cfs_quota_us": "100000"} | OLDER, 1, 2.5),
        ("4:cpu:/job", {"cpu/job/cpu.cfs_quota_us": "-1"} | OLDER, math.inf, 2.5),
        ("9:cpuset:/job", {}, math.inf, None),
    ],
)
def test_a_containers_quota_bounds_the_threads(group, line, files, cores, held_s):
    group(line, files)
    assert environment.cpu_quota_cores() == cores and environment.throttled_s() == held_s
    assert identity.cores() == 1 if cores < 2 else identity.cores() >= 1


# --- runs that lie there already ---------------------------------------------------------------------------


def tamper(path, change, sidecar=False):
    """Change the text of a run that has been written, as a run of before a check may be."""
    file = path.with_suffix(".json") if sidecar else path
    text = file.read_text()
    assert change[0] in text
    file.write_text(text.replace(*change))


FAULTS = {
    "no neighbours on the processor": (('"others": 0.0', '"others": 1.5'), True),
    "rows and path agree": ((",def456,", ",abc123,"), False),
    "times do not contradict each other": ((",0.05,0.14,", ",0.2,0.14,"), False),
    "MBU at most 1": (('"weight_bytes": 100000000.0', '"weight_bytes": 1e12'), True),
}


@pytest.mark.parametrize("gate", FAULTS)
def test_what_lies_there_fails_by_a_check_that_came_later(tmp_path, gate):
    kept = write_run(tmp_path)
    path = write_run(tmp_path, host="def456")
    change, sidecar = FAULTS[gate]
    tamper(path, change, sidecar)
    before = path.read_bytes()
    assert set(store.load(folder=tmp_path)["run_id"]) == {f"fake/{kept.stem}"}
    counts, refused = store.judged(folder=tmp_path)
    assert refused["run"].tolist() == [f"fake/{path.stem}"] and refused["check"].tolist() == [gate]
    assert refused["reason"].iloc[0].endswith((".", "wrong.")) and path.read_bytes() == before
    assert counts.set_index("check")["refused"].to_dict() == dict.fromkeys(checks.CHECKS, 0) | {gate: 1}


def test_what_a_file_does_not_hold_is_not_checked_and_refuses_nothing(tmp_path):
    write_run(tmp_path)
    write_run(tmp_path, make_sidecar(busy_cores={"others": 0.0, "steal": 0.0, "throttled": 0.0}), run=2)
    write_run(tmp_path, make_sidecar(git={"uncommitted": ["llm_measured/core/metrics.py"]}), run=3)
    counts, refused = store.judged(folder=tmp_path)
    counts = counts.set_index("check")
    assert refused.empty and len(store.load(folder=tmp_path)["run_id"].unique()) == 3
    assert counts.loc["no threads held back by a quota"].tolist() == [1, 2, 0]
    assert counts.loc["no cores stolen by other virtual machines"].tolist() == [3, 0, 0]
    assert counts.loc["answers came token by token, not in one lump"].tolist() == [0, 0, 0], (
        "there is no server"
    )
    assert counts.loc["the instrument was its revision"].tolist() == [0, 0, 0], (
        "of the repository's own alone"
    )


def test_an_instrument_that_differed_falls_among_the_repository_s_own(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "COMMITTED", tmp_path / "_llama-inference")
    folder = tmp_path / "_llama-inference"
    write_run(folder, make_sidecar(git={"uncommitted": ["bench/backends/mine.py"]}))
    write_run(folder, make_sidecar(git={"dirty": True}), run=2)
    path = write_run(folder, make_sidecar(git={"uncommitted": []}), run=3)
    tamper(path, ('"uncommitted": []', '"uncommitted": ["llm_measured/core/metrics.py"]'), sidecar=True)
    counts, refused = store.judged(folder=folder)
    assert refused["run"].tolist() == [f"fake/{path.stem}"]
    assert "llm_measured/core/metrics.py" in refused["reason"].iloc[0]
    assert counts.set_index("check").loc["the instrument was its revision"].tolist() == [2, 1, 1]


def test_servers_of_before_are_judged_by_their_events_and_their_caches(tmp_path):
    path = write_serving(tmp_path, {1: (0.1, 0.01)})
    tamper(path, (",0,length", ",7,length"))
    _, refused = store.judged(folder=tmp_path)
    assert "from its prefix cache (7 of 8 prompt tokens)" in refused["reason"].iloc[0]
    assert store.load(folder=tmp_path).empty


def test_the_method_page_counts_them(tmp_path):
    tamper(write_run(tmp_path), ('"steal": 0.0', '"steal": 0.9'), sidecar=True)
    write_run(tmp_path, run=2)
    table = validity.tables(store.files(tmp_path))["checks"].set_index("check")
    assert table.loc["no cores stolen by other virtual machines"].tolist() == [2, 0, 1]
    assert set(table.index) == set(checks.CHECKS)


def test_without_git_a_run_has_its_revision_and_says_that_nobody_looked(tmp_path, monkeypatch):
    """A bare node may lack git: what was measured there is not lost when it is written."""
    name = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    for words in (["init", "-q"], [*name, "commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    command = ["git", "-C", str(tmp_path), "rev-parse", "HEAD"]
    revision = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    assert provenance._head(tmp_path / ".git") == revision and len(revision) == 40
    (tmp_path / ".git" / "HEAD").write_text(revision + "\n")  # a checkout of no branch
    assert provenance._head(tmp_path / ".git") == revision
    assert provenance._head(tmp_path / "nowhere") == ""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    state = provenance.git_state()
    assert state["dirty"] is None and "uncommitted" not in state
    assert refusal(make_rows(), git=state) == ""


def test_a_bandwidth_in_the_table_of_accelerators_is_part_of_the_instrument(tmp_path, monkeypatch):
    run = lambda *words: subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    table = tmp_path / "llm_measured" / "core" / "accelerators.csv"
    table.parent.mkdir(parents=True)
    shutil.copy(ROOT / "llm_measured" / "core" / "accelerators.csv", table)
    run("init", "-q")
    run("add", ".")
    run("-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "-q", "-m", "first")
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    assert provenance.git_state()["dirty"] is False
    rows = pd.read_csv(table)
    rows.loc[0, "bandwidth_gb_per_s"] += 1
    rows.to_csv(table, index=False)
    assert provenance.git_state()["dirty"] is True


@pytest.mark.parametrize("layout", ["ten", None, 99])
def test_a_layout_that_nobody_knows_is_named(tmp_path, layout):
    path = write_run(tmp_path)
    sidecar = json.loads(path.with_suffix(".json").read_text()) | {"layout": layout}
    path.with_suffix(".json").write_text(json.dumps(sidecar))
    (reason,) = store.judged(folder=tmp_path)[1]["reason"]
    assert f"claims layout {layout!r}" in reason
