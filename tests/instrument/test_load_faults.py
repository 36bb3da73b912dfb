"""What can go wrong between the load client and a server, and what memory an answer may take."""

import socket
import time

import pytest
from loads import TOKENS, Truth, accounted, here, make_calls, overlap, tiny, whole

from bench.instrument.load import client, connection, parallel

pytest_plugins = ["loads"]
pytestmark = [pytest.mark.usefixtures("watchdog"), pytest.mark.timing]


ERRORS = {
    "reset": "ConnectionResetError: Connection reset by peer",
    "stalls": "TimeoutError: no complete answer within 1 s; ",
    "truncated": "the server closed the connection before the answer was complete",
    "wrong-usage": "21 output tokens where 20 were asked for",
}


@pytest.mark.check
def test_the_clients_memory_is_its_own(fresh):
    """The peak that getrusage has of a process begins with its parent's: half a gigabyte here."""
    held = bytearray(b"x" * 600_000_000)
    _, report = parallel.run(fresh.url, make_calls(fresh.url, 2), "completions", concurrency=2, timeout_s=5)
    assert report["peak_memory_bytes"] < len(held) / 2


@pytest.mark.parametrize("fault", ERRORS)
def test_a_fault_is_named_and_the_others_go_on(fresh, fault):
    calls = make_calls(fresh.url, 3, fault) + make_calls(fresh.url, 6, first=4)
    began = time.monotonic()
    rows, report = parallel.run(fresh.url, calls, "completions", concurrency=4, timeout_s=1.0)
    assert time.monotonic() - began < 10, (
        "nothing hangs: a request has 1 s, and a process takes its time to start on a busy machine"
    )
    accounted(rows, calls)
    assert all(ERRORS[fault] in row["error"] for row in rows[:3]), rows[0]["error"]
    assert fault != "stalls" or "; 0 pieces" not in rows[0]["error"]
    assert all(map(whole, rows[3:])), [row["error"] for row in rows]
    assert report["peak_memory_bytes"] < 5e8


def test_an_answer_that_its_connection_ends_is_counted_right(fresh):
    calls = make_calls(fresh.url, 3, "keeps-no-connection") + make_calls(fresh.url, 3, first=4)
    rows, _ = parallel.run(fresh.url, calls, "completions", concurrency=3, timeout_s=5)
    assert all(whole(row) and row["chunks"] == TOKENS for row in accounted(rows, calls)), rows[0]["error"]


def test_a_server_that_is_not_there_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = "http://127.0.0.1:%d" % taken.getsockname()[1]
    calls = make_calls(url, 4)
    rows, report = parallel.run(url, calls, "completions", concurrency=2, timeout_s=2)
    assert all("ConnectionRefusedError: Connection refused" in row["error"] for row in accounted(rows, calls))
    assert report["read_lag_p50_s"] is None


@pytest.mark.parametrize(
    "url, why",
    [
        ("http://no-such-host.invalid", "is not known"),
        ("http://", "must be like"),
    ],
)
def test_an_address_that_cannot_be_is_refused(url, why):
    with pytest.raises(ValueError, match=why):
        parallel.run(url, make_calls("http://localhost"), "completions")


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
