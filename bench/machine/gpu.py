"""GPUs as the NVIDIA driver describes them."""

import itertools
import re
import subprocess
from collections.abc import Callable

from bench.environment import used_gpus as used
from bench.environment import visible_gpus
from llm_measured.core import names
from llm_measured.core.definitions import Fields

STATE = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw", "memory.used")
# What stands for several GPUs at once: the slowest clock, the hottest chip, all watts, all bytes.
OF_ALL: dict[str, Callable] = dict(zip(STATE, (min, min, max, sum, sum)))


def has_cuda() -> bool:
    """Whether an NVIDIA driver answers."""
    return bool(nvidia("name"))


def nvidia(*fields: str, gpu: str | int | None = None) -> dict[str, str]:
    """Fields of `nvidia-smi --query-gpu` for one GPU (the first visible one if None) as a dict; empty without
    an NVIDIA driver or such a GPU."""
    gpu = next(iter(used()), None) if gpu is None else gpu
    if gpu is None:
        return {}
    answer = _smi(f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", f"--id={gpu}")
    return dict(zip(fields, answer.strip().split(", "))) if answer else {}


def _smi(*words: str) -> str:
    """What nvidia-smi answers; empty where there is none or it fails."""
    try:
        done = subprocess.run(["nvidia-smi", *words], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):  # a folder of PATH that may not be read is a PermissionError
        return ""
    return done.stdout if done.returncode == 0 else ""


def gpus() -> list[str]:
    """Names of the GPUs that CUDA may use here. In CUDA_VISIBLE_DEVICES one that does not exist hides those
    behind it. Empty without an NVIDIA driver."""
    listed = visible_gpus()
    chosen = range(int(nvidia("count").get("count", 0))) if listed is None else listed
    return [found["name"] for found in itertools.takewhile(bool, (nvidia("name", gpu=one) for one in chosen))]


def gpu_state(count: int = 1) -> Fields:
    """What changes on the first `count` GPUs: clocks in MHz, degrees Celsius, watts, MiB in use.

    Of several: the slowest clocks, the highest temperature, the sum of watts and MiB. Empty without an NVIDIA
    driver; None for a field that the driver does not report for one of them.
    """
    states = [nvidia(*STATE, gpu=gpu) for gpu in used(count)]
    if not states or not all(states):
        return {}
    columns = {name: [_number(state[name]) for state in states] for name in STATE}
    return {name: None if None in values else OF_ALL[name](values) for name, values in columns.items()}


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # [N/A], [Not Supported]
        return None


def datasheet_bandwidth(gpu: str) -> float | None:
    """The vendor's figure for the device called `gpu` (its slug) in bytes/s, None where core/accelerators.csv
    has no such row (CPUs), or where the name may be of two variants that differ."""
    return names.bandwidth(gpu)


def gpu_processes(count: int = 1) -> list[tuple[int, int]]:
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
