"""In place of nvidia-ml-py: GPUs as the JSON file in FAKE_NVML describes them, one object each.

power_w; joules (what the energy counter says, instead of what the power has added up to); factor (of the counter
against the power); memory_bytes; apps (process -> bytes); lacks (names of what the driver does not support); t0.
"""

import json
import os
import time
from types import SimpleNamespace


class NVMLError(Exception):
    pass


def nvmlInit():
    if "FAKE_NVML" not in os.environ:
        raise NVMLError("no driver")


def _gpus():
    with open(os.environ["FAKE_NVML"]) as file:
        return json.load(file)


def nvmlDeviceGetHandleByIndex(number):
    if number >= len(_gpus()):
        raise NVMLError("Invalid Argument")
    return number


def nvmlDeviceGetHandleByUUID(name):
    return [gpu.get("uuid") for gpu in _gpus()].index(name)


def _gpu(handle, what):
    gpu = _gpus()[handle]
    if what in gpu.get("lacks", []):
        raise NVMLError("Not Supported")
    return gpu


def nvmlDeviceGetTotalEnergyConsumption(handle):
    gpu = _gpu(handle, "energy")
    if "joules" in gpu:
        return int(1e3 * gpu["joules"])
    return int(1e3 * (1e6 + gpu.get("factor", 1) * gpu["power_w"] * (time.monotonic() - gpu["t0"])))


def nvmlDeviceGetMemoryInfo(handle):
    return SimpleNamespace(used=_gpu(handle, "memory").get("memory_bytes", 0))


def nvmlDeviceGetComputeRunningProcesses(handle):
    apps = _gpu(handle, "apps").get("apps", {})
    return [SimpleNamespace(pid=int(pid), usedGpuMemory=held) for pid, held in apps.items()]
