"""How much memory an engine holds."""

import contextlib
import os
import platform
import re
from pathlib import Path

import psutil

from bench.machine import gpu, sampler


def forget_peak(device: str = "cpu", gpus: int = 1) -> None:
    """Let `peak_memory_bytes` begin anew, where the system can (Linux; the driver's counters on a GPU).

    On the first `gpus` GPUs the driver is sampled from the first call on: call it before an engine is loaded.
    """
    if device == "cuda":
        sampler.shared(gpu.used(gpus)).forget_peak()
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass  # then a peak is that of the process so far


def peak_memory_bytes(device: str = "cpu", gpus: int = 1) -> float:
    """Largest resident set of this process since `forget_peak` and, added up, what its children hold now (of
    another process the system tells no peak since then); on a GPU the most that the engine's processes held
    there since `forget_peak`. In bytes.

    On GPUs it is sampled at the driver, ten times a second, whatever the engine allocates by: caches, context
    and kernels are in it. In a container, which hides processes from the driver, all that is in use there
    counts. NaN where NVML cannot be read.
    """
    if device == "cuda":
        return sampler.shared(gpu.used(gpus)).peak_bytes()
    return _own_peak_bytes() + _children_bytes()


def _own_peak_bytes() -> int:
    status = Path("/proc/self/status")
    if status.exists():
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        assert found is not None, "Linux states VmHWM of every process."
        return int(found[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if platform.system() == "Darwin" else 1024)


def _children_bytes() -> int:
    held = 0
    for child in psutil.Process().children(recursive=True):
        try:
            if not sampler.is_probe(child):  # its buffer is not the engine's
                held += child.memory_info().rss
        except psutil.Error:
            pass
    return held


def family() -> set[int]:
    """Process numbers of this process, its children, and the servers that it measures with theirs."""
    found = set()
    for pid in (os.getpid(), *measured):
        with contextlib.suppress(psutil.Error):
            found |= {pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))}
    return found


measured: set[int] = set()  # processes of servers that run already and are measured: they are no neighbours


def listener(port: int) -> int | None:
    """Return the number of the process that listens on `port` of this machine; None where nobody may see."""
    with contextlib.suppress(psutil.Error):
        for found in psutil.net_connections(kind="tcp"):
            if found.status == psutil.CONN_LISTEN and found.laddr.port == port and found.pid:
                return found.pid
    return None
