"""Who else uses the machine, and the lock that keeps two measurements apart."""

import ctypes
import sys
import tempfile
from pathlib import Path
from time import perf_counter as clock

import psutil
from filelock import FileLock, Timeout

from bench import environment
from bench.machine import gpu, memory, waiting
from llm_measured.core.definitions import Fields

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


def alone(device: str = "cpu") -> FileLock:
    """A machine-wide lock: whoever measures on `device` holds it, whatever checkout it runs from."""
    return FileLock(Path(tempfile.gettempdir()) / f"llm-inference-{device}.lock", mode=0o666)


def take(device: str = "cpu", wait_s: float = 3600) -> FileLock:
    """Hold `device` until this process ends; TimeoutError if another measurement keeps it for `wait_s`
    seconds."""
    lock = alone(device)
    with waiting.Waiting() as shown:
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
