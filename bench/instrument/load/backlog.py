"""Calls that have not begun: scheduled ones begin at their moment, turns of a session after the answer
before them, the others as soon as a place is free."""

import heapq
import math
from collections import deque
from collections.abc import Iterator, Sequence
from time import monotonic as clock

from bench.instrument.load.records import Answer, Call


class Backlog:
    """The calls of a run that are still to begin, `places` of those without a schedule at once.

    `start` (s, monotonic clock) is the moment that schedules count from, and before which nothing begins.
    """

    def __init__(self, calls: Sequence[Call], places: int) -> None:
        first = [call for call in calls if call.after is None]
        self.scheduled = [
            (call.at_s, call.number, call.at_s, call) for call in first if call.at_s is not None
        ]
        heapq.heapify(self.scheduled)  # (may begin, number, is due, call), s after the start
        self.waiting = deque(call for call in first if call.at_s is None)
        self.following = {call.after: call for call in calls if call.after is not None}
        self.places, self.start = places, math.inf

    def __bool__(self) -> bool:
        return bool(self.scheduled or self.waiting)

    def take(self, now: float, active: int) -> Answer | None:
        """A new Answer for the next call that may begin beside `active` others; None where none may."""
        if self.scheduled and self.start + self.scheduled[0][0] <= now:
            free_s, _, due_s, call = heapq.heappop(self.scheduled)
            return Answer(call, self.start + due_s, free=self.start + free_s)
        if self.waiting and active < self.places and self.start <= now:
            return Answer(self.waiting.popleft(), clock())
        return None

    def moments(self, active: int) -> list[float]:
        """Moments at which a call becomes due by the clock alone: the next scheduled one, and the start."""
        moments = [self.start + self.scheduled[0][0]] if self.scheduled else []
        return moments + ([self.start] if self.waiting and not active else [])

    def next_turn(self, answer: Answer) -> Call | None:
        """The call that follows `answer`, None where none does; `schedule` or `rest_of` says what becomes
        of it."""
        return self.following.pop(answer.call.number, None)

    def schedule(self, call: Call, ended: float) -> None:
        """`call` may begin: the answer before it `ended` (s, monotonic clock)."""
        ended_s = ended - self.start
        due_s = ended_s + call.gap_s if call.at_s is None else call.at_s
        heapq.heappush(self.scheduled, (max(due_s, ended_s), call.number, due_s, call))

    def rest_of(self, call: Call) -> Iterator[Call]:
        """`call` and all turns after it, which will not begin."""
        turn: Call | None = call
        while turn is not None:
            yield turn
            turn = self.following.pop(turn.number, None)

    def clear(self) -> list:
        """All calls that have not begun; none of them will."""
        first = [entry[-1] for entry in self.scheduled] + list(self.waiting)
        left = [turn for call in first for turn in self.rest_of(call)] + list(self.following.values())
        self.scheduled, self.waiting, self.following = [], deque(), {}
        return left
