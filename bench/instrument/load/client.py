"""The load client: closed loop and open loop over streaming HTTP, one clock, many streams.

    rows, about = load.run(url, prompts, concurrency=64)                # closed loop: a request ends, the next begins
    rows, about = load.run(url, prompts, at_s=load.poisson(8, 500))     # open loop: requests begin on schedule, whatever the others do

When bytes arrive there is one read and one append. Everything else waits until the run is over: finding chunks, events and tokens in
the bytes, and asking which moment each belongs to. That moment is the kernel's: Linux stamps every packet as it comes in (SO_TIMESTAMPNS), so a
client that is busy still knows when a token was there. Where there are no such stamps (TLS, other systems) the moment after the read counts,
and the run says so. Requests run in processes of their own, away from the notebook's threads.
"""

import contextlib
import errno
import gc
import math
import os
import selectors
import socket
import ssl
import time
from collections import deque
from dataclasses import dataclass, field
from time import monotonic as clock
from urllib.parse import urlsplit

import numpy as np

from bench.instrument.load import decoding, http1
from bench.machine import memory

READ_BYTES = 1 << 13
READ_COST_BYTES = 400  # what Python keeps beside the bytes of one read
HELD_BYTES = (
    1 << 29
)  # more than this is not held: finished answers are then read during the run, which bounds the memory of a long one
ANSWER_BYTES = 1 << 26  # an answer longer than this has no end
LAST_CHUNK = b"\r\n0\r\n\r\n"
LONGEST_S = 1.0  # at most so long between two looks at the clocks, and at what is held
AWAKE_S = 0.002  # a sleeper wakes up to so late (twice rounded up to ms); this much of every wait is spent looking at the clock
SO_TIMESTAMPNS = getattr(socket, "SO_TIMESTAMPNS", 35) if hasattr(selectors, "EpollSelector") else None
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


@dataclass
class Call:
    """One request as bytes, when it is due (s after the start; None: when a place is free), and the counts that the answer must have.

    `prompt_tokens` is None where the prompt goes as text, of which the server makes tokens.
    """

    number: int
    payload: bytes = field(repr=False)  # it may carry an access token
    at_s: float | None
    prompt_tokens: int | None
    new_tokens: int


@dataclass
class Answer:
    """Moments (s, monotonic clock) and bytes of one request as they were noted; `error` where it failed."""

    call: Call
    due: float
    begun: float = math.nan  # the client takes it up
    connected: float = math.nan  # NaN where an open connection served
    sent: float = math.nan
    reads: list = field(default_factory=list)  # (moment after the read, the kernel's stamp as it came, bytes)
    error: str = ""
    ended: float = math.nan
    stream: object = None

    @property
    def bytes_held(self):
        """What the reads take in memory."""
        return sum(len(read[2]) + READ_COST_BYTES for read in self.reads)


class Stream:
    """One connection and the request that it carries."""

    __slots__ = "sock answer reads unsent head chunks walked received reused connecting secure".split()

    def __init__(self, sock):
        self.sock, self.answer, self.connecting, self.secure = sock, None, True, False

    def carry(self, answer, reused):
        self.answer, self.reads, self.unsent, self.reused = answer, answer.reads, answer.call.payload, reused
        self.head, self.chunks, self.walked, self.received = None, None, 0, 0
        answer.stream = self

    def complete(self, data):
        """Whether the response is complete with `data`, its latest bytes.

        Thousands of answers may end within milliseconds, so the end that every server writes is known by its bytes (an empty chunk after a
        line's end, which no event can contain); only where something else looks like an end the chunks are walked through.
        """
        if self.head is None and not self._headed():
            return False
        if self.chunks is None:
            return self.head.length is not None and self.received >= self.head.start + self.head.length
        if data.endswith(LAST_CHUNK) or (
            data == LAST_CHUNK[2:] and len(self.reads) > 1 and self.reads[-2][2].endswith(b"\r\n")
        ):
            return True
        fresh, self.walked = self.reads[self.walked :], len(self.reads)
        return self.chunks.feed(b"".join(read[2] for read in fresh))

    def _headed(self):
        self.head = http1.head(b"".join(read[2] for read in self.reads))
        self.chunks = http1.Chunks(self.head.start) if self.head and self.head.chunked else None
        return self.head is not None

    @property
    def ends_with_connection(self):
        return self.head is not None and self.chunks is None and self.head.length is None


