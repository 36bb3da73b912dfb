"""The most memory that an engine holds on its GPUs, read at the driver ten times a second by a process of its
own.

    python -m bench.machine.sampler 1234 0 1     for the family of process 1234: GPUs 0 and 1 (or UUIDs)

Other modules know it by this module's name in its command line. What NVML cannot tell is None.
"""

import atexit
import contextlib
import json
import math
import os
import select
import subprocess
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

import psutil

from bench.paths import ROOT
from llm_measured.core.definitions import Fields, Value

INTERVAL_S = 0.1
MODULE = "bench.machine.sampler"
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

    def memory(self) -> Fields:
        """Return {memory_bytes: in use, None where unknown; apps: process -> bytes}."""
        memory = self._read(self.nvml.nvmlDeviceGetMemoryInfo)
        apps = self._read(self.nvml.nvmlDeviceGetComputeRunningProcesses) or []
        return {
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


def is_probe(process: psutil.Process) -> bool:
    """Whether it is one of PROBES."""
    return any(module in process.cmdline() for module in PROBES)


class Watch:
    """The child's side: the most memory that the family of a process has held."""

    def __init__(self, family_of: int, names: Sequence[str]) -> None:
        self.family_of, self.gpus = family_of, gpus(names)
        self.peak_bytes: float | None = None
        self.kin: dict[int, bool] = {}

    def look(self) -> None:
        """Let the peak be at least what is held now."""
        held = self.held_bytes([gpu.memory() for gpu in self.gpus])
        if held is not None:
            self.peak_bytes = max(self.peak_bytes or 0, held)

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

    def answer(self, word: str) -> float | None:
        """Return the peak that the parent asks for; after `forget` it begins anew with what is held now."""
        if word == "forget":
            self.peak_bytes = None
        self.look()
        return self.peak_bytes


def serve(family_of: int, names: Sequence[str]) -> None:
    """Look until standard input ends; one line in, one JSON line out."""
    watch = Watch(family_of, names)
    while True:
        watch.look()
        if select.select([sys.stdin], [], [], INTERVAL_S)[0]:
            line = sys.stdin.readline()
            if not line:
                return
            print(json.dumps(watch.answer(line.strip())), flush=True)


class Sampler:
    """The parent's side. `names`: GPUs as `gpu.used` lists them."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = tuple(names)
        command = [sys.executable, "-m", MODULE, str(os.getpid()), *names]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )

    def _ask(self, word: str) -> Value:
        try:
            self.process.stdin.write(f"{word}\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise RuntimeError(f"The sampler of GPU memory ended with exit code {self.process.wait()}.")
        return json.loads(answer)

    def forget_peak(self) -> None:
        """Let the peak begin anew with what is held now."""
        self._ask("forget")

    def peak_bytes(self) -> float:
        """Most bytes that the family held on all GPUs at once since `forget_peak`; NaN if nothing tells."""
        peak = self._ask("peak")
        return math.nan if peak is None else peak

    def close(self) -> None:
        """End the process."""
        if self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait(timeout=30)
            self.process.stdout.close()


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
