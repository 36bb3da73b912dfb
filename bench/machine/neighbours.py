"""Who else uses the machine: how many cores others keep busy, which processes, and the lock that keeps two
measurements apart; what is waited for is said on the screen, by the run and by the study that has started it.
"""

import ctypes
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter as clock
from types import TracebackType
from typing import Self

import psutil
from filelock import FileLock, Timeout

from bench import environment
from bench.machine import gpu, memory
from bench.paths import LOGS, ROOT
from llm_measured.core import files
from llm_measured.core.definitions import Fields

NAMED = 3  # processes that a sentence names, the busiest ones
NOTICED_CORES = 0.02  # less than that is not worth naming
# What a run waits for or is disturbed by, for the study that has started it: what a kernel prints is
# in its notebook. A killed run leaves its file behind, so a sentence is known by when it was written.
FILE = ROOT / LOGS / "waiting.txt"
WARNING = "Warning: "  # how a sentence begins on what disturbs a run that goes on
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of <linux/prctl.h>


def adopt_orphans() -> None:
    """Become the parent of whatever this process's descendants leave behind, where the system can (Linux).

    An engine's worker that is killed leaves processes of its own, whose time would otherwise count as
    somebody else's and whose memory would stay on the GPU unseen.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)


class Neighbours:
    """How many cores everybody else kept busy since this was made: other processes, and other virtual
    machines (steal)."""

    def __init__(self) -> None:
        adopt_orphans()
        self.start, self.system, self.own = clock(), psutil.cpu_times(), _own_cpu_s()
        self.throttled_s = environment.throttled_s()

    def cores(self) -> Fields:
        """Means over the time since: `others`, cores busy with other processes; `steal`, with other machines.

        Where a container's quota is counted, also `throttled`: the share of the time that it held threads.
        """
        passed, system = clock() - self.start, psutil.cpu_times()

        def spent(name: str) -> float:
            return getattr(system, name, 0) - getattr(self.system, name, 0)

        busy = sum(spent(name) for name in ("user", "system", "nice", "irq", "softirq"))
        others = max(0.0, busy - (_own_cpu_s() - self.own))
        found = {"others": round(others / passed, 4), "steal": round(spent("steal") / passed, 4)}
        throttled_s = environment.throttled_s()
        if self.throttled_s is not None and throttled_s is not None:
            found["throttled"] = round((throttled_s - self.throttled_s) / passed, 4)
        return found


def _own_cpu_s() -> float:
    """CPU seconds of `memory.family` and its descendants, the living and those that have ended.

    What a child's own children had used when they ended stands in that child's `children_*` until it ends
    itself.
    """
    total = 0.0
    for pid in memory.family():
        try:
            used = psutil.Process(pid).cpu_times()
            total += used.user + used.system + used.children_user + used.children_system
        except psutil.Error:
            pass
    return total


@dataclass(frozen=True)
class Process:
    """Another process, and the cores that it kept busy."""

    name: str
    pid: int
    cores: float


@dataclass(frozen=True)
class Look:
    """What others did in an interval: cores busy in all, and the processes that were seen, busiest first.

    A process that has begun and ended within the interval, or that a container hides, counts in `cores` and
    has no name.
    """

    cores: float
    processes: tuple

    def __str__(self) -> str:
        named = ", ".join(f"{one.name} [{one.pid}] {one.cores:.1f}" for one in self.processes[:NAMED])
        more = len(self.processes) - NAMED
        also = f", and {more} more" if more > 0 else ""
        return f"{self.cores:.1f} cores busy ({named or 'processes without a name here'}{also})"


class Watch:
    """Looks at the other processes of the machine, each time since the look before."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.started, self.spent, self.all = time.monotonic(), _others_cpu_s(), Neighbours()

    def seconds(self) -> float:
        """Seconds since the last look."""
        return time.monotonic() - self.started

    def look(self) -> Look:
        """The Look since the last one."""
        passed, before, cores = self.seconds(), self.spent, self.all.cores()["others"]
        self._begin()
        busy = [
            Process(name, pid, (spent - before.get((pid, born), (name, 0.0))[1]) / passed)
            for (pid, born), (name, spent) in self.spent.items()
        ]
        noticed = [one for one in busy if one.cores >= NOTICED_CORES]
        return Look(cores, tuple(sorted(noticed, key=lambda one: -one.cores)))


def _others_cpu_s() -> dict[tuple[int, float], tuple[str, float]]:
    """(process number, when it began) -> (name, CPU seconds) of every process but this one and its
    children."""
    own, found = memory.family(), {}
    for process in psutil.process_iter(["name", "cpu_times", "create_time"]):
        info = process.info
        if process.pid not in own and info["cpu_times"]:
            spent = info["cpu_times"].user + info["cpu_times"].system
            found[process.pid, info["create_time"]] = (info["name"] or "?", spent)
    return found


# --- waiting for the machine ----------------------------------------------------------------------------


class Waiting:
    """Context in which something may be waited for: `say` prints it once, and the end removes the file."""

    def __init__(self) -> None:
        self.since, self.said = time.monotonic(), ""

    def __enter__(self) -> Self:
        return self

    def say(self, what: str) -> None:
        """Say `Waiting <what>`, the first time that it is called."""
        if not self.said:
            self.said = f"Waiting {what}."
            print(self.said, flush=True)
            tell(self.said)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.said:
            FILE.unlink(missing_ok=True)
            print(f"Waited {time.monotonic() - self.since:.0f} s.", flush=True)


def tell(sentence: str) -> None:
    """Hand `sentence` to the study that has started this run, if one has."""
    files.write_whole(FILE, sentence)


def told() -> tuple[int, str]:
    """(when it was written, the last sentence of a run of this checkout); (0, "") where there is none."""
    try:
        return FILE.stat().st_mtime_ns, FILE.read_text(encoding="utf-8")
    except OSError:
        return 0, ""


def alone(device: str = "cpu") -> FileLock:
    """A machine-wide lock: whoever measures on `device` holds it, whatever checkout it runs from."""
    return FileLock(Path(tempfile.gettempdir()) / f"llm-inference-{device}.lock", mode=0o666)


def take(device: str = "cpu", wait_s: float = 3600) -> FileLock:
    """Hold `device` until this process ends; TimeoutError if another measurement keeps it for `wait_s`
    seconds."""
    lock = alone(device)
    with Waiting() as shown:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            shown.say(
                f"for another measurement on this machine, {wait_s / 60:.0f} min at most: it holds the "
                f"{device} ({Path(lock.lock_file).name})"
            )
            _acquire(lock, device, wait_s)
    return lock


def _acquire(lock: FileLock, device: str, wait_s: float) -> None:
    try:
        lock.acquire(timeout=wait_s)
    except Timeout:
        raise TimeoutError(
            f"Another measurement has held the {device} for {wait_s} s; runs never overlap on one device. "
            "Wait for it or stop it."
        ) from None


def gpu_contention(gpus: int = 1) -> list[int]:
    """Sorted process numbers that compute on the first `gpus` GPUs and are not this process or its children.

    Empty where the driver names none.
    """
    own = memory.family()
    return sorted({pid for pid, _ in gpu.gpu_processes(gpus) if pid not in own})