class Client:
    """Sends calls and notes what comes back, in one thread; `run` returns one measured row per call, in their order.

    `concurrency` bounds how many requests without a schedule are under way at once; scheduled ones are never held back.
    """

    def __init__(self, url, calls, dialect, concurrency, timeout_s):
        there = urlsplit(url)
        self.where, self.host, self.dialect, self.timeout_s = address(url), there.hostname, dialect, timeout_s
        self.tls = ssl.create_default_context() if there.scheme == "https" else None
        self.scheduled = deque(
            sorted((call for call in calls if call.at_s is not None), key=lambda call: call.at_s)
        )
        self.waiting, self.places = deque(call for call in calls if call.at_s is None), concurrency
        self.selector, self.idle, self.underway, self.done, self.rows = (
            selectors.DefaultSelector(),
            [],
            deque(),
            [],
            [],
        )
        self.active, self.held, self.alarm, self.clocks, self.lags, self.cpu_s, self.reading_cpu_s = (
            0,
            0,
            0.0,
            [],
            [],
            0.0,
            0.0,
        )

    def run(self, start):
        """Begin at the moment `start` and return when every call has its answer."""
        self.start, spent, self.first_in_line = start, time.process_time(), _first_in_line(True)
        gc.collect()
        gc.disable()
        self._compare_clocks()
        try:
            while self.scheduled or self.waiting or self.active:
                if clock() >= self.alarm:
                    self._look_round()
                for key, what in self.selector.select(self._patience()):
                    self._serve(key.data, what)
        finally:
            gc.enable()
            _first_in_line(False)
            self._compare_clocks()
            for key in list((self.selector.get_map() or {}).values()):
                self._drop(key.data)
        self.cpu_s = time.process_time() - spent
        self._digest()
        return sorted(self.rows, key=lambda row: row["request"])

    def _look_round(self):
        """Do what is due, and note when to look again: not with every token, but at the next moment that something is due."""
        self._expire()  # first: it may free a place
        self._begin()
        if clock() - self.clocks[-1][0] > LONGEST_S:
            self._compare_clocks()
            self._bound()
        moments = [self.clocks[-1][0] + LONGEST_S]
        moments += [self.underway[0].begun + self.timeout_s] if self.underway else []
        moments += [self.start + self.scheduled[0].at_s] if self.scheduled else []
        moments += [self.start] if self.waiting and not self.active else []
        self.alarm = (
            min(moments) if self.scheduled or self.waiting or self.active else 0.0
        )  # the last one may just have failed

    def _patience(self):
        """Seconds to sleep: until something is due, less what a sleeper is late by."""
        left = self.alarm - clock()
        return left - AWAKE_S if left > 1.5 * AWAKE_S else 0

    def _begin(self):
        now = clock()
        while self.scheduled and self.start + self.scheduled[0].at_s <= now:
            call = self.scheduled.popleft()
            self._take_up(Answer(call, self.start + call.at_s))
        while self.waiting and self.active < self.places and self.start <= now:
            self._take_up(Answer(self.waiting.popleft(), clock()))

    def _take_up(self, answer):
        answer.begun = clock()
        self.active += 1
        self.underway.append(answer)
        if self.idle:
            stream = self.idle.pop()
            stream.carry(answer, reused=True)
            self._write(stream)
        else:
            self._connect(answer)

    def _connect(self, answer):
        family, where = self.where
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as failure:  # no more file descriptors
            return self._finish(answer, _why(failure))
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if SO_TIMESTAMPNS and not self.tls:
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        stream = Stream(sock)
        stream.carry(answer, reused=False)
        failed = sock.connect_ex(where)
        self.selector.register(sock, WRITE, stream)
        if failed not in (
            0,
            errno.EINPROGRESS,
        ):  # no way there, or no port left; anything else is told when the socket becomes writable
            self._fail(stream, _why(OSError(failed, os.strerror(failed))))

    def _serve(self, stream, what):
        if stream.answer is None:  # the server closes an idle connection
            return self._drop(stream)
        try:
            if stream.connecting:
                self._connected(stream)
            elif what & READ:
                self._read(stream)
            else:
                self._write(stream)
        except BlockingIOError:
            pass  # woken for nothing
        except (OSError, http1.Broken) as failure:
            self._fail(stream, _why(failure))

    def _connected(self, stream):
        """The connection stands, or says why not; with TLS hands are shaken first."""
        failure = stream.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failure:
            raise OSError(failure, os.strerror(failure))
        if self.tls and not self._shaken(stream):
            return
        stream.connecting = False
        stream.answer.connected = clock()
        self._write(stream)

    def _shaken(self, stream):
        if not stream.secure:
            self.selector.unregister(stream.sock)
            stream.sock, stream.secure = (
                self.tls.wrap_socket(stream.sock, server_hostname=self.host, do_handshake_on_connect=False),
                True,
            )
            self.selector.register(stream.sock, WRITE, stream)
        try:
            stream.sock.do_handshake()
            return True
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as wants:
            self.selector.modify(
                stream.sock, READ if isinstance(wants, ssl.SSLWantReadError) else WRITE, stream
            )
            return False

    def _write(self, stream):
        """Send what the socket takes. A request counts as sent with its first byte."""
        if math.isnan(stream.answer.sent):
            stream.answer.sent = clock()
        try:
            stream.unsent = stream.unsent[stream.sock.send(stream.unsent) :]
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            pass
        except OSError as failure:
            return self._fail(stream, _why(failure))
        self.selector.modify(stream.sock, READ | WRITE if stream.unsent else READ, stream)

    def _read(self, stream):
        """The hot path: most reads are an event in the middle of an answer, and nothing else is done with it now."""
        if stream.secure:
            return self._read_secure(stream)
        data, stamp, _, _ = stream.sock.recvmsg(READ_BYTES, 64)
        stream.reads.append((clock(), stamp, data))
        stream.received += len(data)
        if (
            stream.chunks is None
            or data[-4:] == http1.HEAD_END
            or len(data) < 4
            or stream.received > ANSWER_BYTES
        ):
            self._took(stream, data)

    def _read_secure(self, stream):
        answer = stream.answer
        while stream.answer is answer:  # decrypted bytes may wait where no selector sees them
            try:
                data = stream.sock.recv(READ_BYTES)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            answer.reads.append((clock(), None, data))
            stream.received += len(data)
            self._took(stream, data)

    def _took(self, stream, data):
        """After a read: the answer is complete, or the connection has ended, or there is more to come."""
        if not data and not stream.ends_with_connection:
            self._fail(
                stream, "ConnectionError: the server closed the connection before the answer was complete."
            )
        elif not data or stream.complete(data):
            self._finish(self._release(stream, keep=data and stream.head.stays_open))
        elif stream.received + READ_COST_BYTES * len(stream.reads) > ANSWER_BYTES:
            self._fail(stream, f"The answer has more than {ANSWER_BYTES} bytes and no end.")

    def _release(self, stream, keep=False):
        """The answer that `stream` carried; the connection is kept for another one, or closed."""
        answer, stream.answer = stream.answer, None
        answer.stream = None
        if keep:
            self.idle.append(stream)
        else:
            self._drop(stream)
        return answer

    def _fail(self, stream, why, again=True):
        """The request has failed, unless an open connection was closed before it had served it: then a new one is opened, once."""
        unserved = stream.reused and not stream.received
        answer = self._release(stream)
        if unserved and again:
            answer.reads.clear()
            answer.sent = math.nan  # it counts as sent where it is served
            return self._connect(answer)
        self._finish(answer, why)

    def _drop(self, stream):
        if stream in self.idle:
            self.idle.remove(stream)
        with contextlib.suppress(
            KeyError, ValueError
        ):  # TLS took the socket away and failed before it gave one back
            self.selector.unregister(stream.sock)
        stream.sock.close()

    def _finish(self, answer, error=""):
        answer.ended, answer.error, self.alarm = clock(), error, 0.0  # a place is free
        self.held += answer.bytes_held
        self.active -= 1
        self.done.append(answer)

    def _expire(self):
        """All requests have the same patience, so the one that was taken up first ends first."""
        now = clock()
        while self.underway and (
            self.underway[0].stream is None or self.underway[0].begun + self.timeout_s <= now
        ):
            answer = self.underway.popleft()
            if answer.stream is not None:
                what = (
                    f"{'TLS ' if self.tls else ''}connection"
                    if answer.stream.connecting
                    else "complete answer"
                )
                self._fail(
                    answer.stream,
                    f"TimeoutError: no {what} within {self.timeout_s:g} s; {len(answer.reads)} pieces of an answer had come.",
                    again=False,
                )

    def _compare_clocks(self):
        """Note how far the wall clock, in which the kernel stamps, is from the monotonic one: the closest of some looks."""
        looks = [(clock(), time.time(), clock()) for _ in range(5)]
        before, wall, after = min(looks, key=lambda look: look[2] - look[0])
        self.clocks.append(((before + after) / 2, wall - (before + after) / 2))

    def _bound(self):
        if self.held > HELD_BYTES:
            self._digest()

    def _digest(self):
        """Turn the finished answers into rows; their bytes are let go."""
        spent = time.process_time()
        for answer in self.done:
            row, lags = decoding.measured(answer, self.dialect, self.clocks)
            self.rows.append(row)
            self.lags.append(lags)
            self.held -= answer.bytes_held
            answer.reads = []  # `underway` may know it longer
        self.done = []
        self.reading_cpu_s += time.process_time() - spent

    def fared(self):
        """What `_about` needs: CPU time (reading the answers afterwards apart), peak memory, whether the kernel stamped, s from its stamps to ours."""
        lags = np.concatenate([np.empty(0), *self.lags])
        return {
            "cpu_s": self.cpu_s, "reading_cpu_s": self.reading_cpu_s, "kernel_stamps": bool(SO_TIMESTAMPNS) and not self.tls,
            "first_in_line": self.first_in_line, "peak_memory_bytes": memory.peak_memory_bytes(), "read_lag_s": lags[~np.isnan(lags)],
        }  # fmt: skip


