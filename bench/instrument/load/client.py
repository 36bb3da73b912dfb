"""The load client's loop: requests of a closed and an open loop over streaming HTTP, one thread, one clock,
many streams.

When bytes arrive there is one read and one append. Everything else waits until the run is over: finding
chunks, events and tokens in the bytes, and the moment that each belongs to. That moment is the kernel's:
Linux stamps every packet as it comes in (SO_TIMESTAMPNS), so a busy client still knows when a token was
there. Where there are no such stamps (TLS, other systems) the moment after the read counts, and the report
says so. `parallel.run` runs this loop in processes of its own, away from the notebook's threads.
"""

import contextlib
import gc
import heapq
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from time import monotonic as clock

from bench.instrument.load import connection, http1, refusals
from bench.instrument.load.backlog import Backlog
from bench.instrument.load.connection import Stream
from bench.instrument.load.records import Answer, Call
from bench.instrument.load.results import Results
from bench.machine import memory
from llm_measured.core.definitions import Fields

AWAKE_S = (
    0.002  # a sleeper wakes up to so late (twice rounded up to ms): so much of every wait is spent awake
)


class Client:
    """Sends calls and records what comes back, in one thread.

    `concurrency` bounds how many requests without a schedule are under way at once; scheduled ones never
    wait. `dialect` is a name in `protocols.DIALECTS`; a request that takes longer than `timeout_s` has
    failed. `until_s` after the start the level ends: what is under way is cancelled. `encode` makes token ids
    of the text of an answer, for sessions whose history is the server's own answers. With `fresh` each
    request gets a connection of its own. When refusals.FEWEST requests and the share `most_failed` have
    failed,
    no further one is sent, and `ended` says why.

    A request is sent again where an open connection was lost before a byte of its answer came (from then on
    no connection is used again), and where a server that `has_answered` refuses connections, as one does that
    is started again.
    """

    def __init__(
        self,
        url: str,
        calls: Sequence[Call],
        dialect: str,
        concurrency: int,
        timeout_s: float,
        until_s: float = math.inf,
        encode: Callable[[str], list[int]] | None = None,
        fresh: bool = False,
        most_failed: float = math.inf,
        has_answered: bool = False,
    ) -> None:
        self.connections, self.results = connection.Connections(url, fresh), Results(dialect)
        self.failures, self.pauses = refusals.Failures(most_failed), refusals.Pauses()
        self.ended = ""  # why the load ended early
        self.has_answered = has_answered  # the server, once
        self.away_since, self.away_s = math.inf, 0.0  # when it began to refuse connections, and for how long
        self.ending: dict[Stream, float] = {}  # answers that are over, and until when they may stay open
        self.redials: list[tuple[float, int, Answer]] = []  # (when to connect again, number, answer)
        self.backlog, self.timeout_s = Backlog(calls, concurrency), timeout_s
        self.until_s, self.encode = until_s, encode
        self.underway: deque[Answer] = deque()
        self.active, self.alarm, self.stays_open = 0, 0.0, False
        self.patience_s = {each: each for each in (connection.DONE_S, connection.FINISH_S)}
        self.first_in_line, self.cpu_s = False, 0.0

    def run(self, start: float) -> list[Fields]:
        """One row of measured columns per call, in order; begins at `start` (s, monotonic clock)."""
        self.backlog.start, spent = start, time.process_time()
        with _undisturbed() as self.first_in_line:
            self.results.compare_clocks()
            try:
                while self.backlog or self.active:
                    if clock() >= self.alarm:
                        self._look_round()
                    for key, ready in self.connections.selector.select(self._patience()):
                        self._on_ready(key.data, ready)
            finally:
                self.results.compare_clocks()
                self.connections.close()
        self.cpu_s = time.process_time() - spent
        self.results.digest()
        return sorted(self.results.rows, key=lambda row: row["request"])

    def _look_round(self) -> None:
        """Do what is due, and set the alarm to the next moment at which something is."""
        self._expire()  # first: it may free a place
        if clock() >= self.backlog.start + self.until_s:
            self._end_level()
        self._end_open()
        self._redial()
        self._begin()
        moments = [self.results.look(), *self.backlog.moments(self.active + self.pauses.places(clock()))]
        moments += [self.redials[0][0]] if self.redials else []
        moments += self.ending.values()
        moments += self.pauses.moments() if self.backlog.waiting else []
        moments += [self.underway[0].begun + self.timeout_s] if self.underway else []
        moments += [self.backlog.start + self.until_s]
        self.alarm = min(moments) if self.backlog or self.active else 0.0  # the last one may just have failed

    def _patience(self) -> float:
        """Seconds to sleep: until something is due, less what a sleeper is late by."""
        left = self.alarm - clock()
        return left - AWAKE_S if left > 1.5 * AWAKE_S else 0

    def _begin(self) -> None:
        now = clock()
        while answer := self.backlog.take(now, self.active + self.pauses.places(now)):
            answer.begun = clock()
            self.active += 1
            self.underway.append(answer)
            if self.connections.idle:
                stream = self.connections.idle.pop()
                stream.carry(answer, reused=True)
                self._send(stream)
            else:
                self._connect(answer)

    def _redial(self) -> None:
        """Connect once more for the requests whose connection a server that is being started refused."""
        now = clock()
        while self.redials and self.redials[0][0] <= now:
            answer = heapq.heappop(self.redials)[-1]
            self.underway.append(answer)
            self._connect_again(answer)

    def _connect_again(self, answer: Answer) -> None:
        if not answer.call.scheduled:
            answer.dialled = clock()  # its times count from its sending, and so does its set-up
        self._connect(answer)

    def _connect(self, answer: Answer) -> None:
        try:
            self.connections.open(answer)
        except OSError as failure:
            self._unconnected(answer, failure)

    def _unconnected(self, answer: Answer, failure: Exception) -> None:
        """No connection: try once more a little later, where the server may be starting again, or fail."""
        now, refused = clock(), isinstance(failure, ConnectionRefusedError)
        if not (
            refused and self.has_answered and now < answer.begun + min(refusals.RESTART_S, self.timeout_s)
        ):
            return self._finish(answer, connection.reason(failure))
        answer.retries += 1
        self.away_since = min(self.away_since, now)
        later = now + min(refusals.REDIAL_S * 2 ** (answer.retries - 1), refusals.LONGEST_REDIAL_S)
        heapq.heappush(self.redials, (later, answer.call.number, answer))
        self.alarm = 0.0

    def _on_ready(self, stream: Stream, ready: int) -> None:
        """Do what a connection is ready for: `ready` has the bits of `selectors`."""
        if stream.answer is None:  # the server closes an idle connection
            return self.connections.drop(stream)
        try:
            if stream.connecting:
                if self.connections.established(stream):
                    stream.answer.connected = clock()
                    self.away_s = max(self.away_s, clock() - self.away_since)
                    self.away_since = math.inf
                    self._send(stream)
            elif not ready & connection.READ:
                self._send(stream)
            elif stream.receive():  # the response is complete
                self._complete(stream, keep=stream.head.stays_open)
            elif stream.open_s is not None:
                self.ending[stream] = clock() + self.patience_s[stream.open_s]
                self.alarm = 0.0
        except BlockingIOError:
            pass  # woken for nothing
        except (OSError, http1.Broken) as failure:
            if stream.connecting and not stream.secure:  # no TCP connection; a failed TLS handshake is final
                return self._unconnected(self.connections.release(stream), failure)
            self._fail(stream, connection.reason(failure))

    def _complete(self, stream: Stream, keep: bool) -> None:
        self.has_answered = True
        stream.answer.head = stream.head
        self._finish(self.connections.release(stream, keep))

    def _end_open(self) -> None:
        """End the answers that are over by their own word, whose response stays open; once is enough to know
        that of a server."""
        now = clock()
        for stream, moment in list(self.ending.items()):
            if stream.answer is None or stream.open_s is None:
                del self.ending[stream]
            elif moment <= now:
                del self.ending[stream]
                self.stays_open = True
                # It does so with every answer, and the usage comes after the finish, at once.
                self.patience_s[stream.open_s] = 0.0 if stream.open_s == connection.DONE_S else 0.1
                self._complete(stream, keep=False)

    def _send(self, stream: Stream) -> None:
        try:
            stream.send()
        except OSError as failure:
            return self._fail(stream, connection.reason(failure))
        self.connections.watch(stream)

    def _fail(self, stream: Stream, error: str, again: bool = True) -> None:
        """The request has failed; one that lost an open connection without a byte of its answer is sent again
        over a new one, as are all after it."""
        unserved = stream.reused and not stream.received
        answer = self.connections.release(stream)
        if unserved and again:
            self.connections.keep_none()
            answer.reads.clear()
            answer.retries += 1
            answer.sent = math.nan  # it counts as sent where it is served
            return self._connect_again(answer)
        self._finish(answer, error)

    def _finish(self, answer: Answer, error: str = "") -> None:
        answer.ended, answer.error, self.alarm = clock(), error, 0.0  # a place is free
        self.active -= 1
        self.results.add(answer)
        why = "" if answer.call.scheduled else self.pauses.note(answer)
        why = self.failures.note(answer) or why
        if why and not self.ended:
            self._stop(why)
        call = self.backlog.next_turn(answer)
        if call is not None:
            self._follow(answer, call)

    def _follow(self, answer: Answer, call: Call) -> None:
        """The turn `call` is scheduled after `answer`, or its session is cut there."""
        before = f"turn {answer.call.turn} of its session failed"
        why = f"{before} ({answer.error})" if answer.error else ""
        if call.own is not None and not why:
            row = self.results.now(answer)
            if row["error"]:
                why = f"{before} ({row['error']})"
            else:
                call.own.follow(call, answer, row, self.encode)
        if not why:
            return self.backlog.schedule(call, answer.ended)
        for turn in self.backlog.rest_of(call):
            self._cut(turn, why)

    def _cut(self, call: Call, why: str) -> None:
        """A row for `call`, which is never sent."""
        due = math.nan if call.at_s is None else self.backlog.start + call.at_s
        self.results.add(Answer(call, due, error=f"Not sent: {why}."))

    def _stop(self, why: str) -> None:
        """Send no further request; those under way go on."""
        self.ended = why
        for call in self.backlog.clear():
            self._cut(call, why)

    def _end_level(self) -> None:
        """Cancel what is under way, and leave out what has not begun."""
        for call in self.backlog.clear():
            self._cut(call, "the level had ended")
        for *_, answer in self.redials:
            self._finish(answer, "Cancelled: the level had ended.")
        self.redials = []
        for answer in [answer for answer in self.underway if answer.stream is not None]:
            self._fail(answer.stream, "Cancelled: the level had ended.", again=False)
        self.until_s = math.inf

    def _expire(self) -> None:
        """End what took too long; all have the same patience, so the first taken up is the first to end."""
        now = clock()
        while self.underway and (
            self.underway[0].stream is None or self.underway[0].begun + self.timeout_s <= now
        ):
            answer = self.underway.popleft()
            if answer.stream is not None:
                missing = f"{'TLS ' if self.connections.tls else ''}connection"
                missing = missing if answer.stream.connecting else "complete answer"
                came = f"{len(answer.reads)} pieces of an answer had come."
                error = f"TimeoutError: no {missing} within {self.timeout_s:g} s; {came}"
                self._fail(answer.stream, error, again=False)


