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
from collections import Counter
from collections.abc import Callable, Sequence
from time import monotonic as clock
from typing import BinaryIO

import numpy as np

from bench import processes as parents
from bench.instrument.load import client, connection
from bench.instrument.load.records import Call
from bench.paths import ROOT
from llm_measured.core.definitions import Fields, Value

STREAMS_PER_PROCESS = 1000
ANSWERED: set[str] = set()  # servers that have answered this process: one that is away is waited for
# How what `client.report` has of each process becomes what the load client was in all.
SUMMED = "cpu_s", "reading_cpu_s", "peak_memory_bytes", "retries", "pauses", "paused_s"
MERGED: dict[str, Callable] = dict.fromkeys(SUMMED, sum) | {"stays_open": any}
MERGED |= {"kernel_stamps": all, "first_in_line": all, "reuses": all}
MERGED |= {"away_s": lambda all_s: max([0.0, *all_s]), "ended": lambda why: next(filter(None, why), "")}
START_S = 0.1  # from the moment that all processes are ready to the first request


def run(
    url: str,
    calls: Sequence[Call],
    dialect: str,
    concurrency: int = 1,
    timeout_s: float = 600.0,
    processes: int = 0,
    cores: int | None = None,
    until_s: float = math.inf,
    encode: Callable[[str], list[int]] | None = None,
    fresh: bool = False,
    most_failed: float = math.inf,
) -> tuple[list[Fields], Fields]:
    """Send `calls` (`records.Call`) to the server at `url`; returns (rows, report).

    One row of measured columns per call (`decoding.measured`), in their order, errors included. `concurrency`
    is how many of the calls without a schedule are under way at once. `processes` 0: as many as the load
    needs and the machine has cores to spare; the turns of a session stay in one. `cores`: those that the
    processes may use, all if None. `until_s`, `encode`, `fresh` and `most_failed` as `client.Client`
    has them. The report is that of `_report`. ValueError for an address that cannot be; RuntimeError if a
    process of the client is lost.
    """
    connection.addresses(url)
    sessions = _sessions(calls)
    wide = len(sessions) if all(call.scheduled for call in calls) else max(concurrency, 1)
    count = processes or max(1, min(math.ceil(wide / STREAMS_PER_PROCESS), (os.cpu_count() or 1) // 2))
    count = min(count, len(sessions), wide)
    places = [len(range(k, wide, count)) for k in range(count)]
    more = cores, until_s, encode, fresh, most_failed, url in ANSWERED
    dealt = ([call for one in sessions[k::count] for call in one] for k in range(count))
    shares = [(url, own, dialect, places[k], timeout_s, *more) for k, own in enumerate(dealt)]
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
    if any(report["answered"] for _, report in parts):
        ANSWERED.add(url)
    rows = sorted((row for part, _ in parts for row in part), key=lambda row: row["request"])
    return rows, _report(rows, [report for _, report in parts])


def _sessions(calls: Sequence[Call]) -> list[list[Call]]:
    """`calls` as a list of lists: the turns of each session, every other call by itself."""
    found: dict[tuple[str, int], list[Call]] = {}
    for call in calls:
        key = ("call", call.number) if call.session is None else ("session", call.session)
        found.setdefault(key, []).append(call)
    return list(found.values())


def _report(rows: list[Fields], reports: list[Fields]) -> Fields:
    """How the client fared, from the `client.report` of each process.

    Processes, connections (of all, and to each address), what is MERGED, and percentiles of how late it read
    (s after the kernel's stamp) and sent (s after a request was due).
    """
    lag = np.concatenate([np.empty(0), *(report["read_lag_s"] for report in reports)])
    late = [row["late_s"] for row in rows if not math.isnan(row["late_s"])]
    found: Fields = {"processes": len(reports)}
    found |= {name: merge(report[name] for report in reports) for name, merge in MERGED.items()}
    opened: Counter[str] = sum((Counter(report["connections"]) for report in reports), Counter())
    found |= {"connections": sum(opened.values()), "addresses": dict(opened)}
    for name, values in (("read_lag", lag), ("late", late)):
        for q in (50, 99):
            found[f"{name}_p{q}_s"] = float(np.percentile(values, q)) if len(values) else None
    return found


class _Process:
    """One process of the client behind a pipe."""

    def __init__(self, share: object) -> None:
        self.log = tempfile.TemporaryFile()
        command = [sys.executable, "-m", "bench.instrument.load.parallel"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, cwd=ROOT
        )
        assert self.process.stdin and self.process.stdout
        self.to, self.back = self.process.stdin, self.process.stdout
        self.send(share)

    def send(self, message: object) -> None:
        pickle.dump(message, self.to)
        self.to.flush()

    def receive(self) -> Value:
        try:
            return pickle.load(self.back)
        except EOFError:
            self.log.seek(0)
            lines = self.log.read().decode(errors="replace").strip().splitlines()
            reason = lines[-1] if lines else self.process.wait()
            raise RuntimeError(f"A process of the load client was lost: {reason}") from None

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.to.close()
        self.back.close()


def _serve_parent() -> None:
    """The other end of _Process: take a share, say that it is ready, run it, answer (rows, report)."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    threading.Thread(target=parents.die_with, args=(os.getppid(),), daemon=True).start()
    url, calls, dialect, concurrency, timeout_s, cores, *more = pickle.load(sys.stdin.buffer)
    if cores is not None:
        os.sched_setaffinity(0, cores)
    _many_files()
    loop = client.Client(url, calls, dialect, concurrency, timeout_s, *more)
    _answer(out, "ready")
    rows = loop.run(pickle.load(sys.stdin.buffer))
    _answer(out, (rows, client.report(loop)))


def _answer(out: BinaryIO, message: object) -> None:
    pickle.dump(message, out)
    out.flush()


def _many_files() -> None:
    """A connection is a file: take as many as the system gives without a request."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    _serve_parent()
