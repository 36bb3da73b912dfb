"""What the machine's counters say while an engine runs, read by a process of its own ten times a second.

    python -m bench.machine.sampler 1234 0 1     for the family of process 1234: GPUs 0 and 1 (or UUIDs)

It reads NVML (memory in use, energy, power) and, where the system shows them, the RAPL counters of the CPU.
Other modules know it by this module's name in its command line. A counter that cannot be read is None.
"""

import atexit
import collections
import contextlib
import json
import math
import os
import select
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic as clock
from types import ModuleType
from typing import Self

import psutil

from bench.paths import ROOT
from llm_measured.core.definitions import Fields, Value

INTERVAL_S = 0.1
MODULE = "bench.machine.sampler"
POWERCAP = "/sys/class/powercap"  # BENCH_POWERCAP names another folder
HISTORY_S = 3600.0  # how long samples are kept
PROBES = (MODULE, "bench.machine.bandwidth")  # their memory is not the engine's


class Gpu:
    """One GPU as NVML shows it."""

    def __init__(self, nvml: ModuleType, name: str) -> None:
        self.nvml = nvml
        by_uuid, by_number = nvml.nvmlDeviceGetHandleByUUID, nvml.nvmlDeviceGetHandleByIndex
        self.handle = by_number(int(name)) if name.isdigit() else by_uuid(name)

    def _read(self, function: Callable, *arguments: object) -> Value:
        try:
            return function(self.handle, *arguments)
        except self.nvml.NVMLError:
            return None

    def power(self) -> Fields:
        """{power_w: watts now, instant: whether NVML's instantaneous reading or the one it averages}."""
        fields = self._read(self.nvml.nvmlDeviceGetFieldValues, [self.nvml.NVML_FI_DEV_POWER_INSTANT])
        if fields and fields[0].nvmlReturn == 0:
            return {"power_w": fields[0].value.uiVal / 1e3, "instant": True}
        milliwatts = self._read(self.nvml.nvmlDeviceGetPowerUsage)
        return {"power_w": None if milliwatts is None else milliwatts / 1e3, "instant": False}

    def sample(self) -> Fields:
        """{energy_j since the driver was loaded, power_w, instant, memory_bytes in use, apps: process ->
        bytes}."""
        millijoules = self._read(self.nvml.nvmlDeviceGetTotalEnergyConsumption)
        memory = self._read(self.nvml.nvmlDeviceGetMemoryInfo)
        apps = self._read(self.nvml.nvmlDeviceGetComputeRunningProcesses) or []
        return {
            "energy_j": None if millijoules is None else millijoules / 1e3,
            **self.power(),
            "memory_bytes": None if memory is None else memory.used,
            "apps": {app.pid: app.usedGpuMemory for app in apps},
        }


def gpus(names: Sequence[str]) -> list[Gpu]:
    """A Gpu for each name; none where NVML is not there."""
    if not names:
        return []
    try:
        import pynvml

        pynvml.nvmlInit()
        return [Gpu(pynvml, name) for name in names]
    except Exception as failure:  # no driver, no nvidia-ml-py, no such GPU: nothing can be read
        print(f"NVML cannot be read: {failure}", file=sys.stderr)
        return []


def rapl() -> dict[str, list[float]] | None:
    """Zone -> [joules of its counter, joules at which it begins anew] of the CPU packages; None if one cannot
    be read, which systems allow only to root."""
    folder, zones = Path(os.environ.get("BENCH_POWERCAP", POWERCAP)), {}
    for zone in sorted(folder.glob("intel-rapl:*")):
        if zone.name.count(":") != 1 or not _text(zone / "name").startswith("package"):
            continue  # a package's parts are in it; `psys` counts it again
        try:
            readings = [int((zone / file).read_text()) / 1e6 for file in ("energy_uj", "max_energy_range_uj")]
        except (OSError, ValueError):
            return None
        zones[zone.name] = readings
    return zones or None


def is_probe(process: psutil.Process) -> bool:
    """Whether it is one of PROBES."""
    return any(module in process.cmdline() for module in PROBES)


def _text(file: Path) -> str:
    return file.read_text().strip() if file.exists() else ""


