"""A server whose times are known: it writes the moment of sending into every event, so a client's error is known event by event.

    python -m bench.instrument.reference_server --port 8000 --ttft-s 0.05 --itl-s 0.01

It speaks OpenAI's completions and chat streams. The first token is sent `ttft-s` after the request's bytes had arrived (the kernel's stamp, so a
late server is not blamed on the client), every further one `itl-s` after that; none waits for the one before. `sent_ns` in an event is the
machine's monotonic clock just before the bytes were handed to the kernel. `GET /truth` gives what was really done, request by request, and forgets it.

Faults on demand: the path begins with /fault/<name>, one of FAULTS: http://localhost:8000/fault/silent.
"""

import argparse
import gc
import heapq
import json
import os
import resource
import selectors
import socket
import struct
import sys
import threading
import time
from itertools import count
from time import monotonic as clock
from time import monotonic_ns

from bench import processes
from bench.instrument.load import client, decoding

MODEL = "ground-truth"
LOOK_EVERY = 8  # after so many events that are due, new requests are looked for again
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset
HEAD = "HTTP/1.1 {} \r\nContent-Type: {}\r\n{}\r\n\r\n"
STREAMED = HEAD.format(200, "text/event-stream", "Transfer-Encoding: chunked").encode()
LAST = b"0\r\n\r\n"
NOW = "%20d"  # where a stamp goes; JSON allows blanks before a number, so every event has the same length
ACCENT = "é".encode()


