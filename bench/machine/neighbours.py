"""Who else uses the machine, and the lock that keeps two measurements apart."""

import tempfile
from pathlib import Path
from time import perf_counter as clock

import psutil
from filelock import FileLock, Timeout

from bench.machine import gpu, memory


class Neighbours:
    """How many cores everybody else kept busy since this was made: other processes, and other virtual
    machines (steal)."""

    def __init__(self):
        self.start, self.system, self.own = clock(), psutil.cpu_times(), _own_cpu_s()

    def cores(self):
        """{'others': cores busy with other processes, 'steal': cores taken by the hypervisor}, means over the
        time since."""
        passed, system = clock() - self.start, psutil.cpu_times()

        def spent(name):
            return getattr(system, name, 0) - getattr(self.system, name, 0)

        busy = sum(spent(name) for name in ("user", "system", "nice", "irq", "softirq"))
        others = max(0.0, busy - (_own_cpu_s() - self.own))
        return {"others": round(others / passed, 4), "steal": round(spent("steal") / passed, 4)}


def _own_cpu_s():
    """CPU seconds of this process, its living children and those that have ended."""
    process = psutil.Process()
    used = process.cpu_times()
    total = used.user + used.system + used.children_user + used.children_system
    for child in process.children(recursive=True):
        try:
            times = child.cpu_times()
            total += times.user + times.system
        except psutil.Error:
            pass
    return total


def alone(device="cpu"):
    """A machine-wide lock: whoever measures on `device` holds it, whatever checkout it runs from."""
    return FileLock(Path(tempfile.gettempdir()) / f"llm-inference-{device}.lock", mode=0o666)


def take(device="cpu", wait_s=3600):
    """Hold `device` until this process ends; TimeoutError if another measurement keeps it for `wait_s`
    seconds."""
    lock = alone(device)
    try:
        lock.acquire(timeout=wait_s)
    except Timeout:
        raise TimeoutError(
            f"Another measurement has held the {device} for {wait_s} s; runs never overlap on one device. "
            "Wait for "
            "it or stop it."
        ) from None
    return lock


def gpu_company():
    """Sorted process numbers that compute on the first visible GPU and are not this process or its children.

    Empty where the driver names none.
    """
    return sorted(pid for pid, _ in gpu.gpu_processes() if pid not in memory.family())
