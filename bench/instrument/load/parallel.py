"""The load client's processes: a share of the load each."""

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

from bench import processes as processes_
from bench.instrument.load import client as client_load
from bench.paths import ROOT

STREAMS_PER_PROCESS = 1000
START_S = 0.1  # from the moment that all processes are ready to the first request


def run(url, calls, dialect, concurrency=1, timeout_s=600.0, processes=0, cores=None):
    """Send `calls` (Call) to the server at `url`; returns (rows, about).

    One row of measured columns per call (`decoding.measured`), in their order, errors included. `concurrency` is how many of the calls without a
    schedule are under way at once. `processes` 0: as many as the load needs and the machine has cores to spare. `cores`: those that the
    processes may use, all if None. `about` says how the client fared: see `_about`.
    ValueError for an address that cannot be; RuntimeError if a process of the client is lost.
    """
    client_load.address(url)
    wide = max(concurrency, 1) if any(call.at_s is None for call in calls) else len(calls)
    count = processes or max(1, min(math.ceil(wide / STREAMS_PER_PROCESS), (os.cpu_count() or 1) // 2))
    count = min(count, len(calls), wide)
    shares = [
        (url, calls[k::count], dialect, len(range(k, wide, count)), timeout_s, cores) for k in range(count)
    ]
    started = [_Process(share) for share in shares]
    try:
        for process in started:
            process.ask()
        start = clock() + START_S
        for process in started:
            process.tell(start)
        parts = [process.ask() for process in started]
    finally:
        for process in started:
            process.end()
    rows = sorted((row for part, _ in parts for row in part), key=lambda row: row["request"])
    return rows, _about(rows, [about for _, about in parts])


def _about(rows, parts):
    """How the client fared: processes, CPU time, peak memory of all of them, whose stamps count, how late it read and sent."""
    lag = np.concatenate([np.empty(0), *(part["read_lag_s"] for part in parts)])
    late = [row["late_s"] for row in rows if row["late_s"] == row["late_s"]]
    at = lambda values, q: float(np.percentile(values, q)) if len(values) else None  # noqa: E731
    return {
        "processes": len(parts), "cpu_s": sum(part["cpu_s"] for part in parts), "reading_cpu_s": sum(part["reading_cpu_s"] for part in parts),
        "peak_memory_bytes": sum(part["peak_memory_bytes"] for part in parts), "kernel_stamps": all(part["kernel_stamps"] for part in parts),
        "first_in_line": all(part["first_in_line"] for part in parts),
        "read_lag_p50_s": at(lag, 50), "read_lag_p99_s": at(lag, 99), "late_p50_s": at(late, 50), "late_p99_s": at(late, 99),
    }  # fmt: skip


class _Process:
    """One process of the client behind a pipe."""

    def __init__(self, share):
        self.words = tempfile.TemporaryFile()
        command = [sys.executable, "-m", "bench.instrument.load.parallel"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.words, cwd=ROOT
        )
        self.tell(share)

    def tell(self, message):
        pickle.dump(message, self.process.stdin)
        self.process.stdin.flush()

    def ask(self):
        try:
            return pickle.load(self.process.stdout)
        except EOFError:
            self.words.seek(0)
            said = self.words.read().decode(errors="replace").strip().splitlines()
            raise RuntimeError(
                f"A process of the load client was lost: {said[-1] if said else self.process.wait()}"
            ) from None

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def _serve_parent():
    """The other end of _Process: take a share, say that it is ready, begin when told, answer with rows and how it went."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    threading.Thread(target=processes_.die_with, args=(os.getppid(),), daemon=True).start()
    url, calls, dialect, concurrency, timeout_s, cores = pickle.load(sys.stdin.buffer)
    if cores is not None:
        os.sched_setaffinity(0, cores)
    _many_files()
    client = client_load.Client(url, calls, dialect, concurrency, timeout_s)
    pickle.dump("ready", out)
    out.flush()
    rows = client.run(pickle.load(sys.stdin.buffer))
    pickle.dump((rows, client.fared()), out)
    out.flush()


def _many_files():
    """A connection is a file: take as many as the system gives without asking."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    _serve_parent()
