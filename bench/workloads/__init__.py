"""Workloads of sessions: what is sent, and when each turn is due; built before a run, sent by the client.

A workload is the same for every engine with the same tokenizer: all token ids are there before the clock
runs (`history` given), so that what a cache should answer is known of every request. `conversations` makes
one from distributions, `traces` reads a file, `replay` makes a workload of what was read, `timing` caps,
scales, spreads and samples.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench import prefix_cache

HISTORIES = ("given", "own")
DUES = ("timestamp", "gap")


@dataclass(frozen=True)
class Turn:
    """One request of a session.

    `prompt`: the token ids of the whole prompt, its history with its answers included. `added`: those
    that the user adds after the answer before (the whole prompt of a first turn): with `history=own` the
    prompt is the one that was sent before, the server's answer to it, and `added`. `new_tokens`: how many the
    answer has. `at_s`: when it is due, s from the start; None where it is due `gap_s` seconds after the
    answer before.
    """

    prompt: tuple[int, ...] = field(repr=False)
    added: tuple[int, ...] = field(repr=False)
    new_tokens: int
    at_s: float | None = None
    gap_s: float | None = None


@dataclass(frozen=True)
class Session:
    """Turns that follow each other: each begins when the one before it has ended, and never before it is due.

    `number` from 1; `group`: which sessions share a system prompt, None where nothing is shared on purpose.
    The first turn always has a moment (`at_s`): sessions arrive in an open loop.
    """

    number: int
    turns: tuple[Turn, ...]
    group: int | None = None


@dataclass(frozen=True)
class Workload:
    """Sessions in the order of their first turn, and how they are to be sent.

    `due`: `timestamp` (every turn has its moment; where the answer before is not there yet it waits, and its
    latency counts from the moment) or `gap` (think time after the answer). `history`: `given` (prompts as
    they stand here) or `own` (the server's answers). `about`: what was done to make it (source, caps, scale,
    spread, sample), for the sidecar.
    """

    sessions: tuple[Session, ...]
    due: str = "timestamp"
    history: str = "given"
    about: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.due not in DUES:
            raise ValueError(f"Turns are due at their timestamp or after a gap, not {self.due!r}.")
        if self.history not in HISTORIES:
            raise ValueError(f"history is given or own, not {self.history!r}.")

    @property
    def requests(self) -> int:
        """How many requests it has."""
        return sum(len(session.turns) for session in self.sessions)

    @property
    def most_tokens(self) -> int:
        """The longest prompt and its answer, tokens: the context that a server needs."""
        return max((len(turn.prompt) + turn.new_tokens for s in self.sessions for turn in s.turns), default=0)

    @property
    def session_rate(self) -> float:
        """Sessions per second: those of the schedule (`about`), so that runs whose arrivals were drawn
        have one rate; else those that arrive, and NaN where all arrive at once."""
        if "session_rate" in self.about:
            return float(self.about["session_rate"])
        first = [session.turns[0].at_s or 0.0 for session in self.sessions]
        span = max(first) - min(first) if first else 0
        return float(f"{(len(first) - 1) / span:.6g}") if span else math.nan

    def bounds(self, declared: prefix_cache.Declared) -> list[list[tuple[int, int]]]:
        """`prefix_cache.expected` of every turn, as a list per session; of prompts as they stand here, so
        that it is the expectation of `history` given."""
        planned = [turn for session in self.sessions for turn in _planned(session)]
        found = iter(prefix_cache.expected(planned, declared))
        return [[next(found) for _ in session.turns] for session in self.sessions]


SLACK_S = 1.0  # a first turn is sent at most so late: a client that is later is refused


def _planned(session: Session) -> Iterator[prefix_cache.Request]:
    """The turns of a session as `prefix_cache.Request`s: when each may be sent at the earliest and latest."""
    earliest = 0.0
    for number, turn in enumerate(session.turns, start=1):
        earliest = max(earliest + (turn.gap_s or 0.0), turn.at_s or 0.0)
        latest = earliest + SLACK_S if number == 1 else math.inf
        yield prefix_cache.Request(turn.prompt, turn.new_tokens, session.number, number, earliest, latest)
