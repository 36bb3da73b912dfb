"""What a run does when its end goes wrong, or when it was measured beside others before."""

import json
from types import SimpleNamespace

import pytest

from bench.experiments import session
from bench.observations import checks, store


def test_a_run_that_a_full_disk_refused_is_written_when_the_cell_runs_again(cells, monkeypatch, capsys):
    start, write, made, tries = session.start, store.write, [], []

    def kept(*parameters):
        made.append(start(*parameters))
        return made[-1]

    def full_at_first(rows, *where):
        tries.append(rows)
        if len(tries) == 1:
            raise OSError("No space left on device")
        path = write(rows, *where)
        file = path.with_suffix(".json")
        sidecar = {"shared": "Others kept a core busy.", "probe_cpu_shares": [0.5]}
        file.write_text(json.dumps(json.loads(file.read_text()) | sidecar))
        return path

    monkeypatch.setattr(session, "start", kept)
    monkeypatch.setattr(store, "write", full_at_first)
    with pytest.raises(OSError, match="No space left"):
        cells("latency", backend="fake", max_new_tokens=8)
    (setup,) = made
    assert setup.ended, "the device is let go meanwhile"
    capsys.readouterr()
    assert setup.write(["row"]).exists() and tries[0] is tries[1]
    contended, unprobed = capsys.readouterr().out.splitlines()
    assert contended == "These times are no measurement. Others kept a core busy."
    assert unprobed.startswith("MBU stays empty: no probe")
    with pytest.raises(RuntimeError, match="has ended"):
        setup.write(["row"])


def test_a_run_is_measured_beside_others_once(tmp_path):
    busy, calm = SimpleNamespace(warned=True, marked=True), SimpleNamespace(warned=False, marked=True)
    for alone in (busy, calm):
        session.refuse_a_second_shared_run("fake/run-1", tmp_path, alone)  # nothing lies there yet
    kept = store.path("fake/run-1", folder=store.shared_folder(tmp_path))
    kept.parent.mkdir(parents=True)
    kept.touch()
    session.refuse_a_second_shared_run("fake/run-1", tmp_path, calm)
    with pytest.raises(checks.Rejected, match="measured again on a quiet machine"):
        session.refuse_a_second_shared_run("fake/run-1", tmp_path, busy)
