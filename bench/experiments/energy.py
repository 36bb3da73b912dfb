"""Joules of a run, the same way for every engine: beside its times, never during them.

    meter = energy.Meter(target)
    rows = meter.repeated("4 x 512+64", rows, work)    # the same work again until the window is long enough
    before = meter.read()                              # a level of load is long enough by itself
    rows = meter.during("closed 8", rows, before)
    meter.ready()                                      # idle power, the engine loaded
    meter.about()                                      # for the sidecar

The counters of the GPU (NVML) and of the CPU's packages (RAPL) are read before and after a window of at
least WINDOW_S seconds. Its joules are shared among the output tokens of its requests; where requests go to a
server, the client's start is in the window. Without a figure the column is empty, never zero, and the sidecar
says why.
"""

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic as clock

from bench.experiments.target import Target
from bench.machine import gpu
from llm_measured.core.definitions import Fields

METHOD = (
    "NVML's energy counter, all processes on the GPU and idle power included, and RAPL's counters of the "
    "CPU's packages, each read before and after the window"
)
WINDOW_S = 10.0  # counters move in steps of up to a tenth of a second: one in a hundred of this
LONGER = 1.2  # how much longer than a window requests are sent that are to fill it: they may be quicker
POWERCAP = "/sys/class/powercap"  # BENCH_POWERCAP names another folder
# More than a CPU package takes. A counter that fell without a wrap would show more than this, and a window in
# which so many watts reach the counter's range may hold two wraps.
MOST_PACKAGE_W = 500.0
NO_GPU = "the run uses no GPU"
NO_NVML = "NVML cannot be read"
NO_RAPL = "the CPU's RAPL counters are not there or not readable for this user"
ELSEWHERE = "the server was not started by this run, so nobody knows what else its machine did"


class Unreadable(ValueError):
    """There is no figure; the message says why."""


@dataclass(frozen=True)
class Reading:
    """The counters at one moment, in joules."""

    at_s: float
    gpus: tuple[float | None, ...]  # since the driver was loaded, None without a counter; () without NVML
    packages: dict[str, tuple[float, float]]  # zone -> (joules, joules at which it begins anew); {}: no RAPL


@dataclass(frozen=True)
class Energy:
    """Joules of a window, NaN where a reason stands instead."""

    seconds: float
    gpu_energy_j: float
    cpu_energy_j: float
    gpu_reason: str = ""
    cpu_reason: str = ""

    def about(self) -> Fields:
        """Return the sidecar's part: seconds, mean watts and the reasons; None for what was not read."""
        watts = {
            f"{name}_w": None if math.isnan(joules) else joules / self.seconds
            for name, joules in (("gpu", self.gpu_energy_j), ("cpu", self.cpu_energy_j))
        }
        return {
            "seconds": None if math.isnan(self.seconds) else self.seconds,
            **watts,
            "gpu_reason": self.gpu_reason,
            "cpu_reason": self.cpu_reason,
        }


def gpu_counters(names: list[str]) -> tuple[float | None, ...]:
    """Return the joules that NVML counted on each GPU of `names` (numbers or UUIDs), None where one has no
    counter; () where NVML cannot be read."""
    if not names:
        return ()
    try:
        import pynvml

        pynvml.nvmlInit()
        handles = [
            pynvml.nvmlDeviceGetHandleByIndex(int(name))
            if name.isdigit()
            else pynvml.nvmlDeviceGetHandleByUUID(name)
            for name in names
        ]
    except Exception:  # no driver, no nvidia-ml-py, no such GPU: nothing can be read
        return ()
    counted: list[float | None] = []
    for handle in handles:
        try:
            counted.append(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3)
        except pynvml.NVMLError:
            counted.append(None)
    return tuple(counted)


