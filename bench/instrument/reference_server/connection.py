"""One connection of a client to the reference server."""

import socket
import struct
import time
from collections.abc import Iterator, Sequence
from time import monotonic as clock
from typing import Any

from bench.instrument import kernel_stamps
from bench.instrument.reference_server.events import Part

READ_BYTES = 1 << 20
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset


class Connection:
    """A client's connection: bytes that came, the answer that is being sent, bytes that the kernel did not
    take yet.

    `arrived` is when the request's first bytes were there and `due` when `next`, the next part of the
    answer, is to be sent (s, monotonic clock); `record` holds the moments at which stamped events were
    sent, ns; `fields` are those of the latest request's head, `deed` is what is done for it.
    """

    __slots__ = "sock buffer arrived answer due next unsent record fields deed".split()
    answer: Any  # the rest of it, an iterator of Parts, while there is one
    record: Any  # a list of moments while an answer has stamped events
    deed: Any  # a `server.Deed`, which imports this module
    fields: dict[str, str]
    next: bytes | None

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.buffer, self.unsent = sock, b"", b""
        self.arrived, self.answer, self.record, self.fields, self.deed = 0.0, None, None, {}, None

    @property
    def open(self) -> bool:
        """Whether it has not been closed."""
        return self.sock.fileno() >= 0

    def receive(self) -> tuple[str, str, bytes] | None:
        """(method, path, body) of a whole request, None until it is; OSError where the client has gone."""
        try:
            data, ancillary, _, _ = self.sock.recvmsg(READ_BYTES, kernel_stamps.ANCILLARY_BYTES)
        except BlockingIOError:
            return None
        if not data:
            raise ConnectionError("the client closed the connection")
        if not self.buffer:
            self.arrived = _arrived_s(ancillary)
        self.buffer += data
        return self._request()

    def _request(self) -> tuple[str, str, bytes] | None:
        head, gap, rest = self.buffer.partition(b"\r\n\r\n")
        if not gap:
            return None
        first, *lines = head.split(b"\r\n")
        pairs = (line.decode("latin-1").partition(":") for line in lines if b":" in line)
        self.fields = {name.strip().lower(): value.strip() for name, _, value in pairs}
        if len(rest) < int(self.fields.get("content-length", 0)):
            return None
        self.buffer = b""
        method, path, *_ = first.decode().split(" ")
        return method, path, rest

    def begin(self, answer: Iterator[Part], record: list[int] | None) -> bool:
        """Answer the request with the parts of `answer`: (s after the request arrived, bytes)."""
        self.answer, self.record = answer, record
        return self.advance()

    def advance(self) -> bool:
        """Take the answer's next part; False where there is none."""
        part = next(self.answer, None)
        if part is None:
            self.answer = None
            return False
        self.due, self.next = self.arrived + part[0], part[1]
        return True

    def send(self, data: bytes) -> bool:
        """Whether the kernel takes all of `data` now; else the rest waits for `flush`."""
        if self.unsent:
            self.unsent += data
            return False
        try:
            sent = self.sock.send(data)
        except BlockingIOError:
            sent = 0
        self.unsent = data[sent:]
        return not self.unsent

    def close(self, reset: bool = False) -> None:
        """Close it, with a reset where the client is to see one."""
        if reset:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.sock.close()

    def flush(self) -> bool:
        """Send what the kernel takes of what it had not taken; whether nothing is left. OSError as `send`."""
        self.unsent = self.unsent[self.sock.send(self.unsent) :]
        return not self.unsent


def _arrived_s(ancillary: Sequence[tuple[int, int, bytes]]) -> float:
    """When the bytes of a `recvmsg` were there, s on the monotonic clock: the kernel's stamp, else now."""
    now = clock()
    if not ancillary:
        return now
    return min(now, now - (time.time() - kernel_stamps.wall_s(ancillary)))