def report(client: Client) -> Fields:
    """How a Client fared that has run: a dict.

    `cpu_s` is CPU time while requests were under way, `reading_cpu_s` that of reading the answers afterwards;
    `connections` counts those opened to each address, `retries` those that failed before the server worked,
    `pauses` how often a place waited after a failure, `paused_s` for how long together, `away_s` how long the
    server refused connections before it answered again, `stays_open` whether it leaves responses open whose
    answer is over, `reuses` whether connections served again; `ended` says why no further request was sent;
    `kernel_stamps` whether the kernel's moments count; `first_in_line` whether this process ran before all
    that compute; `peak_memory_bytes`; `read_lag_s` an array, s from each kernel's stamp to the client's read.
    """
    return {
        "cpu_s": client.cpu_s,
        "reading_cpu_s": client.results.reading_cpu_s,
        "kernel_stamps": client.connections.kernel_stamps,
        "first_in_line": client.first_in_line,
        "peak_memory_bytes": memory.peak_memory_bytes(),
        "read_lag_s": client.results.read_lag_s(),
        "connections": dict(client.connections.opened),
        "retries": sum(row["retries"] for row in client.results.rows),
        "pauses": client.pauses.count,
        "paused_s": client.pauses.paused_s,
        "away_s": client.away_s,
        "stays_open": client.stays_open,
        "reuses": not client.connections.fresh,
        "answered": client.has_answered,
        "ended": client.ended,
    }


@contextlib.contextmanager
def _undisturbed() -> Iterator[bool]:
    """No garbage collection, and this process first in line; yields whether the system allows the latter."""
    first = _first_in_line(True)
    gc.collect()
    gc.disable()
    try:
        yield first
    finally:
        gc.enable()
        _first_in_line(False)


def _first_in_line(first: bool) -> bool:
    """Let this process run as soon as it has something to do, before any that computes.

    A server may keep all cores busy, and a client that has to wait for one is late with what it sends.
    Returns False where the system does not allow it.
    """
    try:
        policy = os.SCHED_FIFO if first else os.SCHED_OTHER
        os.sched_setscheduler(0, policy, os.sched_param(1 if first else 0))
        return True
    except (OSError, AttributeError):  # not allowed; not Linux
        return False
