"""The comparison of load clients: ours is right, one that lies is found out, one that fails is a row."""

import json
import os
import subprocess
import sys

import numpy as np
import psutil
import pytest
from commands import execute

from bench.experiments import client_accuracy as accuracy_experiment
from bench.experiments import client_process
from bench.instrument import peers
from bench.observations import schema, store
from bench.paths import ROOT

LATE_S = 0.020
LIAR = '''"""**liar**: reports every first token {late} s late, and false gaps."""
import dataclasses
from bench.instrument.peers import ours
from bench.instrument.peers.ours import available, command
version = lambda: "1"
def reported(work):
    own = ours.reported(work)
    late = dict(ttft_s=own.ttft_s + {late}, itl_s=own.itl_s{more})
    return dataclasses.replace(own, **late, delays_s=None, kernel_stamps=None)
'''
BUSY = '''"""**busy**: burns CPU time before it begins, and none afterwards."""
import sys
from bench.instrument.peers.ours import available, reported, version
from bench.instrument.peers import ours
BURN = """
import time, runpy, sys
end = time.process_time() + 1
while time.process_time() < end:
    pass
sys.argv = ["x", *sys.argv[1:]]
runpy.run_module("bench.instrument.peers.ours", run_name="__main__")
"""
def command(work):
    return [sys.executable, "-c", BURN, *ours.command(work)[3:]]
'''
DEAD = '''"""**dead**: ends before it has begun."""
import sys
available, version = lambda: None, lambda: "1"
command = lambda work: [sys.executable, "-c", "import sys; sys.exit('no route to anywhere')"]
'''
HANGS = '''"""**hangs**: starts a process that stays, and never ends."""
import sys
available, version = lambda: None, lambda: "1"
STAY = """
import subprocess, sys, time
sleep = [sys.executable, "-c", "import time; time.sleep(987)"]
subprocess.Popen(sleep, start_new_session=True)
time.sleep(987)
"""
command = lambda work: [sys.executable, "-c", STAY]
'''
BOASTS = '''"""**boasts**: reports a request that was never sent."""
import numpy as np
from bench.instrument.peers import Reported
from bench.instrument.peers.ours import available, command, version
def reported(work):
    n = work.requests + 1
    return Reported(np.full(n, 0.05), np.arange(float(n)), np.full(9, 0.01))
'''
ABSENT = '''"""**absent**: needs an environment that nobody has made."""
from bench.instrument import peers
available = lambda: peers.missing("absent")
version = lambda: peers.installed("absent", "absent")
'''


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Clients of tests beside the real ones; returns a function that adds one."""
    folder = tmp_path / "clients"
    folder.mkdir()
    monkeypatch.setattr(peers, "__path__", [*peers.__path__, str(folder)])

    def add(name, text):
        (folder / f"{name}.py").write_text(text)
        sys.modules.pop(f"bench.instrument.peers.{name}", None)
        return name

    yield add
    for file in folder.glob("*.py"):
        sys.modules.pop(f"bench.instrument.peers.{file.stem}", None)


@pytest.fixture(scope="module")
def measured():
    return accuracy_experiment.measure("ours", 5, 15)


@pytest.mark.timing
def test_our_client_is_right_to_a_millisecond(measured):
    assert measured["error"] == "" and measured["failed"] == 0 and measured["requests"] == 15
    assert abs(measured["ttft_error_ms"]) < 1 and abs(measured["ttft_error_connected_ms"]) < 1
    assert 0 <= measured["delay_mean_ms"] <= measured["delay_p99_ms"] and measured["delay_mean_ms"] < 1
    assert measured["ttft_true_ms"] == pytest.approx(50, abs=5)
    # Five streams, 100 events in 50 + 99 * 10 ms each.
    assert measured["events_per_s"] == pytest.approx(5 * 100 / 1.04, rel=0.05)
    assert measured["kernel_stamps"] == sys.platform.startswith("linux")
    assert 0 < measured["cpu_us_per_token"] < 1000 and 10e6 < measured["peak_memory_bytes"] < 2e9
    assert set(measured) == set(schema.ACCURACY)


@pytest.mark.check
@pytest.mark.timing
def test_a_late_client_and_invented_gaps_are_found_out(elsewhere):
    row = accuracy_experiment.measure(elsewhere("liar", LIAR.format(late=LATE_S, more=" + 0.007")), 2, 4)
    assert row["error"] == "" and row["delay_mean_ms"] is None
    for column, error_ms in {
        "ttft_error_ms": 20,
        "ttft_error_connected_ms": 20,
        "itl_p99_excess_ms": 7,
    }.items():
        assert row[column] == pytest.approx(error_ms, abs=1)


@pytest.mark.check
@pytest.mark.timing
def test_what_a_client_does_before_its_first_request_does_not_count(elsewhere):
    row = accuracy_experiment.measure(elsewhere("busy", BUSY), 2, 4)
    assert row["error"] == "" and row["cpu_us_per_token"] * 400 < 0.5e6, (
        "a second of work before the first request was counted"
    )


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("dead", DEAD, "exit code 1; its last words: no route to anywhere"),
        ("boasts", BOASTS, "reports 3 successful requests, and the server has served 2"),
        pytest.param("hangs", HANGS, "had not ended after 3 s", marks=pytest.mark.check),
    ],
)
def test_a_client_that_fails_is_a_row(elsewhere, name, text, words):
    row = accuracy_experiment.measure(elsewhere(name, text), 1, 2, limit_s=3 if name == "hangs" else 60)
    assert words in row["error"] and row["failed"] == 2 and row["ttft_error_ms"] is None
    left = [
        p
        for p in psutil.process_iter(["cmdline"])
        if any("time.sleep(987)" in word for word in p.info["cmdline"] or [])
    ]
    assert not left, "a process of the client was left behind"


def test_clients_are_chosen_by_name(elsewhere):
    elsewhere("absent", ABSENT)
    assert {"ours", "vllm_bench", "guidellm", "aiperf", "absent"} <= set(peers.names())
    assert "ours" in peers.chosen("auto") and "absent" not in peers.chosen("auto")
    with pytest.raises(
        RuntimeError,
        match=r"absent is not installed. Install it with: snakemake --cores 1 .venvs/absent/ready",
    ):
        peers.chosen("ours absent")
    with pytest.raises(ValueError, match="Did you mean 'guidellm'"):
        peers.chosen("guidelm")
    with pytest.raises(ValueError, match="requests_per_stream must be at least 2"):
        accuracy_experiment.loads("ours", [1], 1)
    with pytest.raises(RuntimeError, match="The server needs a core and the client 4096"):
        accuracy_experiment.loads("ours", [1], 3, 4096)


@pytest.mark.parametrize("name", ["guidellm", "aiperf", "vllm_bench"])
def test_a_peer_s_environment_is_locked(name):
    module = peers.get(name)
    lock = (ROOT / "environments" / f"{module.ENVIRONMENT}.txt").read_text().splitlines()
    assert "lock" in lock[0] and all("==" in line for line in lock if not line.startswith("#"))


@pytest.mark.timing
def test_cpu_time_is_that_of_the_process():
    busy = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True); input()"
    command = [sys.executable, "-c", busy]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    assert child.pid in client_process.descendants(os.getpid())
    assert client_process.cpu_s(psutil.Process(child.pid)) == pytest.approx(0.3, abs=0.1)
    child.communicate(b"\n")


def test_percentiles_are_of_the_same_requests():
    """A client's order is its own; the first request of each stream is left out on both sides."""
    reported = peers.Reported(
        np.array([0.05, 0.09, 0.05, 0.09]), np.array([3.0, 0.0, 4.0, 1.0]), np.full(10, 0.01)
    )
    truth = [
        {"arrived_s": k, "sent_ns": [int((k + 0.05 + 0.01 * n) * 1e9) for n in range(100)]} for k in range(4)
    ]
    watch = type("W", (), {"cpu_s": lambda self, begin, end: 1.0, "peak_memory_bytes": 1})()
    # Before, the client looked whether the server is there: a short request, and one that took a second.
    before = [
        {"arrived_s": 1.5, "sent_ns": [1]},
        {"arrived_s": -9.0, "sent_ns": [int((-8 + 0.01 * n) * 1e9) for n in range(100)]},
    ]
    found = accuracy_experiment.compared(accuracy_experiment.Outcome(reported, before + truth, watch), 2, 4)
    assert found["ttft_error_ms"] == pytest.approx(20)
    assert found["ttft_error_connected_ms"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"clients": "guidelm"}, "Did you mean 'guidellm'"),
        ({"streams": "many"}, "streams must be whole numbers"),
        ({"client": "ours"}, "Did you mean 'clients'"),
    ],
)
def test_the_notebook_refuses_what_is_mistyped(cells, tmp_path, parameters, words):
    with pytest.raises((ValueError, NameError), match=words):
        cells("client-accuracy", **parameters)
    assert not list(tmp_path.rglob("*.csv"))


@pytest.mark.check
@pytest.mark.timing
def test_the_notebook_compares_and_writes(tmp_path):
    given = {"clients": "ours", "streams": "2 3", "requests_per_stream": 2, "results": tmp_path}
    execute("client-accuracy", tmp_path / "o.ipynb", given)
    table = store.load_accuracy(tmp_path)
    assert list(table["streams"]) == [2, 3] and (table["error"] == "").all() and (table["failed"] == 0).all()
    assert (table["ttft_error_ms"].abs() < 2).all()
    (file,) = store.accuracy_files(tmp_path)
    assert {"packages", "git", "machine", "parameters", "ended", "busy_cores"} <= set(
        json.loads(file.with_suffix(".json").read_text())
    )
    assert "How far load clients are off" in (tmp_path / "o.ipynb").read_text()
