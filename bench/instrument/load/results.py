"""Finished answers of a run: recorded bytes until they are digested, measured rows afterwards."""

import time
from time import monotonic as clock

import numpy as np

from bench.instrument.load import decoding
from bench.instrument.load.records import Answer
from llm_measured.core.definitions import Fields

HELD_BYTES = (
    1 << 29
)  # where finished answers hold more, they are digested during the run, which bounds its memory
LONGEST_S = 1.0  # at most so long between two looks at the clocks, and at what is held


class Results:
    """Answers that ended, the rows made of them, and the clock comparisons that the stamps need.

    `clocks` are (moment on the monotonic clock, wall clock - monotonic clock), s; `lags` are arrays of s from
    the kernel's stamp to the client's read.
    """

    def __init__(self, dialect: str) -> None:
        self.dialect, self.held, self.reading_cpu_s = dialect, 0, 0.0
        self.clocks: list[tuple[float, float]] = []
        self.done: list[Answer] = []
        self.rows: list[Fields] = []
        self.lags: list[np.ndarray] = []

    def add(self, answer: Answer) -> None:
        """Keep an answer that has ended."""
        self.held += answer.bytes_held
        self.done.append(answer)

    def now(self, answer: Answer) -> Fields:
        """The row of an answer that was added last, digested at once: a session's next turn waits for it."""
        self.done.remove(answer)
        spent = time.process_time()
        self.compare_clocks()
        row = self._digest(answer)
        self.reading_cpu_s += time.process_time() - spent
        return row

    def compare_clocks(self) -> None:
        """Record how far the wall clock, in which the kernel stamps, is from the monotonic one."""
        looks = [(clock(), time.time(), clock()) for _ in range(5)]  # the shortest one is the closest
        before, wall, after = min(looks, key=lambda look: look[2] - look[0])
        self.clocks.append(((before + after) / 2, wall - (before + after) / 2))

    def look(self) -> float:
        """Compare clocks and bound what is held where the last look is old; returns when the next is due."""
        if clock() - self.clocks[-1][0] > LONGEST_S:
            self.compare_clocks()
            if self.held > HELD_BYTES:
                self.digest()
        return self.clocks[-1][0] + LONGEST_S

    def digest(self) -> None:
        """Turn the finished answers into rows and let go of their bytes."""
        spent = time.process_time()
        for answer in self.done:
            self._digest(answer)
        self.done = []
        self.reading_cpu_s += time.process_time() - spent

    def _digest(self, answer: Answer) -> Fields:
        row, lags = decoding.measured(answer, self.dialect, self.clocks)
        self.rows.append(row)
        self.lags.append(lags)
        self.held -= answer.bytes_held
        answer.reads = []  # the client may still refer to the answer
        return row

    def read_lag_s(self) -> np.ndarray:
        """Seconds from each kernel's stamp to the client's read."""
        lags = np.concatenate([np.empty(0), *self.lags])
        return lags[~np.isnan(lags)]
