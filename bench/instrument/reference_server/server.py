"""The loop of the reference server: one thread around one selector and a heap of what is due when."""

import gc
import heapq
import json
import selectors
import socket
from itertools import count
from time import monotonic as clock
from time import monotonic_ns

from bench.instrument import kernel_stamps
from bench.instrument.reference_server import faults
from bench.instrument.reference_server.connection import Connection
from bench.instrument.reference_server.events import MODEL, NOW, Completion, Schedule, plain

LOOK_EVERY = 8  # after so many events that are due, new requests are looked for again
PATIENCE_S = 60  # the longest sleep: what a silent answer waits is more than epoll takes
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
STAMP_PLACE = NOW.encode()
MODEL_FIELDS = {"id": MODEL, "object": "model", "created": 0, "owned_by": "bench", "max_model_len": 100000}
MODELS = {"object": "list", "data": [MODEL_FIELDS]}


class Server:
    """Answers on `port` of the loopback (0: any that is free, see `port`) by the schedule of `ttft_s` and
    `itl_s`.

    `truth` has (moment of arrival in s, [moments of sending in ns]) of each streamed request since it was
    last read.
    """

    def __init__(self, port, ttft_s, itl_s):
        self.schedule, self.heap, self.order, self.truth = Schedule(ttft_s, itl_s), [], count(), []
        self.selector = selectors.DefaultSelector()
        self.listening = socket.create_server(("127.0.0.1", port), backlog=4096)
        self.port = self.listening.getsockname()[1]
        self.listening.setblocking(False)
        kernel_stamps.request(
            self.listening
        )  # here, so that the first packet of a connection is stamped as well
        self.selector.register(self.listening, READ, None)

    def run(self):
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

    def _patience(self):
        """Seconds to sleep: until something is due, less what a sleeper is late by."""
        left = min(self.heap[0][0] - clock(), PATIENCE_S) if self.heap else PATIENCE_S
        return left - 0.001 if left > 0.002 else 0

    def _accept(self):
        for sock in _accepted(self.listening):
            connection = Connection(sock)
            self.selector.register(sock, READ, connection)
            self._receive(connection)

    def _receive(self, connection):
        try:
            request = connection.receive()
        except OSError:
            return self._close(connection)
        if request:
            self._answer(connection, *request)

    def _answer(self, connection, method, path, body):
        """Begin the answer: a page for GET, a completion for anything else."""
        record = None
        if method == "GET":
            answer = iter([(0, self._page(path))])
        else:
            completion = Completion(path, json.loads(body or b"{}"))
            answer, known = _answer(completion, path, self.schedule)
            if completion.stream and known:
                record = []
                self.truth.append((connection.arrived, record))
        connection.begin(answer, record)
        self._continue_if_due(connection)

    def _page(self, path):
        if path.startswith("/truth"):
            truth, self.truth = self.truth, []
            return plain(200, json.dumps([{"arrived_s": at, "sent_ns": sent} for at, sent in truth]))
        return plain(200, json.dumps(MODELS if path.endswith("/models") else {"status": "ok"}))

    def _continue_if_due(self, connection):
        if connection.due <= clock():
            self._continue(connection)
        else:
            heapq.heappush(self.heap, (connection.due, next(self.order), connection))

    def _continue(self, connection):
        """Send the part that is due, and those after it that are due by then."""
        while connection.open:
            part = connection.next
            if not part:
                return self._close(connection, reset=part is None)
            if STAMP_PLACE in part:
                now = monotonic_ns()
                connection.record.append(now)
                part = part % now
            if not self._send(connection, part) or not connection.advance():
                return
            if connection.due > clock():
                return heapq.heappush(self.heap, (connection.due, next(self.order), connection))

    def _send(self, connection, data):
        """Whether the kernel took all of `data`; else the answer goes on when it has."""
        try:
            sent = connection.send(data)
        except OSError:
            self._close(connection)
            return False
        if not sent:
            self.selector.modify(connection.sock, READ | WRITE, connection)
        return sent

    def _flush(self, connection):
        try:
            flushed = connection.flush()
        except OSError:
            return self._close(connection)
        if flushed:
            self.selector.modify(connection.sock, READ, connection)
            if connection.answer and connection.advance():
                self._continue_if_due(connection)

    def _close(self, connection, reset=False):
        if connection.open:
            self.selector.unregister(connection.sock)
            connection.close(reset)


def _accepted(listening):
    """The sockets of all that wait for a connection."""
    while True:
        try:
            sock, _ = listening.accept()
        except OSError:
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield sock


def _answer(completion, path, schedule):
    """(answer of the fault that `path` names, if any; whether there is such a fault)."""
    fault = path.split("/")[2] if path.startswith("/fault/") else None
    if fault is None:
        return faults.usual(completion, schedule), True
    if fault in faults.FAULTS:
        return faults.FAULTS[fault](completion, schedule), True
    return iter([(0, plain(404, f"no such fault: {', '.join(faults.FAULTS)}"))]), False
