"""Connections to a server: opened (with TLS for https), read, kept for the next request, closed."""

import contextlib
import errno
import itertools
import math
import os
import re
import selectors
import socket
import ssl
from collections import Counter
from time import monotonic as clock
from typing import Any
from urllib.parse import urlsplit

from bench import endpoint
from bench.instrument import kernel_stamps
from bench.instrument.kernel_stamps import ANCILLARY_BYTES
from bench.instrument.load import http1
from bench.instrument.load.records import READ_COST_BYTES, Answer

READ_BYTES = 1 << 13
ANSWER_BYTES = 1 << 26  # an answer longer than this has no end
LAST_CHUNK = b"\r\n0\r\n\r\n"
# What says within a stream that the answer is over, and how long, s, the response may then stay open.
DONE, DONE_S = b"[DONE]", 0.1
FINISH_S = 1.0
FINISH = re.compile(rb'"finish_reason"\s*:\s*"|"stop"\s*:\s*true|"generated_text"\s*:\s*"')
REACHABLE_S, FURTHER_S = 5.0, 1.0  # how long an address may take to accept; where another one has
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Stream:
    """One connection and the request that it carries."""

    __slots__ = "sock answer reads unsent head chunks walked received reused connecting secure open_s".split()
    sock: Any  # a socket, or one of TLS
    answer: Any  # an Answer while it carries one, else None
    head: Any  # an http1.Head once that is there, else None
    chunks: http1.Chunks | None
    open_s: float | None  # how long the response may stay open, once the answer is over

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.answer, self.connecting, self.secure = sock, None, True, False

    def carry(self, answer: Answer, reused: bool) -> None:
        """Take up the request of `answer`; `reused`: over a connection that has served before."""
        self.answer, self.reads, self.unsent, self.reused = answer, answer.reads, answer.call.payload, reused
        self.head, self.chunks, self.walked, self.received, self.open_s = None, None, 0, 0, None
        answer.stream = self

    def send(self) -> None:
        """Send what the socket takes; a request counts as sent with its first byte."""
        if math.isnan(self.answer.sent):
            self.answer.sent = clock()
        with contextlib.suppress(BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            self.unsent = self.unsent[self.sock.send(self.unsent) :]

    def receive(self) -> bool:
        """Read once, with the moment; returns whether the answer is complete.

        The hot path: most reads are an event in the middle of an answer, and nothing else is done with it
        now. BlockingIOError where nothing has come; OSError and http1.Broken for an answer that cannot be
        completed.
        """
        while True:
            if not self.secure:
                data, stamp, _, _ = self.sock.recvmsg(READ_BYTES, ANCILLARY_BYTES)
            else:
                try:
                    data, stamp = self.sock.recv(READ_BYTES), None
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    return False
            self.reads.append((clock(), stamp, data))
            self.received += len(data)
            if DONE in data or FINISH.search(data):
                self.open_s = DONE_S if DONE in data else FINISH_S
            may_end = self.chunks is None or data[-4:] == http1.HEAD_END or len(data) < 4
            if (may_end or self.secure or self.received > ANSWER_BYTES) and self._completed_by(data):
                return True
            if not self.secure:  # decrypted bytes may wait where no selector sees them
                return False

    def _completed_by(self, data: bytes) -> bool:
        """Whether `data`, the latest bytes, end the answer; raises where it cannot end properly any more."""
        # An answer with neither chunks nor a length ends with the connection.
        unbounded = self.head is not None and self.chunks is None and self.head.length is None
        if not data and not unbounded and self.open_s is None:
            raise ConnectionError("the server closed the connection before the answer was complete.")
        if not data or self._has_end(data):
            return True
        if self.received + READ_COST_BYTES * len(self.reads) > ANSWER_BYTES:
            raise http1.Broken(f"The answer has more than {ANSWER_BYTES} bytes and no end.")
        return False

    def _has_end(self, data: bytes) -> bool:
        """Whether the response is complete with `data`, its latest bytes.

        Thousands of answers may end within milliseconds, so the end that every server writes is known by its
        bytes (an empty chunk after a line's end, which no event can contain); chunks are walked through only
        where something else looks like an end.
        """
        if self.head is None:
            self.head = http1.head(b"".join(read[2] for read in self.reads))
            if self.head is None:
                return False
            self.chunks = http1.Chunks(self.head.start) if self.head.chunked else None
        if self.chunks is None:
            return self.head.length is not None and self.received >= self.head.start + self.head.length
        cut = len(self.reads) > 1 and self.reads[-2][2].endswith(b"\r\n")
        if data.endswith(LAST_CHUNK) or (data == LAST_CHUNK[2:] and cut):
            return True
        fresh, self.walked = self.reads[self.walked :], len(self.reads)
        return self.chunks.feed(b"".join(read[2] for read in fresh))


class Connections:
    """The connections to the server at `url`, and the selector that watches them.

    A connection that has served waits in `idle` for another request; with `fresh` each request gets a new
    one. The addresses of the host take turns; `opened` counts the connections to each. ValueError for an
    address that cannot be.
    """

    def __init__(self, url: str, fresh: bool = False) -> None:
        reachable = addresses(url)
        self.turns, self.host, self.fresh = itertools.cycle(reachable), urlsplit(url).hostname, fresh
        self.opened: Counter[str] = Counter()
        self.tls = ssl.create_default_context() if urlsplit(url).scheme == "https" else None
        self.selector = selectors.DefaultSelector()
        self.idle: list[Stream] = []

    @property
    def kernel_stamps(self) -> bool:
        """Whether the kernel stamps what these connections read."""
        return bool(kernel_stamps.SO_TIMESTAMPNS) and not self.tls

    def open(self, answer: Answer) -> None:
        """Begin a connection for the request of `answer`; OSError where no route, port or file is left."""
        family, where = next(self.turns)
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self.tls:
            kernel_stamps.request(sock)
        failed = sock.connect_ex(where)
        if failed not in (0, errno.EINPROGRESS):  # any other failure shows when the socket becomes writable
            sock.close()
            raise OSError(failed, os.strerror(failed))
        self.opened[where[0]] += 1
        stream = Stream(sock)
        stream.carry(answer, reused=False)
        self.selector.register(sock, WRITE, stream)

    def established(self, stream: Stream) -> bool:
        """Whether the new connection is ready for a request, TLS agreed on; OSError where it failed."""
        failure = stream.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failure:
            raise OSError(failure, os.strerror(failure))
        stream.connecting = bool(self.tls) and not self._shaken(stream)
        return not stream.connecting

    def _shaken(self, stream: Stream) -> bool:
        if not stream.secure:
            self.selector.unregister(stream.sock)
            assert self.tls is not None
            stream.sock = self.tls.wrap_socket(
                stream.sock, server_hostname=self.host, do_handshake_on_connect=False
            )
            stream.secure = True
            self.selector.register(stream.sock, WRITE, stream)
        try:
            stream.sock.do_handshake()
            return True
        except ssl.SSLWantReadError:
            self.selector.modify(stream.sock, READ, stream)
        except ssl.SSLWantWriteError:
            self.selector.modify(stream.sock, WRITE, stream)
        return False

    def watch(self, stream: Stream) -> None:
        """Wait for what comes, and for room as long as a part of the request is unsent."""
        self.selector.modify(stream.sock, READ | WRITE if stream.unsent else READ, stream)

    def release(self, stream: Stream, keep: bool = False) -> Answer:
        """The answer that `stream` carried; the connection is kept for another one, or closed."""
        answer: Answer = stream.answer
        stream.answer = answer.stream = None
        if keep and not self.fresh:
            self.idle.append(stream)
        else:
            self.drop(stream)
        return answer

    def keep_none(self) -> None:
        """Give each further request a connection of its own: the server closes those that wait for one."""
        self.fresh = True
        for stream in list(self.idle):
            self.drop(stream)

    def drop(self, stream: Stream) -> None:
        """Close a connection."""
        if stream in self.idle:
            self.idle.remove(stream)
        with contextlib.suppress(
            KeyError, ValueError
        ):  # TLS took the socket and failed before it gave one back
            self.selector.unregister(stream.sock)
        stream.sock.close()

    def close(self) -> None:
        """Close all of them."""
        for key in list((self.selector.get_map() or {}).values()):
            self.drop(key.data)


def addresses(url: str) -> list[tuple[int, tuple]]:
    """[(family, address)] of the server at `url`: those that accept a connection, the first if none does.

    ValueError for an address that cannot be.
    """
    parts = urlsplit(endpoint.checked(url))
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except OSError as failure:
        raise ValueError(f"The host of {url!r} is not known: {failure.strerror}.") from None
    candidates = list(dict.fromkeys((int(family), where) for family, _, _, _, where in found))
    accepting: list[tuple[int, tuple]] = []
    for family, where in candidates:
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.settimeout(FURTHER_S if accepting else REACHABLE_S)
            if sock.connect_ex(where) == 0:
                accepting.append((family, where))
    return accepting or candidates[:1]


HINTS = {errno.EMFILE: ": each request under way is a file. ulimit -n allows more of them"}


def reason(failure: Exception) -> str:
    """The error of a row for an OSError or http1.Broken."""
    if isinstance(failure, OSError):
        hint = HINTS.get(failure.errno or 0, "")
        if isinstance(failure, ssl.SSLCertVerificationError):
            hint = ". SSL_CERT_FILE names a file of certificates to trust"
        return f"{type(failure).__name__}: {failure.strerror or failure}{hint}"
    return str(failure)
