"""GPUs as the NVIDIA driver describes them."""

import itertools
import os
import re
import subprocess

from bench import inputs, naming
from bench.environment import visible_gpus

STATE = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw", "memory.used")
# What stands for several GPUs at once: the slowest clock, the hottest chip, all watts, all bytes.
OF_ALL = dict(zip(STATE, (min, min, max, sum, sum)))
ORDER = "PCI_BUS_ID"


def has_cuda():
    """Whether an NVIDIA driver answers."""
    return bool(nvidia("name"))


def count_as_the_driver():
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


def used(count=1):
    """Numbers or UUIDs of the first `count` GPUs that CUDA may use, as nvidia-smi takes them."""
    count_as_the_driver()
    listed = visible_gpus()
    return ([str(number) for number in range(count)] if listed is None else listed)[:count]


def nvidia(*fields, gpu=None):
    """Fields of `nvidia-smi --query-gpu` for one GPU (the first visible one if None) as a dict; empty without
    an NVIDIA driver or such a GPU."""
    gpu = next(iter(used()), None) if gpu is None else gpu
    if gpu is None:
        return {}
    answer = _smi(f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", f"--id={gpu}")
    return dict(zip(fields, answer.strip().split(", "))) if answer else {}


def _smi(*words):
    """What nvidia-smi answers; empty where there is none or it fails."""
    try:
        done = subprocess.run(["nvidia-smi", *words], capture_output=True, text=True, timeout=30)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def gpus():
    """Names of the GPUs that CUDA may use here. In CUDA_VISIBLE_DEVICES one that does not exist hides those
    behind it. Empty without an NVIDIA driver."""
    listed = visible_gpus()
    chosen = range(int(nvidia("count").get("count", 0))) if listed is None else listed
    return [found["name"] for found in itertools.takewhile(bool, (nvidia("name", gpu=one) for one in chosen))]


def gpu_state(count=1):
    """What changes on the first `count` GPUs: clocks in MHz, degrees Celsius, watts, MiB in use.

    Of several: the slowest clocks, the highest temperature, the sum of watts and MiB. Empty without an NVIDIA
    driver; None for a field that the driver does not report for one of them.
    """
    states = [nvidia(*STATE, gpu=gpu) for gpu in used(count)]
    if not states or not all(states):
        return {}
    columns = {name: [_number(state[name]) for state in states] for name in STATE}
    return {name: None if None in values else OF_ALL[name](values) for name, values in columns.items()}


def _number(text):
    try:
        return float(text)
    except ValueError:  # [N/A], [Not Supported]
        return None


def datasheet_bandwidth(gpu):
    """The vendor's figure for the device called `gpu` in bytes/s, None where data/gpus.csv has no such row
    (CPUs).

    A row is found by its own name or by one of its aliases: slugs of what drivers call the same device.
    """
    table = inputs.table("gpus")
    names = table["gpu"].map(naming.slug) + " " + table["aliases"].fillna("")
    match = table[names.str.split().map(lambda known: gpu in known)]
    return float(match["bandwidth_gb_per_s"].iloc[0]) * 1e9 if len(match) else None


def gpu_processes(count=1):
    """(process number, bytes) of whatever computes on the first `count` GPUs; bytes are 0 and processes are
    missing where the driver does not report them. A process on several GPUs is listed once for each."""
    found = []
    for gpu in used(count):
        listed = _smi("--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits", f"--id={gpu}")
        found += [
            (int(pid), int(mib) * 2**20 if mib.isdigit() else 0)
            for pid, mib in re.findall(r"^(\d+), (.*)$", listed, re.M)
        ]
    return found