def chunk(data):
    """`data` as one chunk of a chunked body."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def stamped(event):
    """Bytes of one event as a chunk, with a place for the stamp; braces and percent signs of the JSON stay as they are."""
    text = "data: " + json.dumps(event).replace("%", "%%").replace('"NOW"', NOW) + "\n\n"
    return f"{len(text % 0):x}\r\n{text}\r\n".encode()


class Told:
    """What a request asked for, and the events that answer it."""

    def __init__(self, path, body):
        self.chat, self.tokens = (
            path.endswith("/chat/completions"),
            int(body.get("max_tokens") or body.get("max_completion_tokens") or 16),
        )
        prompt = body.get("prompt", body.get("messages", ""))
        self.prompt_tokens = (
            len(prompt)
            if self.chat is False and isinstance(prompt, list)
            else len(json.dumps(prompt).split())
        )
        self.stream, self.usage = (
            body.get("stream", False),
            (body.get("stream_options") or {}).get("include_usage"),
        )

    def _event(self, choices, **more):
        return {
            "id": "x",
            "object": "text_completion",
            "created": 0,
            "model": MODEL,
            "choices": choices,
            **more,
        }

    def token(self, text=" token", finish=None):
        choice = {"index": 0, "finish_reason": finish}
        choice |= {"delta": {"content": text}} if self.chat else {"text": text, "logprobs": None}
        return stamped(self._event([choice], sent_ns="NOW"))

    def counted(self, output_tokens=None):
        n = self.tokens if output_tokens is None else output_tokens
        usage = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": n,
            "total_tokens": self.prompt_tokens + n,
        }
        return chunk(b"data: " + json.dumps(self._event([], usage=usage)).encode() + b"\n\n")

    def role(self):
        """The event with which a chat begins: it has no token."""
        event = self._event(
            [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]
        )
        return chunk(b"data: " + json.dumps(event).encode() + b"\n\n") if self.chat else b""

    def whole(self):
        """The answer in one piece, for those that do not stream."""
        text = " token" * self.tokens
        choice = {"index": 0, "finish_reason": "length"} | (
            {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        )
        usage = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.tokens,
            "total_tokens": self.prompt_tokens + self.tokens,
        }
        return plain(200, json.dumps(self._event([choice], usage=usage)))

    @property
    def done(self):
        return chunk(b"data: [DONE]\n\n") + LAST


def plain(status, text, more=""):
    """A response that is no stream."""
    return (
        HEAD.format(status, "application/json", f"Content-Length: {len(text.encode())}{more}").encode()
        + text.encode()
    )


# Each answer is a generator of (moment in s after the request arrived, bytes); bytes with a place for a stamp are stamped when they are sent.
# b"" closes the connection, None resets it.


def usual(told, plan):
    """The answer without a fault."""
    if not told.stream:
        yield plan.ttft_s + (told.tokens - 1) * plan.itl_s, told.whole()
        return
    yield 0, STREAMED + told.role()
    event, last = told.token(), told.token(finish="length")
    for k in range(told.tokens):
        yield plan.ttft_s + k * plan.itl_s, (event if k < told.tokens - 1 else last)
    yield plan.ttft_s + (told.tokens - 1) * plan.itl_s, (told.counted() if told.usage else b"") + told.done


def _until_half(told, plan):
    """The first half of the usual answer."""
    for k, part in enumerate(usual(told, plan)):
        if k > told.tokens // 2:
            return
        yield part


def reset(told, plan):
    """The connection is reset after half of the tokens."""
    yield from _until_half(told, plan)
    yield plan.ttft_s + told.tokens * plan.itl_s, None


def silent(told, plan):
    """Nothing, for ever."""
    yield 10**9, b""


def stalls(told, plan):
    """Half of the tokens, then nothing, for ever."""
    yield from _until_half(told, plan)
    yield 10**9, b""


def drip(told, plan):
    """Every byte apart, one per gap: an answer that never seems to end."""
    for k, byte in enumerate(STREAMED + b"".join(chunk(b"data: {}\n\n") for _ in range(10**4))):
        yield k * plan.itl_s, bytes([byte])


def _refusal(status, more=""):
    def refused(told, plan):
        yield (
            0,
            plain(status, json.dumps({"error": {"message": f"refused with {status}", "code": status}}), more),
        )

    refused.__doc__ = f"HTTP {status}."
    return refused


def malformed(told, plan):
    """An event that is no JSON, in the middle."""
    yield from _until_half(told, plan)
    yield (
        plan.ttft_s + told.tokens * plan.itl_s,
        chunk(b'data: {"choices": [{"text": \n\n') + told.counted() + told.done,
    )


def truncated(told, plan):
    """The connection closes within an event."""
    yield from _until_half(told, plan)
    yield plan.ttft_s + told.tokens * plan.itl_s, told.token().replace(NOW.encode(), b"%20d" % 0)[:40]
    yield plan.ttft_s + told.tokens * plan.itl_s, b""


def no_http(told, plan):
    """Bytes that are no HTTP."""
    yield 0, b"SSH-2.0-OpenSSH_9.2\r\n"


def no_length(told, plan):
    """A chunk whose length is no number."""
    yield 0, STREAMED + b"zz\r\ndata: {}\n\n\r\n"


def utf8(told, plan):
    """A character's bytes in two packets, and the first byte of one that never ends."""
    yield 0, STREAMED
    for k in range(told.tokens):
        event = told.token("...").replace(
            b"...", b" \xc3." if k == 1 else b" " + ACCENT
        )  # the stamp is in the second part
        at = event.index(b"\xc3") + 1
        yield plan.ttft_s + k * plan.itl_s, event[:at]
        yield plan.ttft_s + (k + 0.3) * plan.itl_s, event[at:]
    yield plan.ttft_s + told.tokens * plan.itl_s, told.counted() + told.done


def empty(told, plan):
    """A stream without a single token."""
    yield plan.ttft_s, STREAMED + told.counted(0) + told.done


def two_per_chunk(told, plan):
    """Two tokens in every event."""
    yield 0, STREAMED
    for k in range(0, told.tokens, 2):
        yield plan.ttft_s + k * plan.itl_s, told.token(" two tokens")
    yield plan.ttft_s + told.tokens * plan.itl_s, told.counted() + told.done


def two_per_packet(told, plan):
    """Two events in every packet."""
    yield 0, STREAMED
    for k in range(0, told.tokens, 2):
        yield plan.ttft_s + k * plan.itl_s, told.token().replace(NOW.encode(), b"%20d" % monotonic_ns()) * 2
    yield plan.ttft_s + told.tokens * plan.itl_s, told.counted() + told.done


def _ending(finally_):
    """The usual tokens with another end; `finally_` gives it from what was asked."""

    def answer(told, plan):
        told.usage = False
        *parts, (at, _) = usual(told, plan)
        yield from parts
        yield at, finally_(told)

    return answer