class Watch:
    """The child's side: samples, and the most memory that the family of a process has held."""

    def __init__(self, family_of: int, names: Sequence[str]) -> None:
        self.family_of, self.gpus = family_of, gpus(names)
        self.samples: collections.deque[Fields] = collections.deque()
        self.peak_bytes: float | None = None
        self.kin: dict[int, bool] = {}

    def sample(self) -> None:
        """Take one sample; older ones than HISTORY_S are dropped."""
        one: Fields = {"t": clock(), "gpus": [gpu.sample() for gpu in self.gpus], "cpu": rapl()}
        held = self.held_bytes(one["gpus"])
        if held is not None:
            self.peak_bytes = max(self.peak_bytes or 0, held)
        for gpu in one["gpus"]:
            del gpu["apps"]
        self.samples.append(one)
        while self.samples[0]["t"] < one["t"] - HISTORY_S:
            self.samples.popleft()

    def held_bytes(self, samples: list[Fields]) -> float | None:
        """What the family's processes hold on all GPUs; where the driver names none of them or not their
        bytes (in a container), all that is in use."""
        apps = [(pid, held) for gpu in samples for pid, held in gpu["apps"].items() if self._own(pid)]
        if apps and all(held for _, held in apps):
            return sum(held for _, held in apps)
        used = [gpu["memory_bytes"] for gpu in samples]
        return sum(used) if used and None not in used else None

    def _own(self, pid: int) -> bool:
        """Whether a process belongs to the family, the probes among it left out."""
        if pid not in self.kin:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                line = [process.pid, *(parent.pid for parent in process.parents())]
                self.kin[pid] = self.family_of in line and not is_probe(process)
        return self.kin.get(pid, False)

    def answer(self, words: Sequence[str]) -> Value:
        """What the parent asks for: `peak`, `forget`, `now`, or `window START END`."""
        if words[0] == "forget":
            self.peak_bytes = None
        self.sample()
        if words[0] == "now":
            return self.samples[-1]
        if words[0] != "window":
            return self.peak_bytes
        start, end = map(float, words[1:])
        return [one for one in self.samples if start <= one["t"] <= end]


def serve(family_of: int, names: Sequence[str]) -> None:
    """Sample until standard input ends; one line in, one JSON line out."""
    watch = Watch(family_of, names)
    while True:
        watch.sample()
        if select.select([sys.stdin], [], [], INTERVAL_S)[0]:
            line = sys.stdin.readline()
            if not line:
                return
            print(json.dumps(watch.answer(line.split())), flush=True)


class Sampler:
    """The parent's side; context manager. `names`: GPUs as `gpu.used` lists them, none for the CPU alone."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = tuple(names)
        command = [sys.executable, "-m", MODULE, str(os.getpid()), *names]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )

    def _ask(self, *words: object) -> Value:
        try:
            self.process.stdin.write(" ".join(map(str, words)) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise RuntimeError(f"The sampler of counters ended with exit code {self.process.wait()}.")
        return json.loads(answer)

    def forget_peak(self) -> None:
        """Let the peak begin anew with what is held now."""
        self._ask("forget")

    def peak_bytes(self) -> float:
        """Most bytes that the family held on all GPUs at once since `forget_peak`; NaN if nothing tells."""
        peak = self._ask("peak")
        return math.nan if peak is None else peak

    def now(self) -> Fields:
        """One sample, taken now."""
        return self._ask("now")

    def window(self, start: float, end: float) -> list[Fields]:
        """The samples between two moments of `time.monotonic`."""
        return self._ask("window", start, end)

    def close(self) -> None:
        """End the process."""
        if self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait(timeout=30)
            self.process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_shared: dict[int, Sampler] = {}  # process number -> its sampler; a fork has none


def shared(names: Sequence[str] = ()) -> Sampler:
    """This process's sampler of the GPUs `names`, started at the first call and ended by `end` or at exit."""
    found = _shared.get(os.getpid())
    if found is not None and found.names != tuple(names):
        end()
        found = None
    if found is None:
        found = _shared[os.getpid()] = Sampler(names)
        atexit.register(found.close)
    return found


def end() -> None:
    """End this process's shared sampler, if there is one."""
    found = _shared.pop(os.getpid(), None)
    if found is not None:
        atexit.unregister(found.close)
        found.close()


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2:])
