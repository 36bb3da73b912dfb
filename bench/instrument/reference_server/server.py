"""The loop of the reference server: one thread around one selector and a heap of what is due when."""

import gc
import hashlib
import heapq
import json
import os
import runpy
import selectors
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from time import monotonic as clock
from time import monotonic_ns

from bench.instrument import kernel_stamps
from bench.instrument.reference_server.cache import Cache, Held
from bench.instrument.reference_server.connection import Connection
from bench.instrument.reference_server.events import MODEL, NOW, Completion, Part, Schedule, plain, usual
from llm_measured.core.definitions import Fields

LOOK_EVERY = 8  # after so many events that are due, new requests are looked for again
PATIENCE_S = 60  # the longest sleep: what a silent answer waits is more than epoll takes
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
STAMP_PLACE = NOW.encode()
# Faults of the cache and of the counters: blocks are found once their request has ended (llama.cpp's way),
# everything is forgotten at the first of so many requests, /metrics counts every token twice.
LATE, LOSES, TWICE = "cache-shared-late", "loses-cache", "counts-twice"
FORGETS_EVERY = 8
MODEL_FIELDS = {"id": MODEL, "object": "model", "created": 0, "owned_by": "bench", "max_model_len": 100000}
MODELS = {"object": "list", "data": [MODEL_FIELDS]}


@dataclass
class Deed:
    """What was done for one streamed request."""

    arrived_s: float
    sent_ns: list[int]
    completion: Completion
    fields: dict[str, str]  # of the request's head, names in lower case
    held: Held | None

    def record(self) -> Fields:
        """It as /truth says it; `cached`, `computed` and `evicted` (blocks) are empty without a cache."""
        row: Fields = {"arrived_s": self.arrived_s, "sent_ns": self.sent_ns}
        row |= {"session": self.fields.get("x-session-id"), "turn": self.fields.get("x-turn")}
        digest = hashlib.sha256(json.dumps(self.completion.tokens_in).encode()).hexdigest()
        row |= {"digest": digest, "prompt_tokens": self.completion.prompt_tokens}
        cached = evicted = computed = None
        if self.held is not None:
            cached, evicted = self.held.cached, self.held.evicted
            computed = self.held.prompt_tokens - cached
        return row | {"cached": cached, "computed": computed, "evicted": evicted}


