"""What this machine is: its names, its cores, its memory, and the random id of this checkout."""

import math
import os
import platform
import re
import secrets
import subprocess
import sys
from pathlib import Path

import psutil

from bench import environment
from bench.machine import gpu
from bench.paths import ROOT
from llm_measured.core import naming
from llm_measured.core.definitions import Fields

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


def host() -> str:
    """This checkout's short random id, drawn once and kept in .host, which git ignores.

    It begins with a letter: pandas, R and Excel read 096e72 as a number.
    """
    file = ROOT / ".host"
    if not file.exists():
        file.write_text(f"h{secrets.token_hex(3)}" + "\n")
    return file.read_text().strip()


def cores() -> int:
    """Number of physical cores this process may use: those of its affinity, and of its container's quota."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = environment.cpu_quota_cores()
    return max(1, math.floor(min(psutil.cpu_count(logical=False) or allowed, allowed, quota)))


def allowed_cores() -> list[int]:
    """Numbers of the processors this process may use, one of each physical core first; empty where the system
    does not tell (macOS), where nothing can be pinned either."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    first, later = {}, []
    for number in sorted(os.sched_getaffinity(0)):
        topology = Path(f"/sys/devices/system/cpu/cpu{number}/topology")
        files = [topology / name for name in ("physical_package_id", "core_id")]
        place = tuple(f.read_text() for f in files) if all(f.exists() for f in files) else number
        if first.setdefault(place, number) != number:
            later.append(number)
    return [*first.values(), *later]


def pin(number: int | None) -> None:
    """Keep the calling thread on processor `number`, or where it is if that is None."""
    if number is not None:
        os.sched_setaffinity(0, {number})


def cache_bytes() -> int:
    """Size of the last-level cache in bytes, 32 MiB where the system does not say."""
    file = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
    text = file.read_text().strip() if file.exists() else "32768K"
    return int(text.rstrip("KM")) * (2**20 if text.endswith("M") else 2**10)


def _cpuinfo() -> dict[str, str]:
    """First processor of /proc/cpuinfo; empty where there is none."""
    file = Path("/proc/cpuinfo")
    text = file.read_text().split("\n\n")[0] if file.exists() else ""
    return {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in text.splitlines())}


def cpu_name() -> str:
    """Marketing name of the processor as the system gives it."""
    name = _cpuinfo().get("model name")
    if not name and sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        name = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    return name or platform.processor() or platform.machine()


def slug(device: str = "cpu") -> str:
    """Short name of the device as it stands in paths and rows: `h200`, `epyc-zen5-2c`."""
    if device == "cuda":
        return naming.gpu_slug(gpu.nvidia("name").get("name", "cuda"))
    plain = re.sub(r"\(.*?\)|CPU|Processor|@.*|AMD|\d+-Core", " ", cpu_name(), flags=re.I)
    return naming.cpu_slug("-".join(word for word in (naming.slug(plain), _zen()) if word), cores())


def device_of(device: str, named: str) -> tuple[str, str]:
    """Return ('cpu' or 'cuda', slug) of the device that a run uses by its parameters `device` and `gpu`, here
    `named`; ValueError where this machine has no such device."""
    kind = "cpu" if device == "auto" and named == "cpu" else device
    naming.choose("device", kind, ("auto", "cpu", "cuda"))
    has_cuda = gpu.has_cuda()
    if kind == "cuda" and not has_cuda:
        raise ValueError(
            "There is no CUDA device here (nvidia-smi does not answer). Choose the device cpu, or run "
            "this on a machine with an NVIDIA GPU."
        )
    if kind == "auto":
        kind = "cuda" if has_cuda else "cpu"
    here = slug(kind)
    if named not in ("auto", kind, here):
        raise ValueError(
            f"This machine's {kind} device is {here!r}, not {named!r}. Leave gpu at 'auto', or run this "
            f"where {named!r} is."
        )
    return kind, here


def _zen() -> str | None:
    """Generation of an AMD core, which its marketing name may leave out; None elsewhere."""
    info = _cpuinfo()
    family_and_model = int(info.get("cpu family", 0)), int(info.get("model", 0))
    return ZEN.get(family_and_model) if "AMD" in info.get("vendor_id", "") else None


def emulates_bfloat16() -> bool:
    """Whether this CPU names no instructions for bfloat16: engines emulate it, or convert to float32."""
    flags = _cpuinfo().get("flags", "") + " " + _cpuinfo().get("Features", "")
    return not {"avx512_bf16", "amx_bf16", "bf16"} & set(flags.split())


def describe(device: str = "cpu", gpus: int = 1) -> Fields:
    """What the sidecar keeps of this machine: names, sizes; of the first of `gpus` GPUs driver, power limit
    and highest clocks, of all of them clocks and temperature (`gpu.gpu_state`)."""
    machine = {
        "cpu": cpu_name(),
        "cores": cores(),
        "cache_bytes": cache_bytes(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": platform.platform(),
        "python": platform.python_version(),
        "cpu_flags": [f for f in _cpuinfo().get("flags", "").split() if f.startswith(("avx", "amx", "fma"))],
    }
    if device == "cuda":
        machine["gpu"] = gpu.nvidia(
            "name", "driver_version", "memory.total", "power.limit", "clocks.max.sm", "clocks.max.mem"
        )
        machine["gpu_before"] = gpu.gpu_state(gpus)
    return machine