def keeps_no_connection(told, plan):
    """No chunks and no length: the end of the connection is the end of the answer. No blank after `data:`, lines end with CR LF."""
    yield 0, HEAD.format(200, "text/event-stream", "Connection: close").encode()
    for k in range(told.tokens):
        event = told.token().split(b"\r\n")[1].replace(b"data: ", b"data:").replace(b"\n\n", b"\r\n\r\n")
        yield plan.ttft_s + k * plan.itl_s, event
    yield plan.ttft_s + told.tokens * plan.itl_s, told.counted().split(b"\r\n")[1] + b"\n\n"
    yield plan.ttft_s + told.tokens * plan.itl_s, b""


def endless(told, plan):
    """Tokens without end, as fast as they go."""
    yield 0, STREAMED
    flood = told.token(" token" * 2000).replace(NOW.encode(), b"%20d" % 0) * 8
    for _ in count():
        yield 0, flood


FAULTS = {
    "reset": reset, "silent": silent, "stalls": stalls, "drip": drip, "http-429": _refusal(429, "\r\nRetry-After: 1"), "http-500": _refusal(500),
    "http-503": _refusal(503), "malformed": malformed, "truncated": truncated, "no-http": no_http, "no-length": no_length, "utf8": utf8,
    "empty": empty, "two-per-chunk": two_per_chunk, "two-per-packet": two_per_packet, "keeps-no-connection": keeps_no_connection, "endless": endless,
    "no-usage": _ending(lambda told: told.done), "wrong-usage": _ending(lambda told: told.counted(told.tokens + 1) + told.done),
    "error-event": _ending(lambda told: chunk(b'data: {"error": {"message": "out of memory", "code": 500}}\n\n') + told.done),
}  # fmt: skip


class Connection:
    """A client's connection: bytes that came, the answer that is being given, bytes that the kernel did not take yet."""

    __slots__ = "sock buffer arrived answer due next unsent record".split()

    def __init__(self, sock):
        self.sock, self.buffer, self.arrived, self.answer, self.unsent, self.record = (
            sock,
            b"",
            0.0,
            None,
            b"",
            None,
        )