def package_counters() -> dict[str, tuple[float, float]]:
    """Return {zone: (joules of its counter, joules at which it begins anew)} of the CPU packages.

    Empty if one cannot be read: most systems let only root read them.
    """
    folder, zones = Path(os.environ.get("BENCH_POWERCAP", POWERCAP)), {}
    for zone in sorted(folder.glob("intel-rapl:*")):
        if zone.name.count(":") != 1:
            continue  # a part of a package, whose joules are in the package's
        try:
            if not (zone / "name").read_text().startswith("package"):
                continue  # `psys` counts the packages again
            joules, largest = (
                int((zone / file).read_text()) / 1e6 for file in ("energy_uj", "max_energy_range_uj")
            )
        except (OSError, ValueError):
            return {}
        zones[zone.name] = joules, largest
    return zones


def of_gpus(before: Reading, after: Reading) -> float:
    """Return the joules of all GPUs between two readings; Unreadable where a counter is missing, stands still
    or stepped back."""
    if not before.gpus or len(after.gpus) != len(before.gpus):
        raise Unreadable(NO_NVML)
    total = 0.0
    for number, (first, last) in enumerate(zip(before.gpus, after.gpus)):
        if first is None or last is None:
            raise Unreadable(f"GPU {number} has no energy counter that can be read")
        if last < first:
            raise Unreadable(f"the energy counter of GPU {number} stepped back")
        if last == first:
            raise Unreadable(f"the energy counter of GPU {number} stands still")
        total += last - first
    return total


def of_packages(before: Reading, after: Reading) -> float:
    """Return the joules of all CPU packages between two readings; each counter may have wrapped once.

    Unreadable where one is missing, stands still, stepped back, or may have wrapped twice.
    """
    if not before.packages or before.packages.keys() != after.packages.keys():
        raise Unreadable(NO_RAPL)
    seconds, total = after.at_s - before.at_s, 0.0
    for zone, (first, largest) in before.packages.items():
        if seconds * MOST_PACKAGE_W > largest:
            raise Unreadable(f"in a window of {seconds:.0f} s the counter {zone} may have wrapped twice")
        last = after.packages[zone][0]
        joules = last - first if last >= first else last + largest - first
        if last < first and not 0 < joules <= seconds * MOST_PACKAGE_W:
            raise Unreadable(f"the counter {zone} stepped back from {first:.0f} J to {last:.0f} J")
        total += joules
    if not total:
        raise Unreadable("the CPU's RAPL counters stand still")
    return total


def between(before: Reading, after: Reading) -> Energy:
    """Return the energy of the window between two readings, with the reasons where there is none."""
    gpu_energy_j, gpu_reason = _or_reason(of_gpus, before, after)
    cpu_energy_j, cpu_reason = _or_reason(of_packages, before, after)
    return Energy(after.at_s - before.at_s, gpu_energy_j, cpu_energy_j, gpu_reason, cpu_reason)


def _or_reason(
    count: Callable[[Reading, Reading], float], before: Reading, after: Reading
) -> tuple[float, str]:
    seconds = after.at_s - before.at_s
    if seconds < WINDOW_S:
        return math.nan, f"the window of {seconds:.1f} s is shorter than {WINDOW_S:g} s"
    try:
        return count(before, after), ""
    except Unreadable as failure:
        return math.nan, str(failure)


