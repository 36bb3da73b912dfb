"""Any failure over a socket, three servers a kind: what is asked again, what counts, what is waited for."""

import socket
import threading
import time
from email.utils import formatdate

import pytest
from loads import TOKENS, hang_up, here, make_calls, request_of, stream, tiny, whole
from server_kinds import RESET, playing

from bench.instrument.load import client, parallel
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


@pytest.mark.parametrize("away_s", [0.3, 1.5])
def test_a_restart_between_two_levels_is_waited_for(away_s):
    def listen(port=0):
        listening = socket.create_server(("127.0.0.1", port))

        def accept():
            while True:
                try:
                    peer, _ = listening.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(peer,), daemon=True).start()

        def serve(peer):
            while request_of(peer):
                peer.sendall(stream())

        threading.Thread(target=accept, daemon=True).start()
        return listening

    listening = listen()
    port = listening.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    rows, _ = parallel.run(url, make_calls(url, 2), "completions", timeout_s=5)
    assert all(map(whole, rows)) and url in parallel.ANSWERED
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    timer = threading.Timer(away_s, listen, [port])
    timer.start()
    began = time.monotonic()
    rows, loop = here(url, make_calls(url, 4), concurrency=2, timeout_s=30, has_answered=True)
    timer.cancel()
    assert all(map(whole, rows)), rows[0]["error"]
    assert away_s * 0.8 < client.report(loop)["away_s"] <= time.monotonic() - began
    assert max(row["e2e_s"] for row in rows) < 0.3, "what it was away is in no time"
    assert rows[0]["output_tokens"] == TOKENS
