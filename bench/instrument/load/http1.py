"""As much of HTTP/1.1 and of server-sent events as a load client needs: where a response ends, and which of
its bytes are which event.

Written for bytes that were stamped first and are read later; positions are kept, so every event finds the
stamp of its last byte.
"""

import re
from dataclasses import dataclass

HEAD_END = b"\r\n\r\n"
EVENT_END = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}")
LENGTH = re.compile(rb"[0-9a-fA-F]{1,16}")
HEAD_BYTES = 65536
HTTP2 = b"\x04\x00"  # the type of a SETTINGS frame, with which an answer of HTTP/2 begins


class Broken(ValueError):
    """The bytes are no HTTP response that can be understood; the message says why."""


@dataclass
class Head:
    """Status, header fields (names in lower case), and where the body begins."""

    status: int
    fields: dict
    start: int

    @property
    def length(self) -> int | None:
        """Bytes of the body where the server says so beforehand, else None."""
        length = self.fields.get("content-length")
        return int(length) if length and length.isdigit() and not self.chunked else None

    @property
    def chunked(self) -> bool:
        return "chunked" in self.fields.get("transfer-encoding", "").lower()

    @property
    def stays_open(self) -> bool:
        closes = self.fields.get("connection", "").lower() == "close"
        return not closes and (self.chunked or self.length is not None)


def head(data: bytes | bytearray, start: int = 0) -> Head | None:
    """The Head of a response that begins with `data`; None while it is incomplete. Broken if it is none.

    Interim responses (100, 102, 103) before it are passed over; `start` is where they end.
    """
    end = data.find(HEAD_END, start)
    if data[start + 3 : start + 5] == HTTP2:
        raise Broken(
            "the server speaks HTTP/2 only, and the load client HTTP/1.1: ask it for its HTTP/1.1 port"
        )
    if end < 0:
        if len(data) > HEAD_BYTES or (len(data) > start + 4 and not data.startswith(b"HTTP/", start)):
            raise Broken(f"the answer is no HTTP: {bytes(data[start : start + 60])!r}")
        return None
    first, *lines = bytes(data[start:end]).decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1") or not words[1].isdigit():
        raise Broken(f"the answer is no HTTP: {first[:60]!r}")
    if words[1].startswith("1"):
        return head(data, end + len(HEAD_END))
    pairs = (line.partition(":") for line in lines)
    fields = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return Head(int(words[1]), fields, end + len(HEAD_END))


class Chunks:
    """Walks through a chunked body as it grows: `feed` more bytes, `complete` tells whether the last chunk
    has come.

    `pieces` are (position in the body, position in the raw bytes, length) of every chunk so far.
    """

    def __init__(self, start: int) -> None:
        self.raw, self.at, self.size, self.complete = bytearray(), start, 0, False
        self.pieces: list[tuple[int, int, int]] = []

    def feed(self, data: bytes | bytearray) -> bool:
        """Add raw bytes, head included; whether the body is complete. Broken for a chunk without a length."""
        self.raw += data
        while not self.complete:
            line = self.raw.find(b"\r\n", self.at)
            if line < 0:
                break
            digits = bytes(self.raw[self.at : line]).partition(b";")[0].strip()
            if not LENGTH.fullmatch(digits):  # int() alone would take a sign, and go backwards
                raise Broken(f"a chunk has no length: {bytes(self.raw[self.at : self.at + 30])!r}")
            length = int(digits, 16)
            if length == 0:
                self.complete = self.raw.find(HEAD_END, line) >= 0  # at once, or after trailer fields
                break
            if len(self.raw) < line + 2 + length + 2:
                break
            self.pieces.append((self.size, line + 2, length))
            self.size, self.at = self.size + length, line + 2 + length + 2
        return self.complete


def body(raw: bytes | bytearray, head: Head) -> tuple[bytes | bytearray, list[tuple[int, int, int]], bool]:
    """The body of the response `raw`, whose Head is `head`.

    Returns (body bytes, [(position in the body, position in the raw bytes, length)], whether it is complete).
    """
    if not head.chunked:
        rest = bytes(raw[head.start :])
        return rest, [(0, head.start, len(rest))], head.length is None or len(rest) >= head.length
    walk = Chunks(head.start)
    complete = walk.feed(raw)
    return b"".join(bytes(raw[at : at + n]) for _, at, n in walk.pieces), walk.pieces, complete


def events(data: bytes | bytearray) -> tuple[list[tuple[bytes, int]], list[tuple[bytes, int]]]:
    """Server-sent events in the body `data`: [(data, position after its last byte)], and likewise what is
    left without its empty line, an event where the body is complete.

    An event is lines up to an empty line; its data are what follows `data:`, with or without a space, or a
    line of bare JSON, as engines write that fail. Comments and other fields are left out.
    """
    found: list[tuple[bytes, int]] = []
    start = 0
    for end in EVENT_END.finditer(data):
        _add(found, data[start : end.start()], end.start())
        start = end.end()
    left: list[tuple[bytes, int]] = []
    _add(left, data[start:], len(data.rstrip()))
    return found, left


def _add(found: list[tuple[bytes, int]], lines: bytes | bytearray, end: int) -> None:
    lines = lines.strip().removeprefix(b"\xef\xbb\xbf")
    content = [line[5:].removeprefix(b" ") for line in lines.splitlines() if line.startswith(b"data:")]
    if content or lines.startswith(b"{"):
        found.append((b"\n".join(content) or bytes(lines), end))
