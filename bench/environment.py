"""What the environment of this process allows it to use."""

import math
import os
from pathlib import Path

ORDER = "PCI_BUS_ID"


def visible_gpus() -> list[str] | None:
    """GPUs as CUDA_VISIBLE_DEVICES lists them, numbers or identifiers; None where it is not set."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if listed is None else [name for name in listed.split(",") if name]


def count_as_the_driver() -> None:
    """Let CUDA number its GPUs as nvidia-smi does, by PCI bus; CUDA's own order is by speed.

    It holds for this process, before CUDA starts in it, and for its children. ValueError where the user has
    chosen another order, in which the numbers of CUDA_VISIBLE_DEVICES would name other GPUs than those that
    nvidia-smi shows.
    """
    chosen = os.environ.setdefault("CUDA_DEVICE_ORDER", ORDER)
    numbers = [name for name in visible_gpus() or [] if name.isdigit()]
    if chosen != ORDER and (numbers or visible_gpus() is None):
        raise ValueError(
            f"CUDA_DEVICE_ORDER is {chosen!r}: GPUs are numbered otherwise than in nvidia-smi. Set it to "
            f"{ORDER}, or name the GPUs in CUDA_VISIBLE_DEVICES by their UUIDs (nvidia-smi -L)."
        )


def used_gpus(count: int = 1) -> list[str]:
    """Numbers or UUIDs of the first `count` GPUs that CUDA may use, as nvidia-smi and Docker take them."""
    count_as_the_driver()
    listed = visible_gpus()
    return ([str(number) for number in range(count)] if listed is None else listed)[:count]


CGROUPS, OWN_CGROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def _cgroups() -> list[Path]:
    """Folders of this process's control group and of all around it, nearest first; version 2, then 1.

    A container often sees its own group as the root, whatever path it has on the host.
    """
    lines = OWN_CGROUP.read_text().splitlines() if OWN_CGROUP.exists() else []
    found = []
    for controllers, path in (line.split(":", 2)[1:] for line in lines):
        if controllers and "cpu" not in controllers.split(","):
            continue
        own = Path(path.lstrip("/"))
        places = [CGROUPS / name for name in (controllers, "cpu")] if controllers else [CGROUPS]
        found += [place / around for around in (own, *own.parents) for place in places]
    return list(dict.fromkeys(found))


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def cpu_quota_cores() -> float:
    """Cores that the CPU quota of a container allows, or of one around it: quota / period of `cpu.max`, or of
    `cpu.cfs_quota_us` in version 1; infinite without a quota."""
    allowed = [math.inf]
    for folder in _cgroups():
        words = " ".join(_lines(folder / "cpu.max")).split()
        words = words or [*_lines(folder / "cpu.cfs_quota_us"), *_lines(folder / "cpu.cfs_period_us")]
        if len(words) == 2 and words[0] != "max" and int(words[0]) > 0:
            allowed.append(int(words[0]) / int(words[1]))
    return min(allowed)


def throttled_s() -> float | None:
    """Seconds that a quota has held threads back since the container began; None where nobody counts."""
    for folder in _cgroups():
        counts = dict(line.split() for line in _lines(folder / "cpu.stat"))
        for name, unit in (("throttled_usec", 1e6), ("throttled_time", 1e9)):
            if name in counts:
                return int(counts[name]) / unit
    return None
