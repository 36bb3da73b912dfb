"""GPUs as the NVIDIA driver describes them."""

import itertools
import os
import re
import subprocess

from bench import inputs
from bench.machine import memory

GPU_STATE = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw", "memory.used")


def has_cuda():
    """Whether an NVIDIA driver answers."""
    return bool(nvidia("name"))


def visible_gpus():
    """GPUs as CUDA_VISIBLE_DEVICES lists them, numbers or identifiers; None where it is not set and CUDA may
    use all."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if listed is None else [name for name in listed.split(",") if name]


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
    return [about["name"] for about in itertools.takewhile(bool, (nvidia("name", gpu=one) for one in chosen))]


def gpu_state():
    """What moves on the first visible GPU: clocks in MHz, degrees Celsius, watts, MiB in use; empty without
    an NVIDIA driver, None where it keeps silent."""
    return {name: _number(said) for name, said in nvidia(*GPU_STATE).items()}


def _number(said):
    try:
        return float(said)
    except ValueError:  # [N/A], [Not Supported]
        return None


def gpu_company():
    """Sorted process numbers that compute on the first visible GPU and are not this process or its children;
    empty where the driver names none."""
    return sorted(pid for pid, _ in gpu_processes() if pid not in memory.family())


def datasheet_bandwidth(gpu):
    """The vendor's figure for the device called `gpu` in bytes/s, None where data/gpus.csv has no such row
    (CPUs)."""
    table = inputs.table("gpus")
    match = table[table["gpu"].str.lower().str.replace(r"[^a-z0-9]+", "-", regex=True) == gpu]
    return float(match["bandwidth_gb_per_s"].iloc[0]) * 1e9 if len(match) else None


def gpu_processes():
    """(process number, bytes) of whatever computes on the first visible GPU; bytes are 0 and processes are
    missing where the driver does not tell."""
    if _first() is None:
        return []
    command = [
        "nvidia-smi",
        "--query-compute-apps=pid,used_memory",
        "--format=csv,noheader,nounits",
        f"--id={_first()}",
    ]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return []
    return [
        (int(pid), int(mib) * 2**20 if mib.isdigit() else 0)
        for pid, mib in re.findall(r"^(\d+), (.*)$", said, re.M)
    ]
