"""The load client's parts one by one: sockets, clocks and processes made by hand."""

import errno
import gc
import math
import os
import selectors
import socket
import ssl

import numpy as np
import pytest
from answers import chunked, event, text, usage

from bench.instrument.load import client, connection, http1, parallel, records

WHOLE = chunked(event(text("a")), event(usage(1)))


def answer(number=1, begun=5.0, at_s=None, payload=b"POST"):
    return records.Answer(records.Call(number, payload, at_s, 3, 1), 4.0, begun)


class Socket:
    """A socket that gives `reads` one by one (an error is raised), and takes `room` bytes at once."""

    def __init__(self, reads=(), room=100):
        self.reads, self.room, self.sent, self.closed, self.error = list(reads), room, b"", False, 0

    def recvmsg(self, most, more):
        data = self.reads.pop(0)
        if isinstance(data, Exception):
            raise data
        assert most == connection.READ_BYTES and more == connection.ANCILLARY_BYTES
        return data, [("stamp", len(data))], 0, None

    def recv(self, most):
        assert most == connection.READ_BYTES
        return self.recvmsg(most, connection.ANCILLARY_BYTES)[0]

    def send(self, data):
        if isinstance(self.room, Exception):
            raise self.room
        self.sent += data[: self.room]
        return min(self.room, len(data))

    def getsockopt(self, level, option):
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_ERROR)
        return self.error

    def close(self):
        self.closed = True


class Selector:
    """What is watched for which socket."""

    def __init__(self):
        self.watched = {}

    def register(self, sock, events, data):
        self.watched[sock] = events, data

    modify = register

    def unregister(self, sock):
        del self.watched[sock]

    def get_map(self):
        keys = {s: selectors.SelectorKey(s, 0, e, d) for s, (e, d) in self.watched.items()}
        return keys or None


@pytest.fixture
def clock(monkeypatch):
    """The time of both modules, which stands still."""

    class Clock:
        now = 50.0

    monkeypatch.setattr(client, "clock", lambda: Clock.now)
    monkeypatch.setattr(connection, "clock", lambda: Clock.now)
    return Clock


def carrying(reads=(), room=100, reused=False, **about):
    stream = connection.Stream(Socket(reads, room))
    stream.carry(answer(**about), reused)
    return stream


# --- one connection ---------------------------------------------------------------------------------------


def test_a_request_counts_as_sent_with_its_first_byte(clock):
    stream = carrying(room=3)
    stream.send()
    assert stream.answer.sent == 50.0 and stream.unsent == b"T"
    clock.now = 51.0
    stream.send()
    assert stream.answer.sent == 50.0 and stream.unsent == b"" and stream.sock.sent == b"POST"
    for full in (BlockingIOError(), ssl.SSLWantWriteError(), ssl.SSLWantReadError()):
        waiting = carrying(room=full)
        waiting.send()
        assert waiting.unsent == b"POST" and waiting.answer.sent == 51.0


def test_each_read_is_kept_with_its_moment_and_stamp(clock):
    parts = WHOLE[:50], WHOLE[50:-5], WHOLE[-5:]
    stream = carrying(parts)
    assert not stream.receive() and stream.received == 50
    clock.now = 50.5
    assert not stream.receive() and stream.receive() is True
    assert [read[2] for read in stream.answer.reads] == list(parts) and stream.received == len(WHOLE)
    assert stream.answer.reads[0][:2] == (50.0, [("stamp", 50)]) and stream.answer.reads[1][0] == 50.5
    assert stream.head.stays_open


@pytest.mark.parametrize("cut", range(1, 9))
def test_the_end_is_seen_wherever_it_is_cut(cut):
    stream = carrying([WHOLE[:-cut], WHOLE[-cut:]])
    assert not stream.receive() and stream.receive() is True


def test_what_looks_like_the_last_chunk_within_an_event_is_none():
    """An event whose data end like the last chunk does, in a read of its own."""
    begin, rest = chunked(b"data: x"), b"0\r\n\r\n"
    head = begin[: begin.index(b"\r\n\r\n") + 4]
    stream = carrying([head + b"c\r\ndata: 1", rest, b"\r\n"])
    assert not stream.receive()
    assert not stream.receive(), "its own chunk is not over"


