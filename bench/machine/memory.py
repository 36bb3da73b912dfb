"""How much memory an engine holds."""

import os
import platform
import re
from pathlib import Path

import psutil

from bench.machine import gpu, sampler


def address_space_bytes():
    """Bytes of address space that this process has mapped: what a limit on it bounds."""
    return psutil.Process().memory_info().vms


def forget_peak(device="cpu", gpus=1):
    """Let `peak_memory_bytes` begin anew, where the system can (Linux; the driver's counters on a GPU).

    On the first `gpus` GPUs the driver is sampled from the first call on: call it before an engine is loaded.
    """
    if device == "cuda":
        sampler.shared(gpu.used(gpus)).forget_peak()
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass  # then a peak is that of the process so far


def peak_memory_bytes(device="cpu", gpus=1):
    """Largest resident set of this process and, added up, what its children hold now; on a GPU the most that
    the engine's processes held there since `forget_peak`. In bytes.

    On GPUs it is sampled at the driver, ten times a second, whatever the engine allocates by: caches, context
    and kernels are in it. In a container, which hides processes from the driver, all that is in use there
    counts. NaN where NVML cannot be read.
    """
    if device == "cuda":
        return sampler.shared(gpu.used(gpus)).peak_bytes()
    return _own_peak_bytes() + _children_bytes()


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
    return any(module in process.cmdline() for module in sampler.PROBES)


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
