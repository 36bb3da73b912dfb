"""Joules of a run, the same way for every engine: beside its times, never during them.

    meter = energy.Meter(target)
    rows = meter.repeated("4 x 512+64", rows, work)    # the same work again until the window is long enough
    rows = meter.during("closed 8", rows)              # a level of load is long enough by itself
    meter.ready()                                      # idle power, the engine loaded
    meter.about()                                      # for the sidecar

A window's joules are shared among the output tokens of its requests. Without a figure the column is empty,
and the sidecar says why.
"""

import dataclasses
import math
import time
from collections.abc import Callable

from bench.experiments.target import Target
from bench.machine import energy, gpu, sampler
from llm_measured.core.definitions import Fields

METHOD = (
    "NVML's energy counter over the window, the GPU's own processes and idle power included, where the "
    "integral of the power sampled ten times a second agrees within 5 %; RAPL's counters of the CPU's "
    "packages"
)
LONGER = 1.2  # how much longer than a window requests are sent that are to fill it: they may be quicker
NO_GPU = "the run uses no GPU"
ELSEWHERE = "the server was not started by this run, so nobody knows what else its machine did"


class Meter:
    """Counts the joules of one run that measures `target`."""

    def __init__(self, target: Target) -> None:
        self.cuda, self.elsewhere = target.device == "cuda", bool(target.url)
        self.gpus = target.devices.count if self.cuda else 0
        self.windows: list[Fields] = []
        self.idle: Fields | None = None  # power of the machine, the engine loaded
        self.first: Fields | None = None  # what the counters said at first
        self.why: tuple[str, str] | None = None  # why there is no GPU's and no CPU's energy

    def start(self) -> sampler.Sampler | None:
        """Read the counters from now on; None where none can be read."""
        if self.why is None:
            self.why = self._reasons()
        return None if all(self.why) else self._sampler()

    def _sampler(self) -> sampler.Sampler:
        return sampler.shared(gpu.used(self.gpus) if self.cuda else ())

    def _reasons(self) -> tuple[str, str]:
        """Why there is no GPU energy, and why there is no CPU energy; empty where there may be."""
        if self.elsewhere:
            return ELSEWHERE, ELSEWHERE
        if not self.cuda and sampler.rapl() is None:  # then nothing is started either
            return NO_GPU, energy.NO_RAPL
        self.first = self._sampler().now()
        on_gpu, on_cpu = energy.reasons(self.first)
        return on_gpu if self.cuda else NO_GPU, on_cpu

    def pause(self) -> None:
        """On a CPU, whose times reading counters would be part of, stop reading them until `start`."""
        if not self.cuda:
            sampler.end()

    def repeated(self, what: str, rows: list[Fields], work: Callable[[], list[Fields]]) -> list[Fields]:
        """`rows` with the joules of their requests: `work()` carries some of them out once more and returns
        its rows, again and again for `energy.WINDOW_S` seconds."""
        failed = [row["error"] for row in rows if row["error"]]
        source, done = self.start(), []
        if failed or source is None:
            return self._keep(what, self._without(failed[0] if failed else ""), rows, rows)
        found, count = energy.repeated(lambda: done.extend(work()), source, energy.WINDOW_S)
        self.pause()
        failed = [row["error"] for row in done if row["error"]]
        return self._keep(what, self._without(failed[0]) if failed else found, done, rows, repeats=count)

    def sent(self, what: str, rows: list[Fields], send: Callable[[float], list[Fields]]) -> list[Fields]:
        """Likewise for requests to a server: `send(seconds)` sends them once more, for about so long, and
        returns the measured columns."""
        failed = [row["error"] for row in rows if row["error"]]
        if failed or self.start() is None:
            return self._keep(what, self._without(failed[0] if failed else ""), rows, rows)
        return self._between(what, send(LONGER * energy.WINDOW_S), rows)

    def during(self, what: str, rows: list[Fields]) -> list[Fields]:
        """`rows` of a level of load that has just ended with the joules of their requests."""
        return self._between(what, rows, rows)

    def _between(self, what: str, done: list[Fields], rows: list[Fields]) -> list[Fields]:
        """`rows` with their share of what was counted between the first and the last moment of the requests
        `done`.

        Moments of sending are those of the clock that the sampler reads (Linux has one for both).
        """
        source, good = self.start(), [row for row in done if not row["error"]]
        if source is None or not good:
            return self._keep(what, self._without("" if good else "every request failed"), good, rows)
        start, end = min(row["sent_s"] for row in done), max(row["sent_s"] + row["e2e_s"] for row in good)
        return self._keep(what, energy.of(source.window(start, end), end - start), good, rows)

    def _without(self, why: str = "") -> energy.Energy:
        """No figure: because of `why`, or because no counter can be read."""
        on_gpu, on_cpu = (reason or why for reason in self.why or self._reasons())
        return energy.Energy(math.nan, math.nan, math.nan, on_gpu, on_cpu)

    def _keep(
        self, what: str, found: energy.Energy, done: list[Fields], rows: list[Fields], **more: int
    ) -> list[Fields]:
        """Note a window in which the requests `done` were answered; returns `rows` with their share."""
        if not self.cuda:
            found = dataclasses.replace(found, gpu_energy_j=math.nan, gpu_reason=NO_GPU)
        tokens = sum(row["output_tokens"] for row in done)
        self.windows.append({"what": what, "output_tokens": tokens} | more | found.about())
        each = found.per(tokens)
        return [
            row
            | ({} if row["error"] else {name: value * row["output_tokens"] for name, value in each.items()})
            for row in rows
        ]

    def ready(self) -> None:
        """Take the power of the idle machine, the engine loaded: once, and where any window has a figure."""
        known = [window for window in self.windows if (window["gpu_w"] or window["cpu_w"])]
        if known and self.idle is None and (source := self.start()) is not None:
            self.idle = energy.idle(source, time.sleep, energy.WINDOW_S).about()
            self.pause()

    def about(self) -> Fields | None:
        """What the sidecar keeps: how it was measured, which power beside it, idle power, every window; None
        where nothing was to be measured."""
        if not self.windows:
            return None
        gpus = (self.first or {}).get("gpus", [])
        power = ["instantaneous" if one["instant"] else "averaged by the driver" for one in gpus]
        return {
            "method": METHOD,
            "gpus": self.gpus,
            "power": power[0] if power else None,
            "gpu_reason": self.why[0],
            "cpu_reason": self.why[1],
            "idle": self.idle,
            "windows": self.windows,
        }
