"""The load client as the study calls it: a share of the load in each of some processes of its own.

    prompt = protocols.Prompt(ids=(1, 2, 3), text="a b c", new_tokens=20)
    payload = protocols.request("completions", url, prompt, model)
    calls = [records.Call(k + 1, payload, None, 3, 20) for k in range(10)]
    rows, report = parallel.run(url, calls, "completions", concurrency=4)     # closed loop

    at_s = schedule.poisson(rate=50, requests=10)
    calls = [records.Call(k + 1, payload, at_s[k], 3, 20) for k in range(10)]
    rows, report = parallel.run(url, calls, "completions")                    # open loop

In a closed loop a request begins when another one ends, in an open loop when it is due, whatever the others
do.
"""

import math
import os
import pickle
import resource
import subprocess
import sys
import tempfile
import threading
from time import monotonic as clock

import numpy as np

from bench import processes as parents
from bench.instrument.load import client, connection
from bench.paths import ROOT

STREAMS_PER_PROCESS = 1000
START_S = 0.1  # from the moment that all processes are ready to the first request


def run(url, calls, dialect, concurrency=1, timeout_s=600.0, processes=0, cores=None):
    """Send `calls` (`records.Call`) to the server at `url`; returns (rows, report).

    One row of measured columns per call (`decoding.measured`), in their order, errors included. `concurrency`
    is how many of the calls without a schedule are under way at once. `processes` 0: as many as the load
    needs and the machine has cores to spare. `cores`: those that the processes may use, all if None. The
    report is that of `_report`. ValueError for an address that cannot be; RuntimeError if a process of the
    client is lost.
    """
    connection.address(url)
    wide = max(concurrency, 1) if any(call.at_s is None for call in calls) else len(calls)
    count = processes or max(1, min(math.ceil(wide / STREAMS_PER_PROCESS), (os.cpu_count() or 1) // 2))
    count = min(count, len(calls), wide)
    places = [len(range(k, wide, count)) for k in range(count)]
    shares = [(url, calls[k::count], dialect, places[k], timeout_s, cores) for k in range(count)]
    started = [_Process(share) for share in shares]
    try:
        for process in started:
            process.receive()
        start = clock() + START_S
        for process in started:
            process.send(start)
        parts = [process.receive() for process in started]
    finally:
        for process in started:
            process.end()
    rows = sorted((row for part, _ in parts for row in part), key=lambda row: row["request"])
    return rows, _report(rows, [report for _, report in parts])


def _report(rows, reports):
    """How the client fared, from the `client.report` of each process.

    Processes, CPU time and peak memory of all of them, whether kernel's stamps count, whether all were first
    in line, and percentiles of how late it read (s after the kernel's stamp) and sent (s after a request was
    due).
    """
    lag = np.concatenate([np.empty(0), *(report["read_lag_s"] for report in reports)])
    late = [row["late_s"] for row in rows if not math.isnan(row["late_s"])]
    found = {"processes": len(reports)}
    found |= {
        name: sum(report[name] for report in reports)
        for name in ("cpu_s", "reading_cpu_s", "peak_memory_bytes")
    }
    found |= {name: all(report[name] for report in reports) for name in ("kernel_stamps", "first_in_line")}
    for name, values in (("read_lag", lag), ("late", late)):
        for q in (50, 99):
            found[f"{name}_p{q}_s"] = float(np.percentile(values, q)) if len(values) else None
    return found


class _Process:
    """One process of the client behind a pipe."""

    def __init__(self, share):
        self.log = tempfile.TemporaryFile()
        command = [sys.executable, "-m", "bench.instrument.load.parallel"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, cwd=ROOT
        )
        self.send(share)

    def send(self, message):
        pickle.dump(message, self.process.stdin)
        self.process.stdin.flush()

    def receive(self):
        try:
            return pickle.load(self.process.stdout)
        except EOFError:
            self.log.seek(0)
            lines = self.log.read().decode(errors="replace").strip().splitlines()
            reason = lines[-1] if lines else self.process.wait()
            raise RuntimeError(f"A process of the load client was lost: {reason}") from None

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def _serve_parent():
    """The other end of _Process: take a share, say that it is ready, run it, answer (rows, report)."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    threading.Thread(target=parents.die_with, args=(os.getppid(),), daemon=True).start()
    url, calls, dialect, concurrency, timeout_s, cores = pickle.load(sys.stdin.buffer)
    if cores is not None:
        os.sched_setaffinity(0, cores)
    _many_files()
    loop = client.Client(url, calls, dialect, concurrency, timeout_s)
    _answer(out, "ready")
    rows = loop.run(pickle.load(sys.stdin.buffer))
    _answer(out, (rows, client.report(loop)))


def _answer(out, message):
    pickle.dump(message, out)
    out.flush()


def _many_files():
    """A connection is a file: take as many as the system gives without a request."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    _serve_parent()
