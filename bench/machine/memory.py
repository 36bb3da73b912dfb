"""How much memory an engine holds."""

import math
import os
import platform
import re
import sys
from pathlib import Path

import psutil

from bench.machine import gpu


def address_space_bytes():
    """Bytes of address space that this process has mapped: what a limit on it bounds."""
    return psutil.Process().memory_info().vms


def forget_peak(device="cpu"):
    """Let `peak_memory_bytes` begin anew, where the system can (Linux; PyTorch's allocator on a GPU)."""
    if device == "cuda" and (torch := sys.modules.get("torch")):
        torch.cuda.reset_peak_memory_stats()
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass  # then a peak is that of the process so far


def peak_memory_bytes(device="cpu"):
    """Largest resident set of this process and, added up, what its children hold now; on a GPU what it holds
    there. In bytes.

    On a GPU it is the peak of PyTorch's allocator, or what the driver counts for this process and its
    children where the engine allocates by other means (in a container, which hides processes from the driver,
    all that is in use there).
    """
    return _gpu_bytes() if device == "cuda" else _own_peak_bytes() + _children_bytes()


def _own_peak_bytes():
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read_text())[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if platform.system() == "Darwin" else 1024)


def _children_bytes():
    held = 0
    for child in psutil.Process().children(recursive=True):
        try:
            if not _is_probe(child):  # its buffer is not the engine's
                held += child.memory_info().rss
        except psutil.Error:
            pass
    return held


def _is_probe(process):
    return "bench.machine.bandwidth" in process.cmdline()


def family(probes=True):
    """Process numbers of this process and its children, the bandwidth probe among them or not."""
    found = {os.getpid()}
    for child in psutil.Process().children(recursive=True):
        try:
            if probes or not _is_probe(child):
                found.add(child.pid)
        except psutil.Error:
            pass
    return found


def _gpu_bytes():
    """The allocator's peak; else what the driver counts for the engine's processes; else, in a container,
    where it counts none, all that is in use."""
    torch = sys.modules.get("torch")
    allocated = torch.cuda.max_memory_allocated() if torch and torch.cuda.is_available() else 0
    if allocated:
        return allocated
    own = family(probes=False)
    return (
        sum(held for pid, held in gpu.gpu_processes() if pid in own)
        or (gpu.gpu_state().get("memory.used") or math.nan) * 2**20
    )
