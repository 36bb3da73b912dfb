"""What can go wrong between the load client and a server, and what memory an answer may take."""

import socket
import threading
import time

import numpy as np
import pytest
from loads import TOKENS, Truth, accounted, here, make_calls, overlap, tiny, whole
from server_faults import FAULTS

from bench.instrument.load import client, connection, parallel, records, results

pytest_plugins = ["loads"]
pytestmark = [pytest.mark.usefixtures("watchdog"), pytest.mark.timing]


ERRORS = {
    "reset": "ConnectionResetError: Connection reset by peer",
    "silent": "TimeoutError: no complete answer within 1 s; 0 pieces",
    "stalls": "TimeoutError: no complete answer within 1 s; ",
    "drip": "TimeoutError: no complete answer within 1 s; ",
    "http-429": "HTTP 429: refused with 429",
    "http-500": "HTTP 500: refused with 500",
    "http-503": "HTTP 503: refused with 503",
    "malformed": "an event could not be read (JSONDecodeError",
    "truncated": "the server closed the connection before the answer was complete",
    "no-http": "the answer is no HTTP: b'SSH",
    "no-length": "a chunk has no length",
    "empty": "The stream was empty",
    "endless": "bytes and no end",
    "no-usage": "did not report usage",
    "wrong-usage": "21 output tokens where 20 were asked for",
    "error-event": "within the stream: out of memory",
}
# One of each kind is quick to see; `make check` tries its relatives as well.
RELATIVES = "silent drip http-500 http-503 no-http no-length empty endless".split()
TRIED = [pytest.param(fault, marks=pytest.mark.check if fault in RELATIVES else ()) for fault in ERRORS]
HARMLESS = "utf8 two-per-chunk two-per-packet keeps-no-connection".split()
# test_cache_mistakes.py, tests/experiments/test_serving_notebook.py, and the trial before a run in test_serving.py
ELSEWHERE = "cache-misreports cache-silent cache-shared-late retokenises loses-cache counts-twice".split()


def test_every_fault_of_the_server_has_a_test():
    of_the_cache = {"cache-shared-late", "loses-cache", "counts-twice"}
    assert sorted({*FAULTS} | of_the_cache) == sorted([*ERRORS, *HARMLESS, *ELSEWHERE])


@pytest.mark.check
def test_the_clients_memory_is_its_own(fresh):
    """The peak that getrusage has of a process begins with its parent's: half a gigabyte here."""
    held = bytearray(b"x" * 600_000_000)
    _, report = parallel.run(fresh.url, make_calls(fresh.url, 2), "completions", concurrency=2, timeout_s=5)
    assert report["peak_memory_bytes"] < len(held) / 2


@pytest.mark.parametrize("fault", TRIED)
def test_a_fault_is_named_and_the_others_go_on(fresh, fault):
    faulty = 1 if fault == "endless" else 3
    calls = make_calls(fresh.url, faulty, fault) + make_calls(fresh.url, 6, first=faulty + 1)
    began = time.monotonic()
    rows, report = parallel.run(fresh.url, calls, "completions", concurrency=4, timeout_s=1.0)
    assert time.monotonic() - began < 10, (
        "nothing hangs: a request has 1 s, and a process takes its time to start on a busy machine"
    )
    accounted(rows, calls)
    assert all(ERRORS[fault] in row["error"] for row in rows[:faulty]), rows[0]["error"]
    assert fault not in ("stalls", "drip") or "; 0 pieces" not in rows[0]["error"]
    assert all(map(whole, rows[faulty:])), [row["error"] for row in rows]
    assert report["peak_memory_bytes"] < 5e8


@pytest.mark.parametrize("fault", HARMLESS)
def test_what_is_odd_but_allowed_is_counted_right(fresh, fault):
    calls = make_calls(fresh.url, 3, fault) + make_calls(fresh.url, 3, first=4)
    rows, _ = parallel.run(fresh.url, calls, "completions", concurrency=3, timeout_s=5)
    assert all(whole(row) for row in accounted(rows, calls)), [row["error"] for row in rows]
    chunks = TOKENS // 2 if fault == "two-per-chunk" else TOKENS
    assert all(row["chunks"] == chunks for row in rows[:3])
    if fault == "two-per-chunk":
        at, texts = rows[0]["pieces"]["at"], rows[0]["pieces"]["texts"]
        assert texts == [" two tokens"] * chunks and len(at) == chunks and "itl_p50_s" not in rows[0]
    else:
        assert all(row["itl_max_s"] > 0 and "pieces" not in row for row in rows)
    if fault == "utf8":
        assert rows[0]["text"] == " é \ufffd." + " é" * (TOKENS - 2)
    if fault == "two-per-packet":
        gaps = np.diff(rows[0]["arrivals_s"])
        assert (gaps[::2] == 0).all() and gaps[1::2].min() > 0, "both have the packet's moment"


def test_a_server_that_is_not_there_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = "http://127.0.0.1:%d" % taken.getsockname()[1]
    calls = make_calls(url, 4)
    rows, report = parallel.run(url, calls, "completions", concurrency=2, timeout_s=2)
    assert all("ConnectionRefusedError: Connection refused" in row["error"] for row in accounted(rows, calls))
    assert report["read_lag_p50_s"] is None


