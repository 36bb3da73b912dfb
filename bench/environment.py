"""What the environment of this process allows it to use."""

import math
import os
from pathlib import Path


def visible_gpus():
    """GPUs as CUDA_VISIBLE_DEVICES lists them, numbers or identifiers; None where it is not set."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if listed is None else [name for name in listed.split(",") if name]


CGROUPS, OWN_CGROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def _cgroups():
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


def _lines(file):
    return file.read_text().splitlines() if file.exists() else []


def cpu_quota_cores():
    """Cores that the CPU quota of a container allows, or of one around it: quota / period of `cpu.max`, or of
    `cpu.cfs_quota_us` in version 1; infinite without a quota."""
    allowed = [math.inf]
    for folder in _cgroups():
        words = " ".join(_lines(folder / "cpu.max")).split()
        words = words or [*_lines(folder / "cpu.cfs_quota_us"), *_lines(folder / "cpu.cfs_period_us")]
        if len(words) == 2 and words[0] != "max" and int(words[0]) > 0:
            allowed.append(int(words[0]) / int(words[1]))
    return min(allowed)


def throttled_s():
    """Seconds that a quota has held threads back since the container began; None where nobody counts."""
    for folder in _cgroups():
        counts = dict(line.split() for line in _lines(folder / "cpu.stat"))
        for name, unit in (("throttled_usec", 1e6), ("throttled_time", 1e9)):
            if name in counts:
                return int(counts[name]) / unit
    return None
