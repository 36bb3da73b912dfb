"""What the environment of this process allows it to use."""

import math
import os
from pathlib import Path


def visible_gpus():
    """GPUs as CUDA_VISIBLE_DEVICES lists them, numbers or identifiers; None where it is not set."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if listed is None else [name for name in listed.split(",") if name]


def _cgroup(file):
    """Lines of a file of this process's control group, version 2, or of the root's; none where there is no
    such file."""
    own = Path("/proc/self/cgroup")
    lines = own.read_text().splitlines() if own.exists() else []
    path = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    for folder in (Path("/sys/fs/cgroup") / path, Path("/sys/fs/cgroup")):
        if (folder / file).exists():
            return (folder / file).read_text().splitlines()
    return []


def cpu_quota_cores():
    """Cores that a container's CPU quota allows (cgroup `cpu.max`, quota / period); infinite without a
    quota."""
    words = (_cgroup("cpu.max") or ["max"])[0].split()
    return math.inf if words[0] == "max" else int(words[0]) / int(words[1])


def throttled_s():
    """Seconds that the quota has held threads back since the container began; None where nobody counts."""
    counts = dict(line.split() for line in _cgroup("cpu.stat"))
    return int(counts["throttled_usec"]) / 1e6 if "throttled_usec" in counts else None