def test_a_server_without_a_way_there_is_named(truth, monkeypatch):
    monkeypatch.setattr(connection, "addresses", lambda url: [(socket.AF_INET, ("255.255.255.255", 9))])
    rows, _ = here(truth.url, make_calls(truth.url, 3), concurrency=2)
    assert all("Permission denied" in row["error"] or "unreachable" in row["error"] for row in rows), rows


@pytest.mark.parametrize(
    "url, why",
    [
        ("http://no-such-host.invalid", "is not known"),
        ("localhost:8000", "must be like"),
        ("ftp://localhost", "must be like"),
        ("http://", "must be like"),
    ],
)
def test_an_address_that_cannot_be_is_refused(url, why):
    with pytest.raises(ValueError, match=why):
        parallel.run(url, make_calls("http://localhost"), "completions")


def test_a_server_that_is_killed_while_it_streams():
    server = Truth(itl_s=0.02)
    calls = make_calls(server.url, 10, tokens=40) + make_calls(server.url, 2, "silent", first=11)
    calls = calls[-2:] + calls[:-2]
    calls = [records.Call(k + 1, c.payload, None, 3, c.new_tokens) for k, c in enumerate(calls)]
    timer = threading.Timer(1.3, server.process.kill)
    try:
        timer.start()
        rows, _ = here(server.url, calls, concurrency=4, timeout_s=3)
    finally:
        timer.cancel()
        server.end()
    assert [row["request"] for row in rows] == list(range(1, 13))
    assert all("Connection" in row["error"] for row in rows if row["error"])
    assert any("refused" in row["error"] for row in rows)
    assert any("closed" in row["error"] or "reset" in row["error"] for row in rows)


def test_https_to_a_server_without_it_is_named(truth):
    url = truth.url.replace("http", "https")
    calls = make_calls(url, 3)
    # That server waits for the rest of a request.
    rows, report = parallel.run(url, calls, "completions", concurrency=3, timeout_s=0.5)
    assert all(
        "TimeoutError: no TLS connection within 0.5 s" in row["error"] for row in accounted(rows, calls)
    ), rows[0]["error"]
    assert not report["kernel_stamps"]

    def refuses(peer, number):
        peer.recv(4096)
        peer.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    with tiny(refuses) as (url, _):
        url = url.replace("http", "https")
        rows, _ = here(url, make_calls(url, 2))
    assert all("SSL" in row["error"] for row in rows), rows[0]["error"]


def test_no_more_files_is_a_failure_of_one_request_not_of_the_run(truth, monkeypatch):
    real, made = socket.socket, []

    def scarce(*arguments, **more):
        made.append(1)
        if len(made) == 2:
            raise OSError(24, "Too many open files")
        return real(*arguments, **more)

    loop = client.Client(truth.url, make_calls(truth.url, 3), "completions", 3, 5.0)
    monkeypatch.setattr(connection.socket, "socket", scarce)
    rows = loop.run(time.monotonic())
    assert ["Too many open files" in row["error"] for row in rows] == [False, True, False] and whole(rows[0])
    assert whole(rows[2])


def test_an_answer_without_end_is_cut_off(fresh, monkeypatch):
    monkeypatch.setattr(connection, "ANSWER_BYTES", 1 << 20)
    taken = []

    class Counting(client.Client):
        def _finish(self, answer, error=""):
            taken.append(answer.bytes_held)
            super()._finish(answer, error)

    rows, _ = here(fresh.url, make_calls(fresh.url, 2, "endless"), kind=Counting, timeout_s=10)
    assert all("more than 1048576 bytes and no end" in row["error"] for row in rows)
    assert max(taken) < 3 << 20


def test_single_bytes_count_with_what_they_cost(fresh, monkeypatch):
    monkeypatch.setattr(connection, "ANSWER_BYTES", 1 << 14)
    rows, _ = here(fresh.url, make_calls(fresh.url, 1, "drip"), timeout_s=2)
    assert "no end" in rows[0]["error"], "some dozens of bytes, each with what a read costs"


@pytest.mark.check
def test_a_long_run_lets_go_of_what_it_has_read(fresh, monkeypatch):
    monkeypatch.setattr(results, "HELD_BYTES", 20000)
    held = []

    class Watched(client.Client):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.results.digest = self.digest

        def digest(self):
            held.append((self.results.held, len(self.results.done)))
            results.Results.digest(self.results)
            ended = [answer.bytes_held for answer in self.underway if answer.stream is None]
            held.append((self.results.held, sum(ended)))

    calls = make_calls(fresh.url, 1, "silent") + make_calls(fresh.url, 60, first=2)
    rows, _ = here(fresh.url, calls, concurrency=3, timeout_s=1.9, kind=Watched)
    accounted(rows, calls)
    assert all(map(whole, rows[1:])) and len(held) >= 4, "read during the run, and at its end"
    assert held[0][1] < 60 and all(left == (0, 0) for left in held[1::2]), (
        "nothing is kept, though the first request is still under way"
    )


@pytest.mark.check
def test_a_thousand_streams_at_once():
    server = Truth(ttft_s=0.5, itl_s=0.1)
    try:
        calls = make_calls(server.url, 1000, tokens=10)
        rows, report = parallel.run(server.url, calls, "completions", concurrency=1000, timeout_s=30)
        log = server.log()
    finally:
        server.end()
    assert all(whole(row, 10) for row in accounted(rows, calls)), [
        row["error"] for row in rows if row["error"]
    ][:3]
    assert len(log) == 1000 and overlap(log) == 1000
    assert 1e7 < report["peak_memory_bytes"] < 1e9
