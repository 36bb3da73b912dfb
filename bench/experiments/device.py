"""The device of a run, taken and let go: the machine-wide lock, the neighbours, the bandwidth probe.

with device.Alone("cpu", folder) as alone:     # nobody else measures meanwhile
    …
    alone.refuse_if_busy()
"""

import contextlib
import math
import os
import time
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from tqdm import tqdm

from bench.experiments.target import LOCAL, Target
from bench.machine import bandwidth, gemm, gpu, identity, memory, neighbours, sampler
from bench.observations import checks, schema
from bench.paths import COMMITTED
from llm_measured.core.definitions import Fields

LOOKS = 3  # a machine is busy if it was so in each of them
LOOK_S = 0.5
INTERVAL_S = 2.0  # what is shorter is noise: tick counters have hundredths of a second


class Alone:
    """The machine-wide lock of one kind of device, and a look at who else computes.

    Beside neighbours, results are measured with a warning that go to a folder of one's own, or that can be
    `marked`; others are refused at once, as all of them are with BENCH_STRICT in the environment. With
    BENCH_WAIT it waits for idleness. Without `watched` it is the lock alone: for what no neighbour can spoil,
    such as scores, or a server that runs elsewhere.
    """

    def __init__(self, kind: str, folder: Path, marked: bool = False, watched: bool = True) -> None:
        self.kind, self.scratch = kind, Path(folder).resolve() != COMMITTED.resolve()
        self.marked = marked and not _is_set("BENCH_STRICT")
        self.watched, self.lock, self.warned, self.busy_looks = watched, None, False, 0

    @property
    def marking_cores(self) -> float:
        """Cores that others may keep busy in the mean before a run is marked."""
        return checks.BUSY_SHARE * identity.cores()

    @property
    def refuses(self) -> bool:
        """Whether a run beside neighbours is refused."""
        return not (self.scratch or self.marked)

    def __enter__(self) -> Self:
        self.lock = neighbours.take(self.kind)
        try:
            if self.watched:
                with neighbours.Waiting() as shown:
                    self._look_until_idle(shown)
        except BaseException:
            self.release()
            raise
        self.neighbours, self.watch = neighbours.Neighbours(), neighbours.Watch()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Let the device go; once is enough."""
        if self.lock is not None:
            self.lock.release()
            self.lock = None

    def cores(self) -> dict[str, float]:
        """{'others': …, 'steal': …}: mean cores that others kept busy since the device was taken."""
        return self.neighbours.cores()

    def look(self) -> None:
        """After a request: warn of neighbours, or refuse where they stay and the run would be refused.

        checks.Rejected for a run to be published, if they were there in two looks and on average.
        """
        if not self.watched or self.watch.seconds() < INTERVAL_S:
            return
        seen = self.watch.look()
        self.busy_looks = self.busy_looks + 1 if seen.cores > checks.BUSY_CORES else 0
        others = self.cores()["others"]
        if not self.warned and (self.busy_looks or min(seen.cores, others) > self.marking_cores):
            self._warn(seen)
        if self.busy_looks > 1 and self.refuses and others > checks.BUSY_CORES:
            raise checks.Rejected(_sentence(seen))

    def refuse_if_busy(self) -> None:
        """checks.Rejected where others kept the machine busy since it was taken, but in a folder of one's own
        or where that is marked."""
        others = self.cores()["others"]
        if others > checks.BUSY_CORES and self.refuses:
            raise checks.Rejected(_sentence(neighbours.Look(others, self.watch.look().processes)))

    def _look_until_idle(self, shown):
        """Look a few times; refuse, warn or wait where somebody is busy in every look."""
        waits = _is_set("BENCH_WAIT") and not self.scratch
        # What is refused is a second job; what is warned of or waited for is all that would mark the run.
        limit = checks.BUSY_CORES if self.refuses and not waits else self.marking_cores
        while True:
            watch, calmest = neighbours.Watch(), None
            for _ in range(LOOKS):
                time.sleep(LOOK_S)
                seen = watch.look()
                calmest = seen if calmest is None or seen.cores < calmest.cores else calmest
                if calmest.cores <= limit:
                    return
            if not waits:
                if self.refuses:
                    raise checks.Rejected(_sentence(calmest))
                return self._warn(calmest)
            shown.say(f"for an idle machine, until it is one: other processes keep {calmest}")

    def _warn(self, seen):
        self.warned = True
        sentence = f"{neighbours.WARNING}other processes keep {seen}, so these times are not to be trusted."
        if self.marked:
            sentence += (
                " The run is kept apart, marked, and compared with nothing; stop them, or let it wait for an "
                "idle machine: WAIT=1 after make study, BENCH_WAIT=1 before papermill."
            )
        tqdm.write(sentence)
        neighbours.tell(sentence)


def _is_set(name):
    return os.environ.get(name, "") not in ("", "0")


def _sentence(seen):
    return (
        f"Other processes keep {seen}, and at most {checks.BUSY_CORES} may be: stop them and run again, "
        "set BENCH_WAIT=1 to wait for them, or try it with a folder of your own, -p results scratch."
    )


class Device:
    """The device of one Target: taken by `take`, described, probed, and let go by `release`."""

    def __init__(self, target: Target) -> None:
        self.target, self.gemm_flops_per_s, self.held = target, {}, contextlib.ExitStack()
        watched = target.experiment not in schema.UNTIMED and self._sees_neighbours()
        self.alone = Alone(target.device, target.folder, marked=True, watched=watched)
        self.count = 1 if target.url else target.devices.count  # of GPUs; a server elsewhere has its own
        self.kind = "cpu" if target.elsewhere else target.device  # of what can be read here

    def _sees_neighbours(self) -> bool:
        """Return whether neighbours can be told from what is measured: of a server that runs already, where
        the process that listens at its address can be seen."""
        parts, memory.measured = urlsplit(self.target.url), set()
        if not self.target.url:
            return True
        if parts.hostname not in LOCAL:
            return False
        owner = memory.listener(parts.port or (443 if parts.scheme == "https" else 80))
        if owner is None:
            tqdm.write("Nobody here may see which process the server is, so neighbours are not watched.")
        memory.measured = {owner} - {None, os.getpid()}
        return owner is not None

    def take(self) -> Self:
        """Hold the device until `release`, and start its probe; returns self.

        RuntimeError where others compute on the GPU, checks.Rejected where they keep the machine busy.
        """
        self.held.enter_context(self.alone)
        try:
            if self.target.device == "cuda" and not self.target.url:
                others = neighbours.gpu_contention(self.count)
                if others:
                    raise RuntimeError(
                        f"Other processes compute on this GPU ({', '.join(map(str, others))}): a benchmark "
                        "that shares its device is void. Stop them, or set CUDA_VISIBLE_DEVICES to another "
                        "one."
                    )
                self.held.callback(sampler.end)
                memory.forget_peak("cuda", self.count)  # before anything is loaded
            self.machine = identity.describe(self.kind, self.count) | self.target.several_gpus()
            unprobed, place = self.target.elsewhere, (self.target.device, self.target.threads)
            self.bandwidth = bandwidth.Unprobed() if unprobed else bandwidth.Bandwidth(*place)
            self.held.push(self.bandwidth)
        except BaseException:
            self.release()
            raise
        return self

    def release(self) -> None:
        """Stop the probe and let the device go; once is enough."""
        self.held.close()

    def probe_gemm(self) -> None:
        """Measure the matrix-multiply peak in every number format, now; all measurements are kept."""
        for dtype, rate in gemm.gemm_peaks(self.target.device, self.target.threads).items():
            self.gemm_flops_per_s.setdefault(dtype, []).append(rate)

    def peak_memory_bytes(self) -> float:
        """Largest memory held so far; NaN for a server elsewhere."""
        return math.nan if self.target.elsewhere else memory.peak_memory_bytes(self.target.device, self.count)

    def gpu_state(self) -> Fields:
        """Clocks, temperature, power of the GPUs that are used (`gpu.gpu_state`); empty on a CPU and for a
        server elsewhere."""
        return gpu.gpu_state(self.count) if self.kind == "cuda" else {}