class Server:
    """Answers on `port` of the loopback (0: any that is free, see `port`) by the Schedule `schedule`,
    from the Cache `cache` (None: it keeps nothing).

    `truth` has a Deed of each streamed request since it was last read.
    """

    def __init__(self, port: int, schedule: Schedule, cache: Cache | None = None) -> None:
        self.schedule, self.order = schedule, count()
        self.heap: list[tuple[float, int, Connection]] = []
        self.truth: list[Deed] = []
        self.cache, self.losing = cache, count()
        own = os.environ.get("BENCH_ANSWERS")
        self.answers = dict.fromkeys(("", LATE, LOSES, TWICE), usual)
        self.answers |= runpy.run_path(own)["FAULTS"] if own else {}
        self.selector = selectors.DefaultSelector()
        self.listening = socket.create_server(("127.0.0.1", port), backlog=4096)
        self.port = self.listening.getsockname()[1]
        self.listening.setblocking(False)
        kernel_stamps.request(
            self.listening
        )  # here, so that the first packet of a connection is stamped as well
        self.selector.register(self.listening, READ, None)

    def run(self) -> None:
        gc.freeze()
        gc.disable()
        while True:
            for key, ready in self.selector.select(self._patience()):
                if key.data is None:
                    self._accept()
                elif ready & WRITE:
                    self._flush(key.data)
                else:
                    self._receive(key.data)
            for _ in range(LOOK_EVERY):
                if not self.heap or self.heap[0][0] > clock():
                    break
                self._continue(heapq.heappop(self.heap)[2])

    def _patience(self) -> float:
        """Seconds to sleep: until something is due, less what a sleeper is late by."""
        left = min(self.heap[0][0] - clock(), PATIENCE_S) if self.heap else PATIENCE_S
        return left - 0.001 if left > 0.002 else 0

    def _accept(self) -> None:
        for sock in _accepted(self.listening):
            connection = Connection(sock)
            self.selector.register(sock, READ, connection)
            self._receive(connection)

    def _receive(self, connection: Connection) -> None:
        try:
            request = connection.receive()
        except OSError:
            return self._close(connection)
        if request:
            self._answer(connection, *request)

    def _answer(self, connection: Connection, method: str, path: str, body: bytes) -> None:
        """Begin the answer: a page for GET, a completion for anything else."""
        record: list[int] | None = None
        if method == "GET":
            answer: Iterator[Part] = iter([(0.0, self._page(path))])
        else:
            completion = Completion(path, json.loads(body or b"{}"))
            fault = path.split("/")[2] if path.startswith("/fault/") else ""
            schedule, held = self._looked_up(completion, fault)
            answer = iter([(0.0, plain(404, f"no such fault: {', '.join(self.answers)}"))])
            if play := self.answers.get(fault):
                answer = play(completion, schedule)
            record = []
            connection.deed = Deed(connection.arrived, record, completion, connection.fields, held)
            if completion.stream and play:
                self.truth.append(connection.deed)
        connection.begin(answer, record)
        self._continue_if_due(connection)

    def _looked_up(self, completion: Completion, fault: str) -> tuple[Schedule, Held | None]:
        """(the schedule of the request, what it holds of the cache; None without one)."""
        if self.cache is None:
            return self.schedule.computing(completion.prompt_tokens), None
        if fault == LOSES and next(self.losing) % FORGETS_EVERY == 0:
            self.cache.forget()
        held = self.cache.begin(completion.tokens_in, late=fault == LATE)
        completion.reported = held.cached
        return self.schedule.computing(held.prompt_tokens - held.cached), held

    def _let_go(self, connection: Connection) -> None:
        """The connection's request is over, to its end or not: what it computed is kept by the cache."""
        deed, connection.deed = connection.deed, None
        if self.cache is not None and deed is not None and deed.held is not None:
            computed = max(0, len(deed.sent_ns) - 1)
            self.cache.end(deed.held, deed.completion.answer[:computed])

    def _page(self, path: str) -> bytes:
        if path.startswith("/truth"):
            truth, self.truth = self.truth, []
            return plain(200, json.dumps([deed.record() for deed in truth]))
        if path.endswith("/metrics"):
            return plain(200, self._metrics(2 if f"/{TWICE}/" in path else 1))
        return plain(200, json.dumps(MODELS if path.endswith("/models") else {"status": "ok"}))

    def _metrics(self, times: int) -> str:
        """The counters of prompt tokens as Prometheus reads them; none without a cache."""
        if self.cache is None:
            return ""
        counts = {"computed": self.cache.computed, "cached": self.cache.cached}
        return "".join(
            f"# TYPE reference:prompt_tokens_{name}_total counter\n"
            f"reference:prompt_tokens_{name}_total {value * times}\n"
            for name, value in counts.items()
        )

    def _continue_if_due(self, connection: Connection) -> None:
        if connection.due <= clock():
            self._continue(connection)
        else:
            heapq.heappush(self.heap, (connection.due, next(self.order), connection))

    def _continue(self, connection: Connection) -> None:
        """Send the part that is due, and those after it that are due by then."""
        while connection.open:
            part = connection.next
            if not part:
                return self._close(connection, reset=part is None)
            if STAMP_PLACE in part:
                now = monotonic_ns()
                connection.record.append(now)
                part = part % now
            if not self._send(connection, part):
                return
            if not connection.advance():
                return self._let_go(connection)
            if connection.due > clock():
                return heapq.heappush(self.heap, (connection.due, next(self.order), connection))

    def _send(self, connection: Connection, data: bytes) -> bool:
        """Whether the kernel took all of `data`; else the answer goes on when it has."""
        try:
            sent = connection.send(data)
        except OSError:
            self._close(connection)
            return False
        if not sent:
            self.selector.modify(connection.sock, READ | WRITE, connection)
        return sent

    def _flush(self, connection: Connection) -> None:
        try:
            flushed = connection.flush()
        except OSError:
            return self._close(connection)
        if flushed:
            self.selector.modify(connection.sock, READ, connection)
            if connection.answer and connection.advance():
                self._continue_if_due(connection)
            elif connection.answer is None:
                self._let_go(connection)

    def _close(self, connection: Connection, reset: bool = False) -> None:
        self._let_go(connection)
        if connection.open:
            self.selector.unregister(connection.sock)
            connection.close(reset)


def _accepted(listening: socket.socket) -> Iterator[socket.socket]:
    """The sockets of all that wait for a connection."""
    while True:
        try:
            sock, _ = listening.accept()
        except OSError:
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield sock
