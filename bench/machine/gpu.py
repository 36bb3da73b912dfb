"""GPUs as the NVIDIA driver describes them."""

import itertools
import re
import subprocess

from bench import inputs, naming
from bench.environment import visible_gpus

STATE = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw", "memory.used")


def has_cuda():
    """Whether an NVIDIA driver answers."""
    return bool(nvidia("name"))


def _first():
    """The GPU that CUDA counts as the first one; None where it may use none."""
    listed = visible_gpus()
    return next(iter(["0"] if listed is None else listed), None)


def nvidia(*fields, gpu=None):
    """Fields of `nvidia-smi --query-gpu` for one GPU (the first visible one if None) as a dict; empty without
    an NVIDIA driver or such a GPU."""
    gpu = _first() if gpu is None else gpu
    if gpu is None:
        return {}
    command = [
        "nvidia-smi",
        f"--query-gpu={','.join(fields)}",
        "--format=csv,noheader,nounits",
        f"--id={gpu}",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return {}
    return dict(zip(fields, done.stdout.strip().split(", "))) if done.returncode == 0 else {}


def gpus():
    """Names of the GPUs that CUDA may use here. In CUDA_VISIBLE_DEVICES one that does not exist hides those
    behind it. Empty without an NVIDIA driver."""
    listed = visible_gpus()
    chosen = range(int(nvidia("count").get("count", 0))) if listed is None else listed
    return [found["name"] for found in itertools.takewhile(bool, (nvidia("name", gpu=one) for one in chosen))]


def gpu_state():
    """What changes on the first visible GPU: clocks in MHz, degrees Celsius, watts, MiB in use.

    Empty without an NVIDIA driver; None for a field that the driver does not report.
    """
    return {name: _number(text) for name, text in nvidia(*STATE).items()}


def _number(text):
    try:
        return float(text)
    except ValueError:  # [N/A], [Not Supported]
        return None


def datasheet_bandwidth(gpu):
    """The vendor's figure for the device called `gpu` in bytes/s, None where data/gpus.csv has no such row
    (CPUs)."""
    table = inputs.table("gpus")
    match = table[table["gpu"].map(naming.slug) == gpu]
    return float(match["bandwidth_gb_per_s"].iloc[0]) * 1e9 if len(match) else None


def gpu_processes():
    """(process number, bytes) of whatever computes on the first visible GPU; bytes are 0 and processes are
    missing where the driver does not report them."""
    if _first() is None:
        return []
    command = [
        "nvidia-smi",
        "--query-compute-apps=pid,used_memory",
        "--format=csv,noheader,nounits",
        f"--id={_first()}",
    ]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return []
    return [
        (int(pid), int(mib) * 2**20 if mib.isdigit() else 0)
        for pid, mib in re.findall(r"^(\d+), (.*)$", listed, re.M)
    ]
