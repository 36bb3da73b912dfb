"""Any failure over a socket, three servers a kind: what is asked again, what counts, what is waited for."""

import socket
import threading
import time
from email.utils import formatdate

import pytest
from loads import TOKENS, accounted, hang_up, here, make_calls, request_of, stream, tiny, whole
from server_kinds import RESET, playing

from bench.instrument.load import client, connection, parallel
from bench.instrument.reference_server.events import plain

pytestmark = [pytest.mark.usefixtures("watchdog"), pytest.mark.timing]
GOOD = [(0.0, stream())]


@pytest.mark.parametrize("late_s", [0.0, 0.03, 0.2])
@pytest.mark.parametrize("reset", [False, True])
def test_an_open_connection_that_is_lost_without_a_byte_is_asked_again(late_s, reset):
    """Whenever the server lets it go: from then on no connection serves twice."""

    def serve(peer, _):
        request_of(peer)
        peer.sendall(stream())
        if request_of(peer):
            time.sleep(late_s)
            hang_up(peer) if reset else peer.close()

    with tiny(serve) as (url, _):
        rows, loop = here(url, make_calls(url, 8), concurrency=2, most_failed=0.1)
    told = client.report(loop)
    assert all(map(whole, rows)) and 1 <= told["retries"] <= 2
    assert not told["reuses"] and loop.ended == ""


def refused_at_accept(peer, _):
    hang_up(peer)


def closed_without_a_byte(peer, _):
    request_of(peer)


def cut_in_the_head(peer, _):
    request_of(peer)
    peer.sendall(b"HTTP/1.1 200 O")


def internal_error(peer, _):
    while request_of(peer):
        peer.sendall(plain(500, "{}"))