def test_a_connection_that_closes_before_the_end_is_lost():
    for reads in ([b""], [WHOLE[:60], b""]):
        stream = carrying(reads)
        with pytest.raises(ConnectionError, match="closed the connection before the answer was complete"):
            while not stream.receive():
                pass
    bare = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall of it"
    stream = carrying([bare, b""])
    assert not stream.ends_with_connection and not stream.receive() and stream.ends_with_connection
    assert stream.receive() is True
    sized = carrying([b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", b"cde"])
    assert not sized.receive() and not sized.ends_with_connection and sized.receive() is True


def test_many_bytes_without_a_look_are_looked_at(monkeypatch):
    """In the middle of a stream nothing is looked at, until more came than any answer has."""
    body = chunked(*[b": " + b"x" * 40 + b"\n\n"] * 9)[:-5]
    stream = carrying([body[:200], body[200:250], body[250:300]])
    monkeypatch.setattr(connection, "ANSWER_BYTES", 2000)
    assert not stream.receive() and not stream.receive()
    monkeypatch.setattr(connection, "ANSWER_BYTES", 299)
    with pytest.raises(http1.Broken, match="no end"):
        stream.receive()


def test_decrypted_bytes_that_wait_are_read_at_once(clock):
    stream = carrying([WHOLE[:60], WHOLE[60:90], ssl.SSLWantReadError(), WHOLE[90:], b"never read"])
    stream.secure = True
    assert stream.receive() is False and stream.received == 90
    assert stream.answer.reads[0] == (50.0, None, WHOLE[:60])
    assert stream.receive() is True and stream.received == len(WHOLE) and stream.sock.reads == [b"never read"]
    waiting = carrying([ssl.SSLWantWriteError()])
    waiting.secure = True
    assert waiting.receive() is False


# --- all connections --------------------------------------------------------------------------------------


@pytest.fixture
def connections():
    with socket.create_server(("127.0.0.1", 0)) as server:
        made = connection.Connections("http://127.0.0.1:%d/below" % server.getsockname()[1])
        made.server = server
        yield made
        made.close()


def test_an_opened_connection_is_watched_until_it_can_be_written(connections):
    asked = answer()
    connections.open(asked)
    stream = asked.stream
    key = connections.selector.get_key(stream.sock)
    assert key.events == selectors.EVENT_WRITE and key.data is stream and not stream.reused
    assert not stream.sock.getblocking()
    assert stream.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), "no event waits for more"
    stamps = connection.kernel_stamps.SO_TIMESTAMPNS
    assert connections.kernel_stamps == bool(stamps)
    assert not stamps or stream.sock.getsockopt(socket.SOL_SOCKET, stamps)
    connections.selector.select(5)
    assert connections.established(stream) is True and stream.connecting is False
    for unsent, events in ((b"x", connection.READ | connection.WRITE), (b"", connection.READ)):
        stream.unsent = unsent
        connections.watch(stream)
        assert connections.selector.get_key(stream.sock).events == events
    assert connections.release(stream, keep=True) is asked and asked.stream is None and stream.answer is None
    assert connections.idle == [stream] and stream.sock.fileno() > 0
    connections.drop(stream)
    assert connections.idle == [] and stream.sock.fileno() == -1 and not connections.selector.get_map()
    connections.open(asked)
    sock = asked.stream.sock
    connections.release(asked.stream)
    assert connections.idle == [] and sock.fileno() == -1
    connections.open(asked)
    connections.close()
    assert asked.stream.sock.fileno() == -1
    connections.close()  # twice is no failure


def test_a_connection_that_failed_says_why(connections):
    stream = carrying()
    stream.sock.error = errno.ECONNREFUSED
    with pytest.raises(ConnectionRefusedError, match="Connection refused"):
        connections.established(stream)
    for failure, text_ in (
        (
            ConnectionResetError(104, "Connection reset by peer"),
            "ConnectionResetError: Connection reset by peer",
        ),
        (ConnectionError("the server went"), "ConnectionError: the server went"),
        (http1.Broken("no HTTP"), "no HTTP"),
    ):
        assert connection.reason(failure) == text_


def test_a_socket_that_cannot_connect_is_closed(connections, monkeypatch):
    made = []

    class Closed(Socket):
        def __init__(self, family, kind):
            super().__init__()
            made.append((self, family, kind))

        def setblocking(self, on):
            pass

        def setsockopt(self, *what):
            pass

        def connect_ex(self, where):
            return errno.EHOSTUNREACH

    monkeypatch.setattr(connection.socket, "socket", Closed)
    monkeypatch.setattr(connection.kernel_stamps, "request", lambda sock: None)
    with pytest.raises(OSError, match="No route to host") as failed:
        connections.open(answer())
    assert failed.value.errno == errno.EHOSTUNREACH and made[0][0].closed
    assert made[0][1:] == (socket.AF_INET, socket.SOCK_STREAM)


def test_hands_are_shaken_once_and_watched_for_what_they_wait_for(connections):
    class Secured(Socket):
        waits = [ssl.SSLWantReadError(), ssl.SSLWantWriteError()]

        def do_handshake(self):
            if self.waits:
                raise self.waits.pop(0)

    class Context:
        def wrap_socket(self, sock, server_hostname, do_handshake_on_connect):
            self.asked = sock, server_hostname, do_handshake_on_connect
            return Secured()

    connections.close()
    connections.tls, connections.selector = Context(), Selector()
    stream = carrying()
    plain = stream.sock
    connections.selector.register(plain, connection.WRITE, stream)
    assert connections.established(stream) is False and stream.connecting and stream.secure
    assert connections.tls.asked == (plain, "127.0.0.1", False)
    assert connections.selector.watched == {stream.sock: (connection.READ, stream)}
    assert connections.established(stream) is False
    assert connections.selector.watched == {stream.sock: (connection.WRITE, stream)}
    assert connections.established(stream) is True and not stream.connecting and not connections.kernel_stamps


def test_the_address_is_that_of_the_url(monkeypatch):
    asked = []

    def known(host, port, type):
        asked.append((host, port, type))
        return [(2, 1, 6, "", (host, port)), (10, 1, 6, "", ("second", port))]

    monkeypatch.setattr(connection.socket, "getaddrinfo", known)
    tried = []
    monkeypatch.setattr(connection, "_accepts", lambda family, *_: tried.append(family) or family == 10)
    assert connection.addresses("http://here") == [(10, ("second", 80))] and tried == [2, 10]
    monkeypatch.setattr(connection, "_accepts", lambda *_: True)
    assert [where for _, where in connection.addresses("http://here")] == [("here", 80), ("second", 80)]
    monkeypatch.setattr(connection, "_accepts", lambda *_: False)
    assert connection.addresses("https://here") == [(2, ("here", 443))]
    assert connection.addresses("https://here:81")[0][1] == ("here", 81)
    assert {kind for _, _, kind in asked} == {socket.SOCK_STREAM}
    assert connection.Connections("https://me@here/x").host == "here"
    assert connection.Connections("https://here").tls and not connection.Connections("http://here").tls
    for url in ("here:80", "ftp://here", "http://", "//here"):
        with pytest.raises(ValueError, match=f"must be like .*, not {url!r}"):
            connection.addresses(url)


def test_an_unknown_host_is_named(monkeypatch):
    def unknown(*what, **more):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(connection.socket, "getaddrinfo", unknown)
    with pytest.raises(
        ValueError, match="'http://nowhere' is not known: Name or service not known"
    ) as refused:
        connection.addresses("http://nowhere")
    assert refused.value.__suppress_context__


# --- the loop ---------------------------------------------------------------------------------------------


def test_a_process_is_first_in_line_while_it_measures(monkeypatch):
    asked = []
    monkeypatch.setattr(
        os, "sched_setscheduler", lambda *what: asked.append((*what[:2], what[2].sched_priority))
    )
    with client._undisturbed() as first:
        assert first is True and not gc.isenabled()
    assert gc.isenabled() and asked == [(0, os.SCHED_FIFO, 1), (0, os.SCHED_OTHER, 0)]

    def refuse(*what):
        raise PermissionError("not allowed")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    assert client._first_in_line(True) is False
    with pytest.raises(KeyError), client._undisturbed() as first:
        raise KeyError
    assert gc.isenabled() and first is False


# --- processes --------------------------------------------------------------------------------------------


class Process:
    """In place of a process of the client: it answers with a row per call."""

    made, events, lost = [], [], None

    def __init__(self, share):
        self.share, self.sent = share, []
        Process.made.append(self)

    def receive(self):
        Process.events.append("receive")
        if not self.sent:
            return "ready"
        if Process.lost:
            raise Process.lost
        rows = [{"request": call.number, "late_s": call.number / 8} for call in self.share[1]]
        report = {"connections": {"here": 2}, "retries": 1, "pauses": 0, "ended": ""}
        report |= {"cpu_s": 1.0, "reading_cpu_s": 0.5, "peak_memory_bytes": 100, "kernel_stamps": True}
        return rows, report | {"first_in_line": len(Process.made) == 1, "read_lag_s": np.array([0.25, 0.5])}

    def send(self, message):
        Process.events.append("send")
        self.sent.append(message)

    def end(self):
        Process.events.append("end")


@pytest.fixture
def processes(monkeypatch):
    Process.made, Process.events, Process.lost = [], [], None
    monkeypatch.setattr(parallel, "_Process", Process)
    monkeypatch.setattr(parallel.connection, "addresses", lambda url: None)
    monkeypatch.setattr(parallel, "clock", lambda: 50.0)
    monkeypatch.setattr(parallel.os, "cpu_count", lambda: 8)
    return Process


def calls_of(n, at_s=None):
    return [records.Call(k + 1, b"", at_s, 3, 1) for k in range(n)]


def test_a_load_is_dealt_to_processes(processes):
    rows, report = parallel.run(
        "url", calls_of(5), "chat", concurrency=5, timeout_s=7.0, processes=2, cores={1}
    )
    assert [row["request"] for row in rows] == [1, 2, 3, 4, 5]
    shares = [made.share for made in processes.made]
    assert [[call.number for call in share[1]] for share in shares] == [[1, 3, 5], [2, 4]]
    assert [share[3] for share in shares] == [3, 2], "the places of each"
    assert all((share[0], share[2], *share[4:6]) == ("url", "chat", 7.0, {1}) for share in shares)
    assert all(share[6:] == (math.inf, None, False, math.inf) for share in shares), (
        "no end, and no answers to be encoded"
    )
    assert [made.sent for made in processes.made] == [[50.1]] * 2, "one start for all"
    assert processes.events == ["receive"] * 2 + ["send"] * 2 + ["receive"] * 2 + ["end"] * 2
    assert report == {
        "processes": 2, "cpu_s": 2.0, "reading_cpu_s": 1.0, "peak_memory_bytes": 200, "kernel_stamps": True,
        "first_in_line": False, "read_lag_p50_s": 0.375, "read_lag_p99_s": 0.5, "late_p50_s": 0.375,
        "late_p99_s": pytest.approx(0.62), "connections": 4, "addresses": {"here": 4}, "retries": 2,
        "pauses": 0, "ended": "",
    }  # fmt: skip


def test_turns_of_a_session_stay_in_one_process(processes):
    calls = calls_of(6)
    for call in calls[:5]:
        call.session = call.number % 2
    parallel.run("url", calls, "chat", concurrency=3, processes=3)
    dealt = [[call.number for call in made.share[1]] for made in processes.made]
    assert dealt == [[1, 3, 5], [2, 4], [6]]


@pytest.mark.parametrize(
    "calls, concurrency, processes_, count",
    [
        (3000, 1000, 0, 1),
        (3000, 1001, 0, 2),
        (30000, 30000, 0, 4),  # half of the cores
        (3, 4, 5, 3),
        (5, 2, 3, 2),
        (3, 0, 2, 1),
    ],
)
def test_as_many_processes_as_the_load_needs(processes, calls, concurrency, processes_, count):
    _, report = parallel.run("url", calls_of(calls), "chat", concurrency, processes=processes_)
    assert report["processes"] == count == len(processes.made)
    assert sum(made.share[3] for made in processes.made) == max(
        concurrency if calls >= concurrency else count, 1
    ) or (calls < concurrency)


def test_an_open_loop_is_as_wide_as_its_calls(processes, monkeypatch):
    assert parallel.run("url", calls_of(1500, 0.0), "chat")[1]["processes"] == 2
    assert parallel.run("url", calls_of(3), "chat", processes=3)[1]["processes"] == 1, "one at a time"
    mixed = [*calls_of(1500, 0.0), *calls_of(1)]
    assert parallel.run("url", mixed, "chat")[1]["processes"] == 1
    monkeypatch.setattr(parallel.os, "cpu_count", lambda: None)
    assert parallel.run("url", calls_of(5000, 0.0), "chat")[1]["processes"] == 1
    monkeypatch.setattr(parallel.os, "cpu_count", lambda: 1)
    assert parallel.run("url", calls_of(5000, 0.0), "chat")[1]["processes"] == 1
    defaults = processes.made[-1].share
    assert defaults[4] == 600.0 and defaults[5] is None
    rows, report = parallel.run("url", [], "chat")
    assert rows == [] and report["processes"] == 0 and report["late_p50_s"] is None


def test_processes_end_where_one_is_lost(processes):
    processes.lost = RuntimeError("lost")
    with pytest.raises(RuntimeError, match="lost"):
        parallel.run("url", calls_of(4), "chat", 2, processes=2)
    assert processes.events[-2:] == ["end", "end"]
