"""The load client against a server whose times are known: real sockets, real processes, and everything that can go wrong on the way."""

import contextlib
import json
import os
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import urllib.request

import numpy as np
import pytest

from bench.instrument import reference_server
from bench.instrument.load import client as client_load
from bench.instrument.load import parallel, protocols, schedule
from bench.paths import ROOT

pytestmark = [pytest.mark.usefixtures("watchdog"), pytest.mark.timing]

TOKENS = 20
TTFT_S, ITL_S = 0.02, 0.002
EVENT = b'data: {"choices": [{"index": 0, "text": "a"}]}\n\n'
USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": %d}}\n\n'


class Truth:
    """The ground-truth server in a process of its own."""

    def __init__(self, ttft_s=TTFT_S, itl_s=ITL_S):
        command = [
            sys.executable,
            "-m",
            "bench.instrument.reference_server",
            "--ttft-s",
            str(ttft_s),
            "--itl-s",
            str(itl_s),
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        self.url = self.process.stdout.readline().strip()

    def told(self):
        """What it did since it was asked last: [(moment of the request, moments of the tokens)], s."""
        with urllib.request.urlopen(f"{self.url}/truth") as answer:
            return [(each["arrived_s"], np.array(each["sent_ns"]) * 1e-9) for each in json.load(answer)]

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture(scope="module")
def truth():
    server = Truth()
    yield server
    server.end()


@pytest.fixture
def fresh(truth):
    """The same server with nothing told yet."""
    truth.told()
    return truth


def asked(url, n=1, fault="", at_s=None, first=1, tokens=TOKENS, dialect="completions", prompt_tokens=3):
    """`n` calls with a prompt of three tokens, numbered from `first`."""
    prompt = protocols.Prompt((1, 2, 3), "a b c", tokens)
    payload = protocols.request(dialect, url + (f"/fault/{fault}" if fault else ""), prompt, "m")
    return [
        client_load.Call(first + k, payload, None if at_s is None else float(at_s[k]), prompt_tokens, tokens)
        for k in range(n)
    ]


def here(url, calls, concurrency=1, timeout_s=5.0, kind=client_load.Client, dialect="completions"):
    """(rows, client) of a run in this process."""
    client = kind(url, calls, dialect, concurrency, timeout_s)
    return client.run(client_load.clock() + 0.01), client


def whole(row, tokens=TOKENS):
    """Whether a row is that of a request that went well."""
    return row["error"] == "" and row["output_tokens"] == tokens and 0 < row["ttft_s"] <= row["e2e_s"]


def accounted(rows, calls):
    """scheduled = finished + failed: a row for every call, in order, with times or an error, never both."""
    assert [row["request"] for row in rows] == [call.number for call in calls]
    assert all(("ttft_s" in row) != bool(row["error"]) for row in rows)
    return rows


def paired(rows, told):
    """[(row, what the server did for it)], by the stamp of the first token, which every event carries."""
    known = {round(sent[0] * 1e6): (arrived, sent) for arrived, sent in told}
    return [(row, known[round((row["arrivals_s"][0] - row["delays_s"][0]) * 1e6)]) for row in rows]


def overlap(told):
    """The largest number of requests that the server had at once."""
    changes = sorted([(arrived, 1) for arrived, _ in told] + [(sent[-1], -1) for _, sent in told])
    return max(np.cumsum([change for _, change in changes]))


@contextlib.contextmanager
def tiny(serve, tls=None):
    """A server that calls `serve(connection, number of the connection)` in a thread for each connection; yields its port and how many came."""
    listening, came = socket.create_server(("127.0.0.1", 0)), []

    def one(connection):
        with contextlib.suppress(OSError, ssl.SSLError), connection:
            first = connection.recv(1, socket.MSG_PEEK)  # the client looks first whether anybody is there
            if first:
                came.append(1)
                serve(tls.wrap_socket(connection, server_side=True) if tls else connection, len(came))

    def accept():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=one, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listening.getsockname()[1], came
    finally:
        listening.close()


def request_of(connection):
    """The bytes of one request, or of what there was of it when the client went away."""
    data, whole = bytearray(), 0
    while not whole or len(data) < whole:
        more = connection.recv(1 << 18)
        if not more:
            break
        data += more
        if not whole and b"\r\n\r\n" in data:
            head = bytes(data).partition(b"\r\n\r\n")[0].lower()
            whole = len(head) + 4 + int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
    return bytes(data)


def stream(tokens=TOKENS):
    """A whole answer."""
    return (
        reference_server.STREAMED
        + b"".join(map(reference_server.chunk, [EVENT] * tokens + [USAGE % tokens, b"data: [DONE]\n\n"]))
        + reference_server.LAST
    )


def hang_up(connection):
    """Close with a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


# --- closed loop -----------------------------------------------------------------------------------------------------------------------


def test_a_closed_loop_answers_all_and_agrees_with_the_server(fresh):
    calls = asked(fresh.url, 15)
    rows, about = parallel.run(fresh.url, calls, "completions", concurrency=3, timeout_s=10)
    told = fresh.told()
    assert all(whole(row) for row in accounted(rows, calls)) and len(told) == 15
    assert all(
        row["chunks"] == TOKENS and row["prompt_tokens"] == 3 and row["finish_reason"] == "length"
        for row in rows
    )
    assert overlap(told) == 3, "as many at once as there are places, never more"
    assert sum(not np.isnan(row["connect_s"]) for row in rows) == 3, "connections are used again"
    pairs = paired(rows, told)
    assert np.median(np.concatenate([row["delays_s"] for row in rows])) < 0.001
    assert all((row["delays_s"] > -1e-5).all() and len(row["delays_s"]) == TOKENS for row in rows), (
        "nothing is there before it is sent"
    )
    assert abs(np.median([row["ttft_s"] - (sent[0] - arrived) for row, (arrived, sent) in pairs])) < 0.001
    assert abs(np.median([row["e2e_s"] - (sent[-1] - arrived) for row, (arrived, sent) in pairs])) < 0.001
    assert abs(np.median([row["itl_p50_s"] - np.median(np.diff(sent)) for row, (_, sent) in pairs])) < 0.001
    assert abs(np.median([row["sent_s"] - arrived for row, (arrived, _) in pairs])) < 0.001, "one clock"
    assert (
        about["kernel_stamps"]
        and about["processes"] == 1
        and about["peak_memory_bytes"] > 1e6
        and about["read_lag_p50_s"] >= 0
    )


def test_a_busy_client_still_knows_when_a_token_was_there(fresh):
    class Busy(client_load.Client):
        def _read(self, stream):
            time.sleep(0.0015)  # less than a gap: what one read takes has one stamp
            super()._read(stream)

    rows, client = here(fresh.url, asked(fresh.url, 3), kind=Busy)
    assert all(map(whole, rows)) and np.median(client.fared()["read_lag_s"]) > 0.0015
    assert np.median(np.concatenate([row["delays_s"] for row in rows])) < 0.001


def test_chat_is_streamed_too(fresh):
    calls = asked(fresh.url, 3, dialect="chat", prompt_tokens=None)
    rows, _ = here(fresh.url, calls, dialect="chat")
    assert all(whole(row) and row["chunks"] == TOKENS for row in rows)
    assert np.median([row["ttft_s"] for row in rows]) > 0.9 * TTFT_S, (
        "the role, which comes at once, is no token"
    )


def test_several_processes_share_the_calls_and_one_clock(fresh):
    calls = asked(fresh.url, 9)
    rows, about = parallel.run(fresh.url, calls, "completions", concurrency=5, timeout_s=10, processes=2)
    told = fresh.told()
    assert about["processes"] == 2 and all(whole(row) for row in accounted(rows, calls)) and len(told) == 9
    assert overlap(told) <= 5 and sum(not np.isnan(row["connect_s"]) for row in rows) == 5
    assert np.median(np.abs([row["sent_s"] - arrived for row, (arrived, _) in paired(rows, told)])) < 0.001
    begun = sorted(row["sent_s"] for row in rows)[:5]
    assert begun[-1] - begun[0] < TTFT_S, "they begin together"


def test_more_processes_than_calls_and_no_calls_at_all(truth):
    rows, about = parallel.run(truth.url, asked(truth.url, 1), "completions", concurrency=4, processes=3)
    assert whole(rows[0]) and about["processes"] == 1
    assert parallel.run(truth.url, [], "completions")[0] == []


def test_a_lost_process_of_the_client_is_named(truth):
    with pytest.raises(RuntimeError, match="process of the load client was lost: OSError"):
        parallel.run(truth.url, asked(truth.url), "completions", cores={4096})


# --- open loop -------------------------------------------------------------------------------------------------------------------------


def test_arrivals_follow_the_rate_and_the_seed():
    at = schedule.poisson(8, 4000, seed=3)
    assert (at == schedule.poisson(8, 4000, seed=3)).all() and (at != schedule.poisson(8, 4000, seed=4)).any()
    gaps = np.diff(at, prepend=0)
    assert (
        gaps.min() > 0
        and gaps.mean() == pytest.approx(1 / 8, rel=0.1)
        and gaps.std() == pytest.approx(1 / 8, rel=0.1)
    )
    assert schedule.constant(4, 3).tolist() == [0, 0.25, 0.5]


@pytest.mark.parametrize(
    "at_s", [schedule.poisson(60, 30, seed=1), schedule.constant(60, 30)], ids=["poisson", "constant"]
)
def test_an_open_loop_keeps_its_schedule(fresh, at_s):
    calls = asked(fresh.url, 30, at_s=at_s)[::-1]  # the order of the calls is not that of the schedule
    calls = [client_load.Call(k + 1, call.payload, call.at_s, 3, TOKENS) for k, call in enumerate(calls)]
    rows, about = parallel.run(fresh.url, calls, "completions", timeout_s=10)
    assert all(whole(row) for row in accounted(rows, calls))
    arrived = sorted(arrived for arrived, _ in fresh.told())
    assert np.median(np.abs(np.diff(arrived) - np.diff(at_s))) < 0.002
    assert 0 <= about["late_p50_s"] < 0.001 and min(row["late_s"] for row in rows) >= 0
    due = np.array([row["sent_s"] - row["late_s"] - np.nan_to_num(row["connect_s"]) for row in rows]) - [
        call.at_s for call in calls
    ]
    assert np.ptp(due) < 0.002, "every request counts from the moment it was due"


def test_a_late_client_blames_nobody_and_hides_nothing(fresh):
    class Sleeper(client_load.Client):
        slept = False

        def _begin(self):
            if not self.slept:
                self.slept = True
                time.sleep(0.3)
            super()._begin()

    at_s = [0.0, 0.1, 0.2]
    rows, client = here(fresh.url, asked(fresh.url, 3, at_s=at_s), kind=Sleeper)
    for row, at in zip(rows, at_s):
        assert 0.3 - 0.02 - at < row["late_s"] < row["sent_s"] - client.start - at < 1.0
        assert (
            row["ttft_s"] == pytest.approx(row["arrivals_s"][0] - client.start - at)
            and row["ttft_s"] > row["late_s"] + 0.9 * TTFT_S
        )
        assert row["e2e_s"] == pytest.approx(row["arrivals_s"][-1] - client.start - at)


def test_an_open_loop_is_not_held_back_by_a_server_that_is_silent(fresh):
    at_s = schedule.constant(50, 20)
    calls = asked(fresh.url, 10, "silent", at_s[:10]) + asked(fresh.url, 10, at_s=at_s[10:], first=11)
    rows, about = parallel.run(fresh.url, calls, "completions", concurrency=1, timeout_s=0.8)
    accounted(rows, calls)
    assert all("TimeoutError" in row["error"] for row in rows[:10]) and all(map(whole, rows[10:]))
    assert max(row["late_s"] for row in rows) < 0.05
    assert max(row["ttft_s"] for row in rows[10:]) < 0.4


# --- faults ----------------------------------------------------------------------------------------------------------------------------

ERRORS = {
    "reset": "ConnectionResetError: Connection reset by peer", "silent": "TimeoutError: no complete answer within 1 s; 0 pieces",
    "stalls": "TimeoutError: no complete answer within 1 s; ", "drip": "TimeoutError: no complete answer within 1 s; ",
    "http-429": "HTTP 429: refused with 429", "http-500": "HTTP 500: refused with 500", "http-503": "HTTP 503: refused with 503",
    "malformed": "an event could not be read (JSONDecodeError", "truncated": "the server closed the connection before the answer was complete",
    "no-http": "the answer is no HTTP: b'SSH", "no-length": "a chunk has no length", "empty": "The stream was empty", "endless": "bytes and no end",
    "no-usage": "did not report usage", "wrong-usage": "21 output tokens where 20 were asked for", "error-event": "within the stream: out of memory",
}  # fmt: skip
HARMLESS = "utf8 two-per-chunk two-per-packet keeps-no-connection".split()


def test_every_fault_of_the_server_has_a_test():
    assert sorted(reference_server.FAULTS) == sorted([*ERRORS, *HARMLESS])


def test_the_clients_memory_is_its_own(fresh):
    """What getrusage calls the peak of a process begins with that of the one that started it: half a gigabyte here."""
    held = bytearray(b"x" * 600_000_000)
    _, about = parallel.run(fresh.url, asked(fresh.url, 2), "completions", concurrency=2, timeout_s=5)
    assert about["peak_memory_bytes"] < len(held) / 2


@pytest.mark.parametrize("fault", ERRORS)
def test_a_fault_is_named_and_the_others_go_on(fresh, fault):
    faulty = 1 if fault == "endless" else 3
    calls = asked(fresh.url, faulty, fault) + asked(fresh.url, 6, first=faulty + 1)
    began = time.monotonic()
    rows, about = parallel.run(fresh.url, calls, "completions", concurrency=4, timeout_s=1.0)
    assert time.monotonic() - began < 1.0 + 1.5, (
        "nothing hangs beyond its patience (a process needs half a second to start)"
    )
    accounted(rows, calls)
    assert all(ERRORS[fault] in row["error"] for row in rows[:faulty]), rows[0]["error"]
    assert fault not in ("stalls", "drip") or "; 0 pieces" not in rows[0]["error"]
    assert all(map(whole, rows[faulty:])), [row["error"] for row in rows]
    assert about["peak_memory_bytes"] < 5e8


@pytest.mark.parametrize("fault", HARMLESS)
def test_what_is_odd_but_allowed_is_counted_right(fresh, fault):
    calls = asked(fresh.url, 3, fault) + asked(fresh.url, 3, first=4)
    rows, _ = parallel.run(fresh.url, calls, "completions", concurrency=3, timeout_s=5)
    assert all(whole(row) for row in accounted(rows, calls)), [row["error"] for row in rows]
    events = TOKENS // 2 if fault == "two-per-chunk" else TOKENS
    assert all(row["chunks"] == events for row in rows[:3])
    if fault == "two-per-chunk":
        at, texts = rows[0]["pieces"]
        assert texts == [" two tokens"] * events and len(at) == events and "itl_p50_s" not in rows[0]
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
    calls = asked(url, 4)
    rows, about = parallel.run(url, calls, "completions", concurrency=2, timeout_s=2)
    assert all("ConnectionRefusedError: Connection refused" in row["error"] for row in accounted(rows, calls))
    assert about["read_lag_p50_s"] is None


def test_a_server_without_a_way_there_is_named(truth, monkeypatch):
    monkeypatch.setattr(client_load, "address", lambda url: (socket.AF_INET, ("255.255.255.255", 9)))
    rows, _ = here(truth.url, asked(truth.url, 3), concurrency=2)
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
        parallel.run(url, asked("http://localhost"), "completions")


def test_a_server_that_is_killed_while_it_streams():
    server = Truth(itl_s=0.02)
    calls = asked(server.url, 10, tokens=40) + asked(server.url, 2, "silent", first=11)
    calls = calls[-2:] + calls[:-2]
    timer = threading.Timer(1.3, server.process.kill)
    try:
        timer.start()
        rows, _ = parallel.run(
            server.url,
            [client_load.Call(k + 1, c.payload, None, 3, c.new_tokens) for k, c in enumerate(calls)],
            "completions",
            concurrency=4,
            timeout_s=3,
        )
    finally:
        timer.cancel()
        server.end()
    assert [row["request"] for row in rows] == list(range(1, 13))
    assert all("Connection" in row["error"] for row in rows if row["error"])
    assert any("refused" in row["error"] for row in rows) and any(
        "closed" in row["error"] or "reset" in row["error"] for row in rows
    )


def test_https_to_a_server_without_it_is_named(truth):
    url = truth.url.replace("http", "https")
    calls = asked(url, 3)
    rows, about = parallel.run(
        url, calls, "completions", concurrency=3, timeout_s=0.5
    )  # that server waits for the rest of a request
    assert all(
        "TimeoutError: no TLS connection within 0.5 s" in row["error"] for row in accounted(rows, calls)
    ), rows[0]["error"]
    assert not about["kernel_stamps"]

    def refuses(connection, number):
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    with tiny(refuses) as (port, _):
        url = f"https://127.0.0.1:{port}"
        rows, _ = here(url, asked(url, 2))
    assert all("SSL" in row["error"] for row in rows), rows[0]["error"]


def test_no_more_files_is_a_failure_of_one_request_not_of_the_run(truth, monkeypatch):
    real, made = socket.socket, []

    def scarce(*about, **more):
        made.append(1)
        if len(made) == 2:
            raise OSError(24, "Too many open files")
        return real(*about, **more)

    client = client_load.Client(truth.url, asked(truth.url, 3), "completions", 3, 5.0)
    monkeypatch.setattr(client_load.socket, "socket", scarce)
    rows = client.run(client_load.clock())
    assert (
        ["Too many open files" in row["error"] for row in rows] == [False, True, False]
        and whole(rows[0])
        and whole(rows[2])
    )


# --- connections -----------------------------------------------------------------------------------------------------------------------


def test_an_idle_connection_that_was_closed_is_replaced_once():
    def serve(connection, number):
        request_of(connection)
        connection.sendall(stream())
        if number == 1:
            request_of(connection)  # the second request is never answered here
            hang_up(connection)

    with tiny(serve) as (port, came):
        url = f"http://127.0.0.1:{port}"
        rows, _ = here(url, asked(url, 2))
    assert all(map(whole, rows)) and len(came) == 2
    assert rows[1]["connect_s"] > 0 and rows[1]["sent_s"] > rows[0]["sent_s"] + rows[0]["e2e_s"]


def test_an_idle_connection_that_was_reset_unseen_is_replaced():
    class Slow(client_load.Client):
        def _begin(self):
            time.sleep(0.05)  # the reset comes between two looks: writing tells it
            super()._begin()

    def serve(connection, number):
        request_of(connection)
        connection.sendall(stream())
        time.sleep(0.02)
        hang_up(connection)

    with tiny(serve) as (port, came):
        url = f"http://127.0.0.1:{port}"
        rows, _ = here(url, asked(url, 3), kind=Slow)
    assert all(map(whole, rows)) and len(came) == 3


def test_a_request_counts_as_sent_where_it_was_served():
    def serve(connection, number):
        request_of(connection)
        connection.sendall(stream())
        if number == 1:
            request_of(connection)
            time.sleep(0.2)
            hang_up(connection)

    with tiny(serve) as (port, _):
        url = f"http://127.0.0.1:{port}"
        rows, _ = here(url, asked(url, 2))
    assert rows[1]["ttft_s"] < 0.1 and rows[1]["connect_s"] > 0.19, "what the lost connection took is set-up"


@pytest.mark.parametrize("answered", [b"", reference_server.STREAMED + reference_server.chunk(EVENT)])
def test_a_fresh_connection_or_a_begun_answer_is_not_tried_again(answered):
    def serve(connection, number):
        if answered and number == 1:
            request_of(connection)
            connection.sendall(stream())  # the next answer on this open connection is begun and lost
        request_of(connection)
        connection.sendall(answered)
        time.sleep(0.05)
        hang_up(connection)

    with tiny(serve) as (port, came):
        url = f"http://127.0.0.1:{port}"
        rows, _ = here(url, asked(url, 2))
    assert [row["error"] for row in rows] == [
        "" if answered else "ConnectionResetError: Connection reset by peer",
        "ConnectionResetError: Connection reset by peer",
    ]
    assert len(came) == (1 if answered else 2)


def test_a_silent_open_connection_is_not_tried_again(fresh):
    rows, _ = here(fresh.url, asked(fresh.url) + asked(fresh.url, 1, "silent", first=2), timeout_s=0.5)
    assert (
        whole(rows[0]) and "TimeoutError" in rows[1]["error"] and rows[1]["connect_s"] != rows[1]["connect_s"]
    )


def test_a_connection_that_the_server_closes_while_idle_is_let_go():
    def serve(connection, number):
        request_of(connection)
        connection.sendall(stream())

    with tiny(serve) as (port, came):
        url = f"http://127.0.0.1:{port}"
        rows, client = here(url, asked(url, 3, at_s=[0, 0.1, 0.2]))
    assert all(map(whole, rows)) and len(came) == 3 and not any(np.isnan(row["connect_s"]) for row in rows)
    assert client.idle == [] and not client.selector.get_map()


def test_a_long_prompt_is_sent_whole():
    got = []

    def serve(connection, number):
        time.sleep(0.1)  # until then the kernel takes a part of it
        got.append(request_of(connection))
        connection.sendall(stream())

    with tiny(serve) as (port, _):
        url = f"http://127.0.0.1:{port}"
        calls = asked(url)
        calls[0].payload = protocols.request(
            "completions", url, protocols.Prompt(tuple(range(10**6)), "", TOKENS), "m"
        )
        rows, _ = here(url, calls)
    assert whole(rows[0]) and got == [calls[0].payload]


def test_being_woken_for_nothing_is_no_failure(fresh):
    class Nervous(client_load.Client):
        def _read(self, stream):
            stream.sock = self.wrap(stream.sock)
            super()._read(stream)

        class wrap:
            def __init__(self, sock):
                self.sock = getattr(sock, "sock", sock)
                self.recvmsg = (
                    self.nothing
                    if np.random.default_rng(self.sock.fileno() + time.monotonic_ns()).random() < 0.2
                    else self.sock.recvmsg
                )

            def nothing(self, *_):
                raise BlockingIOError(11, "Resource temporarily unavailable")

            def __getattr__(self, name):
                return getattr(self.sock, name)

    rows, _ = here(fresh.url, asked(fresh.url, 4), concurrency=2, kind=Nervous)
    assert all(map(whole, rows)), rows[0]["error"]


# --- memory ----------------------------------------------------------------------------------------------------------------------------


def test_an_answer_without_end_is_cut_off(fresh, monkeypatch):
    monkeypatch.setattr(client_load, "ANSWER_BYTES", 1 << 20)
    taken = []

    class Counting(client_load.Client):
        def _finish(self, answer, error=""):
            taken.append(answer.bytes_held)
            super()._finish(answer, error)

    rows, _ = here(fresh.url, asked(fresh.url, 2, "endless"), kind=Counting, timeout_s=10)
    assert all("more than 1048576 bytes and no end" in row["error"] for row in rows)
    assert max(taken) < 3 << 20


def test_single_bytes_count_with_what_they_cost(fresh, monkeypatch):
    monkeypatch.setattr(client_load, "ANSWER_BYTES", 1 << 14)
    rows, _ = here(fresh.url, asked(fresh.url, 1, "drip"), timeout_s=2)
    assert "no end" in rows[0]["error"], "some dozens of bytes, each with what a read costs"


def test_a_long_run_lets_go_of_what_it_has_read(fresh, monkeypatch):
    monkeypatch.setattr(client_load, "HELD_BYTES", 20000)
    held = []

    class Watched(client_load.Client):
        def _digest(self):
            held.append((self.held, len(self.done)))
            super()._digest()
            held.append(
                (self.held, sum(answer.bytes_held for answer in self.underway if answer.stream is None))
            )

    calls = asked(fresh.url, 1, "silent") + asked(fresh.url, 60, first=2)
    rows, _ = here(fresh.url, calls, concurrency=3, timeout_s=1.9, kind=Watched)
    accounted(rows, calls)
    assert all(map(whole, rows[1:])) and len(held) >= 4, "read during the run, and at its end"
    assert held[0][1] < 60 and all(left == (0, 0) for left in held[1::2]), (
        "nothing is kept, though the first request is still under way"
    )


def test_a_thousand_streams_at_once():
    server = Truth(ttft_s=0.5, itl_s=0.1)
    try:
        calls = asked(server.url, 1000, tokens=10)
        rows, about = parallel.run(server.url, calls, "completions", concurrency=1000, timeout_s=30)
        told = server.told()
    finally:
        server.end()
    assert all(whole(row, 10) for row in accounted(rows, calls)), [
        row["error"] for row in rows if row["error"]
    ][:3]
    assert len(told) == 1000 and overlap(told) == 1000
    assert 1e7 < about["peak_memory_bytes"] < 1e9


# --- TLS -------------------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate of 127.0.0.1 with its key, in one file."""
    folder = tmp_path_factory.mktemp("tls")
    key, made = folder / "key.pem", folder / "made.pem"
    about = [
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
    ]
    try:
        subprocess.run(
            ["openssl", "req", "-x509", *about, "-keyout", key, "-out", made], check=True, capture_output=True
        )
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    made.write_text(made.read_text() + key.read_text())
    return made


def slowly(connection, number):
    """Answers over TLS until the client goes: the first half event by event, the second in one record that no single read holds."""
    while request_of(connection):
        connection.sendall(reference_server.STREAMED)
        for _ in range(10):
            connection.sendall(reference_server.chunk(EVENT))
            time.sleep(0.005)
        padding = b": " + b"x" * 14000 + b"\n\n"
        rest = [EVENT] * 10 + [padding, USAGE % TOKENS, b"data: [DONE]\n\n"]
        connection.sendall(b"".join(map(reference_server.chunk, rest)) + reference_server.LAST)


@pytest.fixture
def secure(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with tiny(slowly, context) as (port, came):
        yield f"https://127.0.0.1:{port}", came


def test_tls_reads_all_of_it(secure, certificate, monkeypatch):
    url, came = secure
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    calls = asked(url, 6)
    rows, about = parallel.run(url, calls, "completions", concurrency=2, timeout_s=5)
    assert all(whole(row) and row["chunks"] == TOKENS for row in accounted(rows, calls)), rows[0]["error"]
    assert not about["kernel_stamps"] and about["read_lag_p50_s"] is None and len(came) == 2
    assert all(row["itl_p50_s"] < 0.02 and row["itl_max_s"] > 0.004 for row in rows)


def test_tls_with_a_stranger_is_refused_and_named(secure):
    url, _ = secure
    calls = asked(url, 2)
    rows, _ = parallel.run(url, calls, "completions", timeout_s=5)
    assert all("CERTIFICATE_VERIFY_FAILED" in row["error"] for row in accounted(rows, calls)), rows[0][
        "error"
    ]


def test_tls_that_fails_before_hands_are_shaken_fails_one_request(truth):
    class Context:
        def wrap_socket(self, sock, **about):
            sock.detach()
            raise ConnectionResetError(104, "Connection reset by peer")

    client = client_load.Client(truth.url, asked(truth.url, 2), "completions", 1, 2.0)
    client.tls = Context()
    assert ["reset by peer" in row["error"] for row in client.run(client_load.clock())] == [True, True]


def test_the_client_ends_with_its_caller(fresh):
    code = f"from bench import load\nload.run({fresh.url!r}, [load.Call(1, {asked(fresh.url, 1, 'silent')[0].payload!r}, None, 3, 20)], 'completions', timeout_s=60)"
    caller = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    children = []
    while not children:
        time.sleep(0.1)
        children = subprocess.run(
            ["pgrep", "-P", str(caller.pid)], capture_output=True, text=True
        ).stdout.split()
    time.sleep(0.7)
    os.kill(caller.pid, signal.SIGKILL)
    caller.wait()
    end = time.monotonic() + 5
    while any(alive(int(child)) for child in children):
        assert time.monotonic() < end, "the client goes on without its caller"
        time.sleep(0.1)


def alive(pid):
    """Whether a process runs, one that ended and waits for its parent not counted."""
    try:
        with open(f"/proc/{pid}/stat") as about:
            return about.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