REFUSALS = {
    "reset at once": (refused_at_accept, "Connection"),
    "closed without a byte": (closed_without_a_byte, "closed the connection"),
    "cut in the head": (cut_in_the_head, "closed the connection"),
    "HTTP 500": (internal_error, "HTTP 500"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_any_failure_is_paused_and_ends_the_level_with_its_cause(case):
    serve, cause = REFUSALS[case]
    with tiny(serve) as (url, came):
        rows, loop = here(url, make_calls(url, 300), concurrency=4, most_failed=0.1)
    told = client.report(loop)
    assert cause in loop.ended and "requests had failed" in loop.ended
    assert told["pauses"] >= 4 and told["paused_s"] > 0.39
    assert sum(not row["error"].startswith("Not sent") for row in rows) < 20


SKEWED = formatdate(time.time() + 600, usegmt=True), formatdate(time.time() + 600.9, usegmt=True)
ASKED = {  # Retry-After, Date, the least and the most that is waited, s
    "seconds": ("0.4", "", 0.4, 1.5),
    "a date of a clock that is ahead": (SKEWED[1], SKEWED[0], 0.1, 1.9),
    "an epoch": (str(int(time.time()) - 9), "", 0.1, 0.9),
    "a strange digit": ("\xb2", "", 0.1, 0.9),
    "words": ("soon", "", 0.1, 0.9),
    "below zero": ("-5", "", 0.1, 0.9),
}


@pytest.mark.parametrize("case", ASKED)
def test_a_pause_is_what_the_server_asks_and_nonsense_is_no_crash(case):
    asked, date, least_s, most_s = ASKED[case]
    more = f"\r\nRetry-After: {asked}" + (f"\r\nDate: {date}" if date else "")
    refusal = plain(429, "{}", more).decode().encode("latin-1")
    with playing([(0.0, refusal)], GOOD) as (url, _):
        rows, loop = here(url, make_calls(url, 2))
    assert rows[0]["error"].startswith("HTTP 429") and whole(rows[1])
    assert least_s <= rows[1]["sent_s"] - rows[0]["sent_s"] <= most_s
    assert client.report(loop)["paused_s"] == pytest.approx(least_s, abs=1.0)


@pytest.mark.parametrize("asked", ["3600", str(int(time.time() + 3600)), formatdate(time.time() + 7200)])
def test_a_server_that_asks_for_too_much_ends_the_level(asked):
    with playing([(0.0, plain(503, "{}", f"\r\nRetry-After: {asked}"))]) as (url, requests):
        _, loop = here(url, make_calls(url, 5))
    assert "asks to be asked again in" in loop.ended and len(requests) == 1


def test_an_answer_that_was_begun_is_no_second_request():
    begun = [(0.0, stream()[:200]), (0.02, RESET)]
    with playing(GOOD, begun, GOOD) as (url, requests):
        rows, loop = here(url, make_calls(url, 3))
    assert [bool(row["error"]) for row in rows] == [False, True, False] and len(requests) == 3
    assert client.report(loop)["retries"] == 0


def test_places_back_off_where_the_server_does_not_say_for_how_long():
    """One place, refused five times: each wait is twice the one before."""
    moments = []

    def serve(peer, _):
        while request_of(peer):
            moments.append(time.monotonic())
            peer.sendall(stream() if len(moments) > 5 else plain(429, "{}"))

    with tiny(serve) as (url, _):
        rows, _ = here(url, make_calls(url, 6))
    waits = [after - before for before, after in zip(moments, moments[1:])]
    assert whole(rows[-1]) and all(w >= least for w, least in zip(waits, (0.1, 0.2, 0.4, 0.8, 1.6)))


def test_an_open_loop_does_not_wait():
    def serve(peer, _):
        while request_of(peer):
            peer.sendall(plain(503, "{}", "\r\nRetry-After: 30"))

    with tiny(serve) as (url, _):
        rows, loop = here(url, make_calls(url, 5, at_s=[0, 0.01, 0.02, 0.03, 0.04]))
    assert all(row["error"].startswith("HTTP 503") for row in rows) and client.report(loop)["pauses"] == 0


class Restarting:
    """A server that is killed with `dies_with` requests under way or by `restart`, away for a while, and back at its port."""

    def __init__(self, away_s, dies_with=0, answers_before=0, begun=b""):
        self.dies_with, self.left, self.away_s, self.begun = dies_with, answers_before, away_s, begun
        self.peers, self.held, self.died, self.lock = [], 0, False, threading.Lock()
        self.listen(0)

    def listen(self, port):
        self.listening = socket.create_server(("127.0.0.1", port), backlog=128)
        self.port = self.listening.getsockname()[1]
        threading.Thread(target=self.accept, args=(self.listening,), daemon=True).start()

    def accept(self, listening):
        while True:
            try:
                peer, _ = listening.accept()
            except OSError:
                return
            self.peers.append(peer)
            threading.Thread(target=self.serve, args=(peer,), daemon=True).start()

    def serve(self, peer):
        try:
            while request_of(peer):
                with self.lock:
                    answers = self.died or self.left > 0 or not self.dies_with
                    self.left -= 1
                    self.held += not answers
                    dies = self.held == self.dies_with and not self.died
                if answers:
                    peer.sendall(stream())
                    continue
                peer.sendall(self.begun)
                if dies:
                    return self.restart()
        except OSError:
            pass

    def restart(self):
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        self.died = True
        for peer in self.peers:
            peer.shutdown(socket.SHUT_RDWR)
        time.sleep(self.away_s)
        self.listen(self.port)


@pytest.mark.parametrize("begun", [b"", stream()[:200]])
@pytest.mark.parametrize("opened", [False, True])
def test_a_restart_kills_what_was_under_way_and_nothing_else(opened, begun):
    """It dies with four requests under way: those whose answers had begun are lost, the others asked again."""
    server = Restarting(dies_with=4, answers_before=8, away_s=0.3, begun=begun)
    url = f"http://127.0.0.1:{server.port}"
    at_s = [k * 0.02 for k in range(60)] if opened else None
    calls = make_calls(url, 60, at_s=at_s)
    rows, loop = here(url, calls, concurrency=4, timeout_s=20, most_failed=0.1)
    server.listening.close()
    lost = [row for row in accounted(rows, calls) if row["error"]]
    assert len(lost) <= 4 and (len(lost) > 0) >= bool(begun) and loop.ended == ""
    assert all(row["error"].startswith("Connection") for row in lost)
    assert client.report(loop)["retries"] >= 1 and client.report(loop)["away_s"] > 0.2
    if not opened:
        assert max(row.get("e2e_s", 0) for row in rows) < 0.25, "what it was away is in no time"


def test_every_address_of_a_host_gets_its_turn(monkeypatch):
    def serve(peer, _):
        while request_of(peer):
            time.sleep(0.05)
            peer.sendall(stream())

    with tiny(serve) as (one, first), tiny(serve) as (two, second):
        places = [(socket.AF_INET, ("127.0.0.1", int(url.rpartition(":")[2]))) for url in (one, two)]
        monkeypatch.setattr(connection, "addresses", lambda url: places)
        rows, loop = here(one, make_calls(one, 8), concurrency=4)
    assert all(map(whole, rows)) and len(first) == len(second) == 2
    assert sum(client.report(loop)["connections"].values()) == 4


def test_a_fresh_connection_for_each_request_where_it_is_asked_for():
    def serve(peer, _):
        while request_of(peer):
            peer.sendall(stream())

    with tiny(serve) as (url, came):
        rows, loop = here(url, make_calls(url, 5), fresh=True)
        assert all(map(whole, rows)) and len(came) == 5
    assert client.report(loop)["connections"] == {"127.0.0.1": 5} and TOKENS == rows[0]["output_tokens"]


@pytest.mark.parametrize("away_s", [0.8, 2.0])
def test_a_restart_between_two_levels_is_waited_for(away_s):
    server = Restarting(away_s)
    url = f"http://127.0.0.1:{server.port}"
    rows, _ = parallel.run(url, make_calls(url, 2), "completions", timeout_s=5)
    assert all(map(whole, rows)) and url in parallel.ANSWERED
    threading.Thread(target=server.restart, daemon=True).start()
    while not server.died:
        time.sleep(0.01)
    began = time.monotonic()
    rows, loop = here(url, make_calls(url, 4), concurrency=2, timeout_s=30, has_answered=True)
    assert all(map(whole, rows)), rows[0]["error"]
    assert 0 < client.report(loop)["away_s"] <= time.monotonic() - began, (
        "how early the client comes is the machine's"
    )
    assert max(row["e2e_s"] for row in rows) < away_s, "what it was away is in no time"
