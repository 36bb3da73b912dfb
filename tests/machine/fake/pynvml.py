"""In place of nvidia-ml-py: GPUs as the JSON file in FAKE_NVML describes them, one object each.

power_w; factor (of the energy counter against the power); memory_bytes; apps (process -> bytes); lacks (names of
what the driver does not support); jump ([seconds after t0, joules]); steps (joules that
the counter gains twice a second, in the shortest window too); t0; average_w (what the older reading of power says).
"""

import json
import os
import time
from types import SimpleNamespace

NVML_FI_DEV_POWER_INSTANT = 186


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
    passed = time.monotonic() - gpu["t0"]
    moment, joules = gpu.get("jump", [1e9, 0])
    jumped = (joules if passed > moment else 0) + gpu.get("steps", 0) * int(2 * passed)
    return int(1e3 * (1e6 + gpu.get("factor", 1) * gpu["power_w"] * passed + jumped))


def nvmlDeviceGetFieldValues(handle, fields):
    gpu = _gpu(handle, "fields")
    assert fields == [NVML_FI_DEV_POWER_INSTANT]
    missing = "instant" in gpu.get("lacks", [])
    value = SimpleNamespace(uiVal=int(1e3 * gpu["power_w"]))
    return [SimpleNamespace(nvmlReturn=3 if missing else 0, value=value)]


def nvmlDeviceGetPowerUsage(handle):
    gpu = _gpu(handle, "power")
    return int(1e3 * gpu.get("average_w", gpu["power_w"]))


def nvmlDeviceGetMemoryInfo(handle):
    return SimpleNamespace(used=_gpu(handle, "memory").get("memory_bytes", 0))


def nvmlDeviceGetComputeRunningProcesses(handle):
    apps = _gpu(handle, "apps").get("apps", {})
    return [SimpleNamespace(pid=int(pid), usedGpuMemory=held) for pid, held in apps.items()]