def _first_in_line(first):
    """Let this process run as soon as it has something to do, before any that computes; False where the system does not allow it.

    A server may keep all cores busy, and a client that has to wait for one is late with what it sends.
    """
    try:
        os.sched_setscheduler(
            0, os.SCHED_FIFO if first else os.SCHED_OTHER, os.sched_param(1 if first else 0)
        )
        return True
    except (OSError, AttributeError):  # not allowed; not Linux
        return False


def address(url):
    """(family, address) of the server at `url`, the first that accepts a connection; ValueError for an address that cannot be."""
    there = urlsplit(url)
    if there.scheme not in ("http", "https") or not there.hostname:
        raise ValueError(f"url must be like http://localhost:8000, not {url!r}.")
    port = there.port or (443 if there.scheme == "https" else 80)
    try:
        found = [
            (family, where)
            for family, _, _, _, where in socket.getaddrinfo(there.hostname, port, type=socket.SOCK_STREAM)
        ]
    except OSError as failure:
        raise ValueError(f"The host of {url!r} is not known: {failure.strerror}.") from None
    return next((one for one in found if _accepts(*one)), found[0])


def _accepts(family, where):
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.settimeout(5)
        return sock.connect_ex(where) == 0


def _why(failure):
    return (
        f"{type(failure).__name__}: {failure.strerror or failure}"
        if isinstance(failure, OSError)
        else f"{failure}"
    )
