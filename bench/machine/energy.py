"""Joules of the GPU and the CPU, the same way for every engine.

A window of at least WINDOW_S seconds is counted: NVML's energy counter beside the integral of the power that
was sampled meanwhile. Where the two disagree, or one cannot be read, there is no figure but a reason:
unreadable is empty, never zero. Of the CPU there are the RAPL counters of its packages.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic as clock
from typing import TYPE_CHECKING

from llm_measured.core.definitions import Fields

if TYPE_CHECKING:
    from bench.machine.sampler import Sampler

WINDOW_S = 10.0  # counters move in steps of up to a tenth of a second: one in a hundred of this
AGREE = 0.05  # how far the counter and the sampled power may be apart
# What no GPU or CPU takes: a larger step between two samples is a fault of the counter.
HIGHEST_W = 3000.0


@dataclass(frozen=True)
class Energy:
    """Joules of a window, NaN where a reason stands instead."""

    seconds: float
    gpu_energy_j: float
    cpu_energy_j: float
    gpu_reason: str = ""
    cpu_reason: str = ""

    def per(self, count: float) -> dict[str, float]:
        """What one of `count` equal parts took, tokens for example: columns of the observations."""
        count = count or math.nan
        return {"gpu_energy_j": self.gpu_energy_j / count, "cpu_energy_j": self.cpu_energy_j / count}

    def about(self) -> Fields:
        """What a sidecar keeps: seconds, mean watts and the reasons; None for what was not read."""
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


NO_NVML = "NVML cannot be read"
NO_RAPL = "the CPU's RAPL counters are not there or not readable for this user"


def reasons(sample: Fields) -> tuple[str, str]:
    """(why there is no GPU energy, why there is no CPU energy) as one sample shows it; empty where there may
    be."""
    lacking = [k for k, one in enumerate(sample["gpus"]) if one["energy_j"] is None]
    gpu = _no_counter(lacking[0]) if lacking else "" if sample["gpus"] else NO_NVML
    return gpu, "" if sample["cpu"] else NO_RAPL


def _no_counter(number: int) -> str:
    return f"GPU {number} has no energy counter that can be read"


class Unreadable(ValueError):
    """There is no figure; the message says why."""


def of(samples: list[Fields], seconds: float) -> Energy:
    """Energy of a window of `seconds` from the samples of `"Sampler".window`.

    Counters are read at the first and the last sample; what they counted is stretched to the whole window,
    which reaches at most a sample further at either end.
    """
    gpu, gpu_reason = _or_reason(_gpu_joules, samples, seconds)
    cpu, cpu_reason = _or_reason(_cpu_joules, samples, seconds)
    return Energy(seconds, gpu, cpu, gpu_reason, cpu_reason)


def _or_reason(
    joules: Callable[[list[Fields]], float], samples: list[Fields], seconds: float
) -> tuple[float, str]:
    try:
        if seconds < WINDOW_S:
            raise Unreadable(f"the window of {seconds:.1f} s is shorter than {WINDOW_S:g} s")
        covered = samples[-1]["t"] - samples[0]["t"] if samples else 0.0
        if covered < seconds - 1:
            raise Unreadable(f"counters were read for {covered:.1f} s of {seconds:.1f} s only")
        return joules(samples) * seconds / covered, ""
    except Unreadable as failure:
        return math.nan, str(failure)


def _gpu_joules(samples: list[Fields]) -> float:
    count = len(samples[0]["gpus"])
    if not count:
        raise Unreadable(NO_NVML)
    return sum(_one_gpu([(one["t"], one["gpus"][k]) for one in samples], k) for k in range(count))


def _one_gpu(readings: list, number: int) -> float:
    """Joules of one GPU by its counter, if the power that was sampled agrees."""
    counter = [(t, gpu["energy_j"]) for t, gpu in readings]
    power = [(t, gpu["power_w"]) for t, gpu in readings if gpu["power_w"] is not None]
    if None in [joules for _, joules in counter]:
        raise Unreadable(_no_counter(number))
    steps = [after[1] - before[1] for before, after in zip(counter, counter[1:])]
    gaps = [after[0] - before[0] for before, after in zip(counter, counter[1:])]
    if min(steps) < 0:
        raise Unreadable(f"the energy counter of GPU {number} went backwards")
    for step, gap in zip(steps, gaps):
        if step > HIGHEST_W * max(gap, 1.0):
            raise Unreadable(f"the energy counter of GPU {number} jumped by {step:.0f} J in {gap:.2f} s")
    if len(power) < 0.9 * len(readings):
        raise Unreadable(f"the power of GPU {number} cannot be sampled beside its energy counter")
    counted, sampled = sum(steps), _integral(power) * sum(gaps) / (power[-1][0] - power[0][0])
    if not counted or abs(counted - sampled) > AGREE * max(counted, sampled):
        raise Unreadable(
            f"the energy counter of GPU {number} says {counted:.1f} J and its sampled power {sampled:.1f} J, "
            f"which is more than {AGREE:.0%} apart"
        )
    return counted


def _integral(readings: list) -> float:
    """Area below (seconds, watts), linear between neighbours, in joules."""
    pairs = zip(readings, readings[1:])
    return sum((after[0] - before[0]) * (after[1] + before[1]) / 2 for before, after in pairs)


def _cpu_joules(samples: list[Fields]) -> float:
    zones = samples[0]["cpu"]
    if not zones or not all(one["cpu"] and one["cpu"].keys() == zones.keys() for one in samples):
        raise Unreadable(NO_RAPL)
    total = sum(_zone([one["cpu"][zone] for one in samples]) for zone in zones)
    if not total:
        raise Unreadable("the CPU's RAPL counters stand still")
    return total


def _zone(readings: list) -> float:
    """Joules of one package; its counter begins anew at its range."""
    total = 0.0
    for (before, _), (after, largest) in zip(readings, readings[1:]):
        total += after - before if after >= before else after + largest - before
    return total


def repeated(work: Callable[[], object], source: "Sampler", seconds: float = WINDOW_S) -> tuple[Energy, int]:
    """Energy of calling `work` again and again for at least `seconds`, and how often it was called.

    `source`: a running `sampler.Sampler`. A short request is repeated; a level of load that lasts longer is
    called once.
    """
    start, count = clock(), 0
    while not count or clock() - start < seconds:
        work()
        count += 1
    end = clock()
    return of(source.window(start, end), end - start), count


def idle(source: "Sampler", wait: Callable[[float], object], seconds: float = WINDOW_S) -> Energy:
    """Energy of doing nothing for `seconds` (`wait` is time.sleep), engine loaded: what it costs to be
    ready."""
    return repeated(lambda: wait(seconds), source, seconds)[0]
