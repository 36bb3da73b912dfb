"""What a load client does when a server refuses, fails, or starts again: failures never speed up a load."""

import contextlib
import time
from email.utils import parsedate_to_datetime
from time import monotonic as clock

from bench.instrument.load.http1 import Head
from bench.instrument.load.records import Answer

# A connection that a server closes so soon after a request came in over it, beside the time of a round trip,
# was closed without looking at the request.
AT_ONCE_S = 0.02
# A server that has answered and refuses connections is being started again: so long, s, it is asked again, at
# first after this time, then after twice as long each time, up to the longest.
RESTART_S, REDIAL_S, LONGEST_REDIAL_S = 10.0, 0.1, 1.0
FEWEST = 20  # requests without which a share of failures says nothing
BUSY = (429, 503)  # statuses of a server that has too much to do
PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0  # of a place whose request was refused, where the server does not say
LOST_S = 1.0  # connections that are lost within so long were lost to one event


class Pauses:
    """Places of a closed loop that wait because the server refused their last request: as long as it asked
    (Retry-After), at most `longest_s`; twice as long each time where it does not say."""

    def __init__(self, longest_s: float) -> None:
        self.longest_s, self.count, self.pause_s, self.refused = longest_s, 0, PAUSE_S, False
        self.until: list[float] = []

    def places(self, now: float) -> int:
        """How many places wait at `now`."""
        if self.until:
            self.until = [moment for moment in self.until if moment > now]
        return len(self.until)

    def moments(self) -> list[float]:
        """When the next place is free again."""
        return [min(self.until)] if self.until else []

    def note(self, answer: Answer) -> None:
        """Let the place of `answer`, which has ended, wait where the server refused."""
        if answer.head is None or answer.error:
            return
        if answer.head.status not in BUSY:
            self.pause_s, self.refused = PAUSE_S, False
            return
        now = clock()
        if self.refused and not self.places(now):  # it waited, and is refused again
            self.pause_s = min(2 * self.pause_s, LONGEST_PAUSE_S)
        self.refused = True
        asked = retry_after_s(answer.head)
        self.until.append(now + min(self.pause_s if asked is None else max(asked, PAUSE_S), self.longest_s))
        self.count += 1


class Failures:
    """Counts requests that failed. Connections lost within LOST_S count once: a server that is started again
    loses all of them, and goes on."""

    def __init__(self, most: float) -> None:
        self.most, self.finished, self.failed, self.last = most, 0, 0, ""
        self.lost_at = float("-inf")

    def note(self, answer: Answer) -> str:
        """Count `answer`, which has ended; returns why no further request is to be sent, else empty."""
        self.finished += 1
        why = answer.error
        if answer.head is not None and answer.head.status != 200:
            why = f"HTTP {answer.head.status}"
        if why and not self._lost_with_others(answer):
            self.failed, self.last = self.failed + 1, why
        if self.finished < FEWEST or self.failed < self.most * self.finished:
            return ""
        return f"{self.failed} of {self.finished} requests had failed, the last one with {self.last}"

    def _lost_with_others(self, answer: Answer) -> bool:
        """Whether the connection of `answer` was lost to the same event as one that has been counted."""
        if not answer.error.startswith(("Connection", "BrokenPipe")):
            return False
        if answer.ended - self.lost_at < LOST_S:
            return True
        self.lost_at = answer.ended
        return False


def retry_after_s(head: Head) -> float | None:
    """Seconds after which a server asks to be asked again; None where it does not say."""
    asked = head.fields.get("retry-after", "")
    if asked.replace(".", "", 1).isdigit():
        return float(asked)
    with contextlib.suppress(ValueError, TypeError):
        return max(0.0, parsedate_to_datetime(asked).timestamp() - time.time())
    return None
