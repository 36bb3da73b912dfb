"""Calls that have not begun: scheduled ones begin at their moment, the others as soon as a place is free."""

import math
from collections import deque
from time import monotonic as clock

from bench.instrument.load.records import Answer


class Backlog:
    """The calls of a run that are still to begin, `places` of those without a schedule at once.

    `start` (s, monotonic clock) is the moment that schedules count from, and before which nothing begins.
    """

    def __init__(self, calls, places):
        scheduled = [call for call in calls if call.at_s is not None]
        self.scheduled = deque(sorted(scheduled, key=lambda call: call.at_s))
        self.waiting = deque(call for call in calls if call.at_s is None)
        self.places, self.start = places, math.inf

    def __bool__(self):
        return bool(self.scheduled or self.waiting)

    def take(self, now, active):
        """A new Answer for the next call that may begin beside `active` others; None where none may."""
        if self.scheduled and self.start + self.scheduled[0].at_s <= now:
            call = self.scheduled.popleft()
            return Answer(call, self.start + call.at_s)
        if self.waiting and active < self.places and self.start <= now:
            return Answer(self.waiting.popleft(), clock())
        return None

    def moments(self, active):
        """Moments at which a call becomes due by the clock alone: the next scheduled one, and the start."""
        moments = [self.start + self.scheduled[0].at_s] if self.scheduled else []
        return moments + ([self.start] if self.waiting and not active else [])
