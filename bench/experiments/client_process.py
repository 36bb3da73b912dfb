"""A load client as a process on cores of its own: started, watched, ended with all of its family."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from time import monotonic as clock

import numpy as np
import psutil

from bench import processes
from bench.paths import ROOT

SAMPLE_S = 0.01
CPUCLOCK_SCHED = 2  # Linux: the CPU time of all threads of a process, user and system, in nanoseconds
FAMILY_EVERY = 5  # samples from one look at which processes there are, and at their memory, to the next


class Watch:
    """CPU time and memory of all processes below `root`, sampled by a thread on the core `core` until
    `end`."""

    def __init__(self, root: psutil.Process | subprocess.Popen, core: int) -> None:
        self.root, self.core, self.peak_memory_bytes = root, core, 0
        self.family, self.spent, self.samples = {}, {}, []
        self.ended, self.thread = threading.Event(), threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        os.sched_setaffinity(0, {self.core})  # this thread alone: the client's core is the client's
        looks = 0
        while not self.ended.wait(SAMPLE_S):
            if looks % FAMILY_EVERY == 0:
                self._look()
            looks += 1
            self._sample()

    def _look(self) -> None:
        """Which processes there are now, and what memory all of them have; pages that they share count in
        each."""
        memory = 0
        for process in descendants(self.root.pid):
            try:
                self.family.setdefault(process, psutil.Process(process))
                memory += self.family[process].memory_info().rss
            except psutil.Error:
                pass  # it has just ended
        self.peak_memory_bytes = max(self.peak_memory_bytes, memory)

    def _sample(self) -> None:
        for process in self.family.values():
            try:
                self.spent[process.pid] = cpu_s(process)
            except (psutil.Error, OSError):
                pass  # it has ended; what it had spent at the last look stays
        self.samples.append((clock(), sum(self.spent.values())))

    def end(self) -> None:
        """Stop looking; whatever is still there of the client is ended."""
        self.ended.set()
        self.thread.join()
        self._look()
        for process in self.family.values():
            try:
                process.kill()  # not a stranger with the same number: psutil compares when they began
            except psutil.Error:
                pass

    def cpu_s(self, begin: float, end: float) -> float:
        """CPU seconds that all of them spent between two moments (s, monotonic clock); NaN without
        samples."""
        if not self.samples:
            return np.nan
        at, spent = np.array(self.samples).T
        return float(np.interp(end, at, spent) - np.interp(begin, at, spent))


def cpu_s(process: psutil.Process) -> float:
    """CPU seconds that `process` has spent: on Linux its CPU clock, which counts nanoseconds where /proc
    counts hundredths of a second. OSError or psutil.Error where it has ended."""
    if sys.platform == "linux":
        # the clock's number as clock_getcpuclockid(3) makes it
        return time.clock_gettime((~process.pid << 3) | CPUCLOCK_SCHED)
    spent = process.cpu_times()
    return spent.user + spent.system


def descendants(pid: int) -> list[int]:
    """Ids of all processes below `pid`.

    Where the kernel lists children it is read directly, which costs a hundredth of looking at all processes.
    """
    if not Path(f"/proc/{pid}/task/{pid}/children").exists():
        exists = psutil.pid_exists(pid)
        return [child.pid for child in psutil.Process(pid).children(recursive=True)] if exists else []
    found, unseen = [], [pid]
    while unseen:
        for task in Path(f"/proc/{unseen.pop()}/task").glob("*/children"):
            try:
                born = list(map(int, task.read_text().split()))
            except OSError:
                continue  # it has just ended
            found += born
            unseen += born
    return found


def pinned(cores: Sequence[int], command: Sequence[object]) -> list[str]:
    """`command` as words, on `cores` and no others."""
    return ["taskset", "-c", ",".join(map(str, cores)), *map(str, command)]


def run(command: Sequence[str], variables: dict[str, str], core: int, log: Path, limit_s: float) -> Watch:
    """Run a client to its end under a `Watch` on `core`; returns the Watch.

    RuntimeError with its last words if it fails, TimeoutError after `limit_s` seconds.
    """
    with open(log, "wb") as words:
        # Between us stands the supervisor of `bench.processes`: if this process is killed, the client ends
        # too.
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.processes", *command],
            stdin=subprocess.PIPE,
            stdout=words,
            stderr=words,
            cwd=ROOT,
            env=os.environ | variables,
        )
    watch = Watch(psutil.Process(process.pid), core)
    try:
        code = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        last = processes.last_words(log)
        raise TimeoutError(f"the client had not ended after {limit_s:g} s; its last words: {last}") from None
    finally:
        watch.end()
        process.stdin.close()
        process.wait()
    if code:
        last = processes.last_words(log)
        raise RuntimeError(f"the client ended with exit code {code}; its last words: {last}")
    return watch
