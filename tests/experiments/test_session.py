"""What a run does when its end goes wrong, or when it was measured beside others before."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.experiments import session
from bench.observations import gates, store


class Run(SimpleNamespace):
    """A `session.Setup` without a device: it counts what it is asked for."""

    write = session.Setup.write
    engine = meter = unwritten = run_id = folder = None
    ended, taken = False, SimpleNamespace(alone=SimpleNamespace(scratch=True, marked=False))
    partial, rescue = Path("none.partial"), staticmethod(lambda: "")

    def in_use(self):
        assert not self.ended, "a run that has ended is not measured again"

    def close(self):
        self.ended = True

    def _finished(self, rows):
        return rows, {"made": "once"}


def test_a_run_that_a_full_disk_refused_is_written_when_the_cell_runs_again(monkeypatch, tmp_path, capsys):
    tries, path = [], tmp_path / "run.csv"
    sidecar = {"shared": "Others kept a core busy.", "machine": {}, "threads": 2}
    sidecar |= {"bandwidth_probes_bytes_per_s": [4e10], "probe_cpu_shares": [0.5]}
    path.with_suffix(".json").write_text(json.dumps(sidecar))

    def write(rows, sidecar, *where):
        tries.append((rows, sidecar))
        if len(tries) == 1:
            raise OSError("No space left on device")
        return path

    monkeypatch.setattr(session.store, "write", write)
    run = Run()
    with pytest.raises(OSError, match="No space left"):
        run.write(["row"])
    assert run.ended, "the device is let go meanwhile"
    assert run.write(["row"]) == path and tries == [(["row"], {"made": "once"})] * 2
    contended, unprobed = capsys.readouterr().out.splitlines()
    assert contended == "These times are no measurement. Others kept a core busy."
    assert unprobed.startswith("MBU stays empty: no probe")
    with pytest.raises(AssertionError, match="has ended"):
        run.write(["row"])


def test_a_run_is_measured_beside_others_once(tmp_path):
    busy = SimpleNamespace(alone=SimpleNamespace(warned=True, marked=True))
    calm = SimpleNamespace(alone=SimpleNamespace(warned=False, marked=True))
    for taken in (busy, calm):
        run = SimpleNamespace(run_id="fake/run-1", folder=tmp_path, taken=taken)
        session.Setup._refuse_a_second_shared_run(run)  # nothing lies there yet
    kept = store.path("fake/run-1", folder=store.shared_folder(tmp_path))
    kept.parent.mkdir(parents=True)
    kept.touch()
    session.Setup._refuse_a_second_shared_run(
        SimpleNamespace(run_id="fake/run-1", folder=tmp_path, taken=calm)
    )
    with pytest.raises(gates.Refused, match="measured again on a quiet machine"):
        session.Setup._refuse_a_second_shared_run(
            SimpleNamespace(run_id="fake/run-1", folder=tmp_path, taken=busy)
        )
