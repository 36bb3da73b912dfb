"""Which other processes use the machine now: their names, and how many cores each keeps busy."""

import time
from dataclasses import dataclass

import psutil

from bench.machine import memory, neighbours

NAMED = 3  # processes that a sentence names, the busiest ones
NOTICED_CORES = 0.02  # less than that is not worth naming


@dataclass(frozen=True)
class Process:
    """Another process, and the cores that it kept busy."""

    name: str
    pid: int
    cores: float


@dataclass(frozen=True)
class Look:
    """What others did in an interval: cores busy in all, and the processes that were seen, busiest first.

    A process that has begun and ended within the interval, or that a container hides, counts in `cores` and
    has no name.
    """

    cores: float
    processes: tuple

    def __str__(self) -> str:
        named = ", ".join(f"{one.name} [{one.pid}] {one.cores:.1f}" for one in self.processes[:NAMED])
        more = len(self.processes) - NAMED
        also = f", and {more} more" if more > 0 else ""
        return f"{self.cores:.1f} cores busy ({named or 'processes without a name here'}{also})"


class Watch:
    """Looks at the other processes of the machine, each time since the look before."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.started, self.spent, self.all = time.monotonic(), _cpu_s(), neighbours.Neighbours()

    def seconds(self) -> float:
        """Seconds since the last look."""
        return time.monotonic() - self.started

    def look(self) -> Look:
        """The Look since the last one."""
        passed, before, cores = self.seconds(), self.spent, self.all.cores()["others"]
        self._begin()
        busy = [
            Process(name, pid, (spent - before.get((pid, born), (name, 0.0))[1]) / passed)
            for (pid, born), (name, spent) in self.spent.items()
        ]
        noticed = [one for one in busy if one.cores >= NOTICED_CORES]
        return Look(cores, tuple(sorted(noticed, key=lambda one: -one.cores)))


def _cpu_s() -> dict[tuple[int, float], tuple[str, float]]:
    """(process number, when it began) -> (name, CPU seconds) of every process but this one and its
    children."""
    own, found = memory.family(), {}
    for process in psutil.process_iter(["name", "cpu_times", "create_time"]):
        info = process.info
        if process.pid not in own and info["cpu_times"]:
            spent = info["cpu_times"].user + info["cpu_times"].system
            found[process.pid, info["create_time"]] = (info["name"] or "?", spent)
    return found
