"""What this machine is, and its measured roofs: read bandwidth and matrix-multiply peak.

    python -m bench.machine.bandwidth cpu 2          a bandwidth probe that waits on standard input: one line in, one measurement out (bytes/s)
    python -m bench.machine.bandwidth gemm cpu 2     the matrix-multiply peak in every number format (operations/s)

The probe is a process of its own, so that neither its memory nor its threads touch the engine that is
measured beside it.
"""

import os
import platform
import re
import secrets
import subprocess
import sys
from pathlib import Path

import psutil

from bench.machine import gpu
from bench.paths import ROOT

ZEN = {
    (23, 1): "zen1",
    (23, 8): "zen1",
    (23, 49): "zen2",
    (25, 1): "zen3",
    (25, 17): "zen4",
    (25, 160): "zen4c",
    (26, 2): "zen5",
    (26, 17): "zen5",
}


def host():
    """This checkout's short random id, drawn once and kept in .host, which git ignores."""
    file = ROOT / ".host"
    if not file.exists():
        file.write_text(secrets.token_hex(3) + "\n")
    return file.read_text().strip()


def cores():
    """Number of physical cores this process may use."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(psutil.cpu_count(logical=False) or allowed, allowed))


def memory_bytes():
    """Bytes of main memory."""
    return psutil.virtual_memory().total


def _cpuinfo():
    """First processor of /proc/cpuinfo as a dict; empty where there is none."""
    file = Path("/proc/cpuinfo")
    text = file.read_text().split("\n\n")[0] if file.exists() else ""
    return {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in text.splitlines())}


def cpu_name():
    """Marketing name of the processor as the system gives it."""
    name = _cpuinfo().get("model name")
    if not name and sys.platform == "darwin":
        name = subprocess.run(
            ["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True
        ).stdout.strip()
    return name or platform.processor() or platform.machine()


def slug(device="cpu"):
    """Short name of the device as it stands in paths and rows: `h200`, `epyc-zen5-2c`."""
    if device == "cuda":
        name = gpu.nvidia("name").get("name", "cuda")
        return re.sub(r"[^a-z0-9]+", "-", re.sub(r"NVIDIA|GeForce|Tesla", "", name).lower()).strip("-")
    info, name = _cpuinfo(), cpu_name()
    zen = (
        ZEN.get((int(info.get("cpu family", 0)), int(info.get("model", 0))))
        if "AMD" in info.get("vendor_id", "")
        else None
    )
    plain = re.sub(r"\(.*?\)|CPU|Processor|@.*|AMD|\d+-Core", " ", name, flags=re.I).lower()
    words = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    return "-".join(w for w in (words, zen, f"{cores()}c") if w)


def describe(device="cpu"):
    """What the sidecar keeps of this machine: names, sizes, and of a GPU driver, power limit, top clock,
    clocks and temperature."""
    about = {
        "cpu": cpu_name(),
        "cores": cores(),
        "memory_bytes": memory_bytes(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "cpu_flags": [f for f in _cpuinfo().get("flags", "").split() if f.startswith(("avx", "amx", "fma"))],
    }
    if device == "cuda":
        about["gpu"] = gpu.nvidia(
            "name", "driver_version", "memory.total", "power.limit", "clocks.max.sm", "clocks.max.mem"
        )
        about["gpu_before"] = gpu.gpu_state()
    return about
