"""The comparison of load clients: our own is right, one that lies is found out, one that fails is a row, and what is shown follows the data."""

import json
import sys

import matplotlib.text
import numpy as np
import pytest
from commands import run

from bench.analysis import client_accuracy as accuracy_analysis
from bench.experiments import client_accuracy as accuracy_experiment
from bench.instrument import peers
from bench.observations import gates, schema, store
from bench.paths import ROOT
from bench.report import figures, html, tables
from bench.report.figures import client_accuracy as client_accuracy_figures
from bench.report.findings import client_accuracy as client_accuracy_findings
from bench.report.tables import client_accuracy as client_accuracy_tables

LATE_S = 0.020
LIAR = '''"""**liar**: reports every first token {late} s later than it was there, and three gaps of ours for one."""
import dataclasses
from bench.instrument.peers import ours
from bench.instrument.peers.ours import available, command
version = lambda: "1"
def reported(work):
    told = ours.reported(work)
    return dataclasses.replace(told, ttft_s=told.ttft_s + {late}, itl_s=told.itl_s{more}, delays_s=None, kernel_stamps=None)
'''
BUSY = '''"""**busy**: burns CPU time before it begins, and none afterwards."""
import sys
from bench.instrument.peers.ours import available, reported, version
from bench.instrument.peers import ours
def command(work):
    burn = "import time, runpy, sys; end = time.process_time() + 1\\nwhile time.process_time() < end: pass\\nsys.argv = ['x', *sys.argv[1:]]; runpy.run_module('bench.instrument.peers.ours', run_name='__main__')"
    return [sys.executable, "-c", burn, *ours.command(work)[3:]]
'''
DEAD = '''"""**dead**: ends before it has begun."""
import sys
available, version = lambda: None, lambda: "1"
command = lambda work: [sys.executable, "-c", "import sys; sys.exit('no route to anywhere')"]
'''
HANGS = '''"""**hangs**: starts a process that stays, and never ends."""
import sys
available, version = lambda: None, lambda: "1"
command = lambda work: [sys.executable, "-c", "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(987)'], start_new_session=True); time.sleep(987)"]
'''
BOASTS = '''"""**boasts**: reports a request that was never sent."""
import numpy as np
from bench.instrument.peers import Reported
from bench.instrument.peers.ours import available, command, version
reported = lambda work: Reported(np.full(work.requests + 1, 0.05), np.arange(work.requests + 1.0), np.full(9, 0.01))
'''
ABSENT = '''"""**absent**: needs an environment that nobody has made."""
from bench import clients
available = lambda: clients.missing("absent")
version = lambda: clients.installed("absent", "absent")
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


@pytest.mark.timing
def test_a_late_client_is_found_out(elsewhere):
    row = accuracy_experiment.measure(elsewhere("liar", LIAR.format(late=LATE_S, more="")), 2, 4)
    assert (
        row["error"] == ""
        and row["ttft_error_ms"] == pytest.approx(LATE_S * 1e3, abs=1)
        and row["ttft_error_connected_ms"] == pytest.approx(LATE_S * 1e3, abs=1)
    )
    assert row["delay_mean_ms"] is None


@pytest.mark.timing
def test_invented_gaps_are_found_out(elsewhere):
    row = accuracy_experiment.measure(elsewhere("liar", LIAR.format(late=0, more=" + 0.007")), 2, 4)
    assert row["itl_p99_excess_ms"] == pytest.approx(7, abs=1)


@pytest.mark.timing
def test_what_a_client_does_before_its_first_request_does_not_count(elsewhere):
    row = accuracy_experiment.measure(elsewhere("busy", BUSY), 2, 4)
    assert row["error"] == "" and row["cpu_us_per_token"] * 400 < 0.5e6, (
        "a second of work before the first request was counted"
    )


@pytest.mark.timing
@pytest.mark.parametrize(("name", "text", "words"), [
    ("dead", DEAD, "exit code 1; its last words: no route to anywhere"), ("boasts", BOASTS, "reports 3 successful requests, and the server has served 2"),
    ("hangs", HANGS, "had not ended after 3 s"),
])  # fmt: skip
def test_a_client_that_fails_is_a_row(elsewhere, name, text, words):
    row = accuracy_experiment.measure(elsewhere(name, text), 1, 2, limit_s=3 if name == "hangs" else 60)
    assert words in row["error"] and row["failed"] == 2 and row["ttft_error_ms"] is None
    left = [
        p
        for p in accuracy_experiment.psutil.process_iter(["cmdline"])
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
def test_a_peers_notes_say_what_a_reader_needs(name):
    module = peers.get(name)
    assert (
        all(word in module.__doc__ for word in ("Install:", "Licence:", "Documentation:", "TTFT"))
        and peers.title(name) in module.__doc__
    )
    lock = (ROOT / "environments" / f"{module.ENVIRONMENT}.txt").read_text().splitlines()
    assert "lock" in lock[0] and all("==" in line for line in lock if not line.startswith("#"))


@pytest.mark.timing
def test_cpu_time_is_that_of_the_process():
    import subprocess

    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True); input()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    child.stdout.readline()
    assert child.pid in accuracy_experiment.descendants(accuracy_experiment.os.getpid())
    assert accuracy_experiment.cpu_s(accuracy_experiment.psutil.Process(child.pid)) == pytest.approx(
        0.3, abs=0.1
    )
    child.communicate(b"\n")


def row(client, streams, error_ms, excess_ms=0.01, cpu=5.0, **more):
    known = {
        "client": client,
        "version": "1.0",
        "streams": streams,
        "requests": 3 * streams,
        "failed": 0,
        "events_per_s": 96.0 * streams,
        "error": "",
    }
    measured = {
        "ttft_error_ms": error_ms,
        "ttft_error_connected_ms": error_ms,
        "itl_p99_ms": 10 + excess_ms,
        "itl_p99_excess_ms": excess_ms,
        "cpu_us_per_token": cpu,
    }
    return (
        dict.fromkeys(schema.ACCURACY)
        | known
        | measured
        | {"peak_memory_bytes": 1e8, "kernel_stamps": client == "ours"}
        | more
    )


LOST = {"error": "TimeoutError: the client had not ended", "failed": 3000} | dict.fromkeys(
    ["ttft_error_ms", "itl_p99_ms", "itl_p99_excess_ms", "cpu_us_per_token"]
)


def compared(folder, rows):
    path = store.write_accuracy(rows, "test-cpu", "abc123", {}, {"run": 0, "results": str(folder)})
    return path, accuracy_analysis.here(store.load_accuracy(folder))


def words_of(figure):
    """All text of a figure, lines joined."""
    return " ".join(" ".join(text.get_text() for text in figure.findobj(matplotlib.text.Text)).split())


def usual(own=0.01, cpu=5.0, excess=0.01, last=None):
    rows = [row("ours", n, own, excess, cpu) for n in (1, 1000)] + [
        row("vllm_bench", n, 0.2 * n + 1, -0.5 if n == 1 else 30, 60.0) for n in (1, 1000)
    ]
    return rows + [row("guidellm", 1, 0.4, -1.5, 300.0), last or row("guidellm", 1000, 50.0, -1.5, 300.0)]


def test_a_made_up_comparison_is_shown(tmp_path):
    path, table = compared(tmp_path, usual(last=row("guidellm", 1000, None, **LOST)))
    assert (
        path.name.startswith("accuracy-test-cpu-")
        and json.loads(path.with_suffix(".json").read_text())["machine"]["cpu"]
    )
    requests = store.load(folder=tmp_path)
    assert requests.empty and not store.files(tmp_path), "what was measured of clients is no run"
    drawn = client_accuracy_figures.client_accuracy(requests)
    assert "vllm bench serve 1.0" in words_of(
        drawn
    ) and "guidellm gave no result at 1,000 streams" in words_of(drawn)
    assert "zero or less" in words_of(drawn), "guidellm's negative excess must not vanish"
    hollow = [
        line
        for line in drawn.axes[2].lines
        if line.get_markerfacecolor() == "white" and len(line.get_xdata())
    ]
    assert sorted(x for line in hollow for x in line.get_xdata()) == [1, 1]
    shown = html.text(client_accuracy_tables.client_accuracy(requests))
    assert "TimeoutError" in shown and "vllm-bench (Rust)" in shown and "-1.5" in shown
    said = " ".join(client_accuracy_findings.client_findings(requests))
    assert (
        "**vllm bench serve** is off by 1.2 ms at 1, 200 ms at 1,000 streams" in said
        and "120 to 20,000 times as far as ours, with 12 times the CPU" in said
    )
    assert "**guidellm** is off by 0.4 ms at 1 stream in the mean" in said and "The goal was met" in said
    assert "client_accuracy" in figures.names() and "client_accuracy" in tables.names()


@pytest.mark.parametrize(("rows", "words"), [
    (usual(own=0.15), ["TTFT error above 0.1 of vllm_bench's at 1 stream", "TTFT error above 0.2 of the best peer's (guidellm) at 1 stream"]),
    (usual(cpu=100.0), ["CPU time per token above 0.2 of the best peer's (guidellm) at 1 stream"]),
    (usual(own=6.0), ["limits of 5 and 1 ms exceeded at 1,000 streams", "TTFT error above the Rust client's at 1 stream"]),
    (usual(excess=1.4), ["limits of 5 and 1 ms exceeded at 1,000 streams", "ITL p99 above the Rust client's at 1,000 streams"]),
    (usual() + [row("ours", 10, None, **LOST)], ["10 streams not sustained"]),
])  # fmt: skip
def test_a_missed_goal_is_said(tmp_path, rows, words):
    _, table = compared(tmp_path, rows)
    assert all(word in client_accuracy_findings.goal_met(table) for word in words)


def test_no_goal_without_a_peer_or_the_load(tmp_path):
    assert client_accuracy_findings.goal_met(compared(tmp_path / "a", [row("ours", 1000, 0.1)])[1]) is None
    assert (
        client_accuracy_findings.goal_met(
            compared(tmp_path / "b", [row("ours", 1, 0.1), row("aiperf", 1, 1.0)])[1]
        )
        is None
    )


def test_the_fullest_comparison_is_shown_and_then_the_latest(tmp_path):
    compared(tmp_path, usual())
    path, _ = compared(tmp_path, [row("ours", 1, 9.0)])
    about = json.loads(path.with_suffix(".json").read_text()) | {"ended": "2099-01-01T00:00:00+00:00"}
    path.with_suffix(".json").write_text(json.dumps(about))
    assert path.stem.endswith("-2") and len(accuracy_analysis.here(store.load_accuracy(tmp_path))) == 6
    path, _ = compared(tmp_path, usual(own=0.02))
    path.with_suffix(".json").write_text(json.dumps(about))
    assert (
        path.stem.endswith("-3")
        and 0.02 in accuracy_analysis.here(store.load_accuracy(tmp_path))["ttft_error_ms"].tolist()
    )


def test_nothing_measured_shows_what_was_published(tmp_path):
    nothing = store.load(folder=tmp_path)
    assert "Nothing measured here yet" in words_of(client_accuracy_figures.client_accuracy(nothing))
    assert (
        len(client_accuracy_tables.client_accuracy(nothing)) == 10
        and client_accuracy_findings.client_findings(nothing) == []
    )


def test_a_comparison_without_any_result_is_refused(tmp_path):
    with pytest.raises(gates.Refused, match="No load client came to an end"):
        compared(tmp_path, [row("ours", 1000, None, **LOST)])


def test_percentiles_are_of_the_same_requests():
    """A client's order is its own; the first request of each stream is left out on both sides."""
    told = peers.Reported(
        np.array([0.05, 0.09, 0.05, 0.09]), np.array([3.0, 0.0, 4.0, 1.0]), np.full(10, 0.01)
    )
    truth = [
        {"arrived_s": k, "sent_ns": [int((k + 0.05 + 0.01 * n) * 1e9) for n in range(100)]} for k in range(4)
    ]
    watch = type("W", (), {"cpu_s": lambda self, begin, end: 1.0, "peak_memory_bytes": 1})()
    # The client has looked whether the server is there, with a short request and with a whole one that took a second.
    before = [
        {"arrived_s": 1.5, "sent_ns": [1]},
        {"arrived_s": -9.0, "sent_ns": [int((-8 + 0.01 * n) * 1e9) for n in range(100)]},
    ]
    found = accuracy_experiment.compared(told, before + truth, watch, 2, 4)
    assert found["ttft_error_ms"] == pytest.approx(20) and found["ttft_error_connected_ms"] == pytest.approx(
        0, abs=1e-6
    )


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


@pytest.mark.timing
def test_the_notebook_compares_and_writes(tmp_path):
    run("papermill", "notebooks/client-accuracy.ipynb", tmp_path / "o.ipynb", "-p", "clients", "ours", "-p", "streams", "2 3", "-p", "requests_per_stream", 2,
        "-p", "results", tmp_path)  # fmt: skip
    table = store.load_accuracy(tmp_path)
    assert (
        list(table["streams"]) == [2, 3]
        and (table["error"] == "").all()
        and (table["failed"] == 0).all()
        and (table["ttft_error_ms"].abs() < 2).all()
    )
    (file,) = store.accuracy_files(tmp_path)
    assert {"packages", "git", "machine", "parameters", "ended", "busy_cores"} <= set(
        json.loads(file.with_suffix(".json").read_text())
    )
    assert "How far load clients are off" in (tmp_path / "o.ipynb").read_text()