class Meter:
    """Counts the joules of one run that measures `target`."""

    def __init__(self, target: Target) -> None:
        self.cuda, self.elsewhere = target.device == "cuda", bool(target.url)
        self.gpus = target.devices.count if self.cuda else 0
        self.windows: list[Fields] = []
        self.idle: Fields | None = None  # power of the machine, the engine loaded

    def read(self) -> Reading:
        """Read the counters now; none of a server elsewhere."""
        if self.elsewhere:
            return Reading(clock(), (), {})
        names = gpu.used(self.gpus) if self.cuda else []
        return Reading(clock(), gpu_counters(list(names)), package_counters())

    def reasons(self, reading: Reading) -> tuple[str, str]:
        """Return why there is no GPU energy, and why there is no CPU energy; empty where there may be."""
        if self.elsewhere:
            return ELSEWHERE, ELSEWHERE
        on_cpu = "" if reading.packages else NO_RAPL
        if not self.cuda:
            return NO_GPU, on_cpu
        if not reading.gpus:
            return NO_NVML, on_cpu
        if None in reading.gpus:
            return f"GPU {reading.gpus.index(None)} has no energy counter that can be read", on_cpu
        return "", on_cpu

    def repeated(self, what: str, rows: list[Fields], work: Callable[[], list[Fields]]) -> list[Fields]:
        """Return `rows` with the joules of their requests: `work()` carries some of them out once more and
        returns its rows, again and again for WINDOW_S seconds."""
        failed = [row["error"] for row in rows if row["error"]]
        before = self.read()
        if failed or all(self.reasons(before)):
            return self._keep(what, self._without(before, failed), rows, rows)
        done: list[Fields] = []
        count = 0
        while not count or clock() - before.at_s < WINDOW_S:
            done.extend(work())
            count += 1
        after = self.read()
        failed = [row["error"] for row in done if row["error"]]
        counted = self._without(after, failed) if failed else self._between(before, after)
        return self._keep(what, counted, done, rows, repeats=count)

    def during(self, what: str, rows: list[Fields], before: Reading) -> list[Fields]:
        """Return `rows` of a level of load that began after `before` and has just ended with the joules of
        their requests."""
        after, good = self.read(), [row for row in rows if not row["error"]]
        if not good:
            return self._keep(what, self._without(after, ["every request failed"]), good, rows)
        return self._keep(what, self._between(before, after), good, rows)

    def _between(self, before: Reading, after: Reading) -> Energy:
        """Return the energy of a window; a reason that holds for the whole run comes before the window's."""
        counted, (on_gpu, on_cpu) = between(before, after), self.reasons(before)
        return replace(
            counted, gpu_reason=on_gpu or counted.gpu_reason, cpu_reason=on_cpu or counted.cpu_reason
        )

    def _without(self, reading: Reading, failed: list[str]) -> Energy:
        """Return no figure: because no counter can be read, or because a request failed."""
        why = failed[0] if failed else ""
        on_gpu, on_cpu = self.reasons(reading)
        return Energy(math.nan, math.nan, math.nan, on_gpu or why, on_cpu or why)

    def _keep(
        self, what: str, counted: Energy, done: list[Fields], rows: list[Fields], **more: int
    ) -> list[Fields]:
        """Note a window in which the requests `done` were answered; return `rows` with their share."""
        tokens = sum(row["output_tokens"] for row in done)
        self.windows.append({"what": what, "output_tokens": tokens} | more | counted.about())
        shared = []
        for row in rows:
            if not row["error"]:
                share = row["output_tokens"] / tokens if tokens else math.nan
                row = row | {
                    "gpu_energy_j": counted.gpu_energy_j * share,
                    "cpu_energy_j": counted.cpu_energy_j * share,
                }
            shared.append(row)
        return shared

    def ready(self) -> None:
        """Take the power of the idle machine, the engine loaded: once, and where any window has a figure."""
        known = [window for window in self.windows if window["gpu_w"] or window["cpu_w"]]
        if known and self.idle is None:
            before = self.read()
            time.sleep(WINDOW_S)
            self.idle = self._between(before, self.read()).about()

    def about(self) -> Fields | None:
        """Return the sidecar's part: how it was measured, idle power, every window; None where nothing was to
        be measured."""
        if not self.windows:
            return None
        on_gpu, on_cpu = self.reasons(self.read())
        return {
            "method": METHOD,
            "gpus": self.gpus,
            "gpu_reason": on_gpu,
            "cpu_reason": on_cpu,
            "idle": self.idle,
            "windows": self.windows,
        }
