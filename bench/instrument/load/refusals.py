"""What a load client does when a server refuses, fails, or starts again: failures never speed up a load."""

import contextlib
import math
import re
import time
from email.utils import parsedate_to_datetime
from time import monotonic as clock

from bench.instrument.load.http1 import Head
from bench.instrument.load.records import Answer

# A server that has answered and refuses connections is being started again: so long, s, it is asked again, at
# first after this time, then after twice as long each time, up to the longest.
RESTART_S, REDIAL_S, LONGEST_REDIAL_S = 20.0, 0.1, 1.0
FEWEST = 5  # failures without which a share of them says nothing
PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0  # of a place whose request failed, where the server does not say
LONGEST_ASKED_S = 30.0  # a server that asks for more ends the level
EPOCH_S = 1e9  # a number of seconds above this is a moment
SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?")


class Pauses:
    """Places of a closed loop that wait because their last request failed: as long as the server asked
    (Retry-After); twice as long each time where it does not say."""

    def __init__(self) -> None:
        self.count, self.paused_s, self.pause_s, self.failed = 0, 0.0, PAUSE_S, False
        self.until: list[float] = []

    def places(self, now: float) -> int:
        """How many places wait at `now`."""
        if self.until:
            self.until = [moment for moment in self.until if moment > now]
        return len(self.until)

    def moments(self) -> list[float]:
        """When the next place is free again."""
        return [min(self.until)] if self.until else []

    def note(self, answer: Answer) -> str:
        """Let the place of `answer`, which has ended, wait where it failed; returns why no further request is
        to be sent, else empty."""
        if not failure(answer):
            self.pause_s, self.failed = PAUSE_S, False
            return ""
        now, asked = clock(), None if answer.head is None else retry_after_s(answer.head)
        if asked is not None and asked > LONGEST_ASKED_S:
            return f"the server asks to be asked again in {asked:.0f} s ({failure(answer)}, Retry-After)"
        if self.failed and not self.places(now):  # it waited, and failed again
            self.pause_s = min(2 * self.pause_s, LONGEST_PAUSE_S)
        self.failed = True
        pause_s = self.pause_s if asked is None else max(asked, PAUSE_S)
        self.until.append(now + pause_s)
        self.count, self.paused_s = self.count + 1, self.paused_s + pause_s
        return ""


class Failures:
    """Counts requests that failed. Those that were under way when a connection was lost and are lost with it
    count once: a server that is started again loses all of them, and goes on."""

    def __init__(self, most: float) -> None:
        self.most, self.finished, self.failed, self.last = most, 0, 0, ""
        self.lost_at = math.inf  # when the first connection was lost since an answer was good

    def note(self, answer: Answer) -> str:
        """Count `answer`, which has ended; returns why no further request is to be sent, else empty."""
        self.finished += 1
        why = failure(answer)
        if not why:
            self.lost_at = math.inf
        elif not self._lost_with_others(answer):
            self.failed, self.last = self.failed + 1, why
        if self.failed < FEWEST or self.failed < self.most * self.finished:
            return ""
        return f"{self.failed} of {self.finished} requests had failed, the last one with {self.last}"

    def _lost_with_others(self, answer: Answer) -> bool:
        """Whether the connection of `answer` was lost to the same event as one that has been counted."""
        if not answer.error.startswith(("Connection", "BrokenPipe")):
            return False
        if self.lost_at < math.inf:
            return answer.sent < self.lost_at
        self.lost_at = answer.ended
        return False


def failure(answer: Answer) -> str:
    """Why `answer`, which has ended, failed, as far as the client knows before it reads it; else empty."""
    if answer.head is not None and answer.head.status != 200:
        return f"HTTP {answer.head.status}"
    return answer.error


def retry_after_s(head: Head) -> float | None:
    """Seconds after which a server asks to be asked again; None where it does not say.

    A date, or a number that is one, counts from the response's own Date: its clock may be another one.
    """
    asked = head.fields.get("retry-after", "").strip()
    moment = float(asked) if SECONDS.fullmatch(asked) else _moment_s(asked)
    if moment is None or moment < EPOCH_S:
        return moment
    now = _moment_s(head.fields.get("date", ""))
    return max(0.0, moment - (time.time() if now is None else now))


def _moment_s(date: str) -> float | None:
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        return parsedate_to_datetime(date).timestamp()
    return None