class Server:
    """One thread around one selector and a heap of what is due when."""

    def __init__(self, port, ttft_s, itl_s):
        self.ttft_s, self.itl_s, self.heap, self.order, self.truth = ttft_s, itl_s, [], count(), []
        self.selector, self.listening = (
            selectors.DefaultSelector(),
            socket.create_server(("127.0.0.1", port), backlog=4096),
        )
        self.port = self.listening.getsockname()[1]
        self.listening.setblocking(False)
        if client.SO_TIMESTAMPNS:
            self.listening.setsockopt(
                socket.SOL_SOCKET, client.SO_TIMESTAMPNS, 1
            )  # connections inherit it, so the first packet is stamped as well
        self.selector.register(self.listening, selectors.EVENT_READ, None)

    def run(self):
        """For ever."""
        gc.freeze()
        gc.disable()
        while True:
            for key, what in self.selector.select(self._patience()):
                if key.data is None:
                    self._accept()
                elif what & selectors.EVENT_WRITE:
                    self._push(key.data)
                else:
                    self._listen(key.data)
            for _ in range(LOOK_EVERY):
                if not self.heap or self.heap[0][0] > clock():
                    break
                self._continue(heapq.heappop(self.heap)[2])

    def _patience(self):
        left = (
            min(self.heap[0][0] - clock(), 60) if self.heap else 60
        )  # what is due in a thousand million seconds is more than epoll takes
        return left - 0.001 if left > 0.002 else 0

    def _accept(self):
        while True:
            try:
                sock, _ = self.listening.accept()
            except (BlockingIOError, OSError):
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(sock)
            self.selector.register(sock, selectors.EVENT_READ, connection)
            self._listen(connection)

    def _listen(self, connection):
        try:
            data, ancillary, _, _ = connection.sock.recvmsg(1 << 20, 64)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            return self._close(connection)
        if not connection.buffer:
            connection.arrived = self._arrived(ancillary)
        connection.buffer += data
        self._understand(connection)

    def _arrived(self, ancillary):
        """When the request's first bytes were there, on the monotonic clock."""
        now = clock()
        if not ancillary:
            return now
        seconds, nanoseconds = decoding.STAMP.unpack_from(ancillary[0][2])
        return min(now, now - (time.time() - (seconds + nanoseconds * 1e-9)))

    def _understand(self, connection):
        head, gap, rest = connection.buffer.partition(b"\r\n\r\n")
        if not gap:
            return
        method, path, *_ = head.split(b"\r\n")[0].decode().split(" ")
        fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line)
        if len(rest) < int(fields.get(b"content-length", 0)):
            return
        connection.buffer = b""
        self._answer(connection, method, path, rest)

    def _answer(self, connection, method, path, body):
        connection.record = None
        if method == "GET":
            connection.answer = iter([(0, self._page(path))])
        else:
            fault = path.split("/")[2] if path.startswith("/fault/") else None
            told = Told(path, json.loads(body or b"{}"))
            known = fault is None or fault in FAULTS
            answer = (
                (FAULTS[fault] if fault else usual)(told, self)
                if known
                else [(0, plain(404, f"no such fault: {', '.join(FAULTS)}"))]
            )
            connection.answer = iter(answer)
            if told.stream and known:
                connection.record = []
                self.truth.append((connection.arrived, connection.record))
        self._plan(connection)
        self._continue_if_due(connection)

    def _page(self, path):
        if path.startswith("/truth"):
            told, self.truth = self.truth, []
            return plain(200, json.dumps([{"arrived_s": at, "sent_ns": sent} for at, sent in told]))
        listed = {
            "object": "list",
            "data": [
                {"id": MODEL, "object": "model", "created": 0, "owned_by": "bench", "max_model_len": 100000}
            ],
        }
        return plain(200, json.dumps(listed if path.endswith("/models") else {"status": "ok"}))

    def _plan(self, connection):
        """Ask the answer for its next part; False where there is none."""
        part = next(connection.answer, None)
        if part is None:
            connection.answer = None
            return False
        connection.due, connection.next = connection.arrived + part[0], part[1]
        return True

    def _continue_if_due(self, connection):
        if connection.due <= clock():
            self._continue(connection)
        else:
            heapq.heappush(self.heap, (connection.due, next(self.order), connection))

    def _continue(self, connection):
        """Send the part that is due, and see when the next one is."""
        while connection.sock.fileno() >= 0:
            part = connection.next
            if not part:
                return self._close(connection, reset=part is None)
            if NOW.encode() in part:
                now = monotonic_ns()
                connection.record.append(now)
                part = part % now
            if not self._give(connection, part):
                return
            if not self._plan(connection):
                return
            if connection.due > clock():
                return heapq.heappush(self.heap, (connection.due, next(self.order), connection))

    def _give(self, connection, data):
        """Hand `data` to the kernel; False where it does not take all of it now: the rest goes when it can, and nothing else before."""
        if connection.unsent:
            connection.unsent += data
            return False
        try:
            sent = connection.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._close(connection)
            return False
        if sent < len(data):
            connection.unsent = data[sent:]
            self.selector.modify(connection.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, connection)
            return False
        return True

    def _push(self, connection):
        try:
            connection.unsent = connection.unsent[connection.sock.send(connection.unsent) :]
        except OSError:
            return self._close(connection)
        if not connection.unsent:
            self.selector.modify(connection.sock, selectors.EVENT_READ, connection)
            if connection.answer and self._plan(connection):
                self._continue_if_due(connection)

    def _close(self, connection, reset=False):
        if connection.sock.fileno() >= 0:
            if reset:
                connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self.selector.unregister(connection.sock)
            connection.sock.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--ttft-s", type=float, default=0.05)
    parser.add_argument("--itl-s", type=float, default=0.01)
    given = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    threading.Thread(target=processes.die_with, args=(os.getppid(),), daemon=True).start()
    server = Server(given.port, given.ttft_s, given.itl_s)
    print(f"http://127.0.0.1:{server.port}", flush=True)
    server.run()


if __name__ == "__main__":
    sys.exit(main())
