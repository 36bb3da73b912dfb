"""Loads for the tests of the load client: the reference server, calls, servers that misbehave, row checks.

Its fixtures are there for modules that name it in `pytest_plugins`.
"""

import contextlib
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from bench.instrument import reference_server
from bench.instrument.load import client, protocols, records
from bench.instrument.reference_server import events
from bench.paths import ROOT

TOKENS = 20
TTFT_S, ITL_S = 0.02, 0.002
EVENT = b'data: {"choices": [{"index": 0, "text": "a"}]}\n\n'
USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": %d}}\n\n'


class Truth:
    """The ground-truth server in a process of its own."""

    def __init__(self, ttft_s=TTFT_S, itl_s=ITL_S, *flags):
        command = [sys.executable, "-m", "bench.instrument.reference_server"]
        command += map(str, ["--ttft-s", ttft_s, "--itl-s", itl_s, *flags])
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        self.url = self.process.stdout.readline().strip()

    def log(self):
        """What it did since this was last read: [(moment of the request, moments of the tokens)], s."""
        told = reference_server.truth(self.url)
        return [(each["arrived_s"], np.array(each["sent_ns"]) * 1e-9) for each in told]

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture(scope="session")
def truth():
    server = Truth()
    yield server
    server.end()


@pytest.fixture
def fresh(truth):
    """The same server with an empty log."""
    truth.log()
    return truth


def make_calls(url, n=1, fault="", at_s=None, first=1, tokens=TOKENS, dialect="completions", prompt_tokens=3):
    """`n` calls with a prompt of three tokens, numbered from `first`."""
    prompt = protocols.Prompt((1, 2, 3), "a b c", tokens)
    payload = protocols.request(dialect, url + (f"/fault/{fault}" if fault else ""), prompt, "m")
    return [
        records.Call(first + k, payload, None if at_s is None else float(at_s[k]), prompt_tokens, tokens)
        for k in range(n)
    ]


def here(url, calls, concurrency=1, timeout_s=5.0, kind=client.Client, dialect="completions", **more):
    """(rows, client) of a run in this process."""
    loop = kind(url, calls, dialect, concurrency, timeout_s, **more)
    return loop.run(time.monotonic() + 0.01), loop


def whole(row, tokens=TOKENS):
    """Whether a row is that of a request that went well, streamed or sent as a whole (`stream`)."""
    timed = "Not streamed" in row.get("unmeasured", "") or 0 < row["ttft_s"] <= row["e2e_s"]
    return row["error"] == "" and row["output_tokens"] == tokens and row["e2e_s"] > 0 and timed


def accounted(rows, calls):
    """scheduled = finished + failed: a row for every call, in order, with times or an error, never both."""
    assert [row["request"] for row in rows] == [call.number for call in calls]
    assert all(("ttft_s" in row) != bool(row["error"]) for row in rows)
    return rows


def paired(rows, log):
    """[(row, what the server did for it)], by the stamp of the first token, which every event carries."""
    known = {round(sent[0] * 1e6): (arrived, sent) for arrived, sent in log}
    return [(row, known[round((row["arrivals_s"][0] - row["delays_s"][0]) * 1e6)]) for row in rows]


def overlap(log):
    """The largest number of requests that the server had at once."""
    changes = sorted([(arrived, 1) for arrived, _ in log] + [(sent[-1], -1) for _, sent in log])
    return max(np.cumsum([change for _, change in changes]))


@contextlib.contextmanager
def tiny(serve, tls=None):
    """A server that calls `serve(peer, number of the connection)` in a thread for each connection.

    Yields its address and a list with an entry per connection.
    """
    listening, came = socket.create_server(("127.0.0.1", 0)), []

    def one(peer):
        with contextlib.suppress(OSError, ssl.SSLError), peer:
            first = peer.recv(1, socket.MSG_PEEK)  # the client looks first whether anybody is there
            if first:
                came.append(1)
                serve(tls.wrap_socket(peer, server_side=True) if tls else peer, len(came))

    def accept():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=one, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{listening.getsockname()[1]}", came
    finally:
        listening.close()


def request_of(peer):
    """The bytes of one request, or of what there was of it when the client went away."""
    data, whole = bytearray(), 0
    while not whole or len(data) < whole:
        more = peer.recv(1 << 18)
        if not more:
            break
        data += more
        if not whole and b"\r\n\r\n" in data:
            head = bytes(data).partition(b"\r\n\r\n")[0].lower()
            whole = len(head) + 4 + int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
    return bytes(data)


def stream(tokens=TOKENS):
    """A whole answer."""
    each = [EVENT] * tokens + [USAGE % tokens, b"data: [DONE]\n\n"]
    return events.STREAMED + b"".join(map(events.chunk, each)) + events.LAST


def hang_up(peer):
    """Close with a reset."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
