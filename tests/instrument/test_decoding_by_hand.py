"""Rows from recorded bytes, column by column, and the access token that must be in none of them."""

import math

import numpy as np
import pytest
from answers import CLOCKS, FOUR, ancillary, answered, chunked, event, measured, text, usage
from protocol_cases import SECRET
from token_quotes import QUOTES

from bench.instrument.load import decoding, http1, protocols, records

ASKED = b"POST /x HTTP/1.1\r\nAuthorization: Bearer " + SECRET.encode() + b"\r\n\r\n{}"


def quoted(raw, payload=ASKED, error="", size=50):
    """The row of an answer that came in reads of `size` bytes."""
    answer = answered([raw[k : k + size] for k in range(0, len(raw), size)])
    answer.call.payload, answer.error = payload, error
    return decoding.measured(answer, "completions", CLOCKS)[0]


def test_stars_stand_for_each_letter_of_the_token():
    row = quoted(QUOTES["a refusal"], size=20)
    assert row["error"] == f"HTTP 401: Wrong credentials: Bearer {'*' * len(SECRET)}"


def test_an_error_of_bytes_that_are_no_http_is_made_anew_without_the_token():
    raw = QUOTES["bytes that are no HTTP, cut"]
    with pytest.raises(http1.Broken) as broken:
        http1.head(raw)
    row = quoted(raw, error=str(broken.value))
    assert row["error"] == "the answer is no HTTP: " + repr("x" * 40 + "Bearer " + "*" * 13)
    raw = QUOTES["a chunk without a length"]
    row = quoted(raw, error="a chunk has no length: b'" + SECRET[:9])
    assert row["error"].startswith("a chunk has no length: b'***") and "ttft_s" not in row
    assert quoted(chunked(*FOUR), error="ConnectionError: gone")["error"] == "ConnectionError: gone"
    assert quoted(b"HTTP/1.1 200 OK\r\nContent-Le", error="TimeoutError: no")["error"] == "TimeoutError: no"
    bare = quoted(b"SSH-2.0", payload=b"POST", error="TimeoutError: no")
    assert bare["error"] == "TimeoutError: no", "what has no token stays as it was"
    bare = quoted(b"SSH", payload=b"POST", error="the answer is no HTTP: b'SSH'")
    assert bare["error"] == "the answer is no HTTP: b'SSH'"
    assert quoted(chunked(*FOUR, event(usage(4))), payload=ASKED)["error"] == ""


def test_a_request_that_was_never_sent_has_no_times():
    answer = records.Answer(records.Call(7, b"", None, 3, 4), due=4.0, begun=5.5, error="OSError: no way")
    row, lags = decoding.measured(answer, "completions", CLOCKS)
    assert row["request"] == 7 and row["sent_s"] == 5.5 and row["late_s"] == 1.5
    assert math.isnan(row["connect_s"])
    assert row["error"] == "OSError: no way" and row["output_tokens"] == 0 and row["output_ids"] == []
    assert "first_byte_s" not in row and lags.size == 0
    answer.reads = [(6.0, ancillary(1005.75), b"x")]
    row, lags = decoding.measured(answer, "completions", CLOCKS)
    assert math.isnan(row["first_byte_s"]) and lags == pytest.approx([0.25], abs=1e-6)


def test_the_row_of_a_turn_says_whose_it_is_and_how_long_the_answer_before_held_it():
    answer, plain = (answered([chunked(*FOUR, event(usage(4)))]) for _ in range(2))
    answer.call.session, answer.call.turn, answer.free = 4, 2, answer.due + 0.5
    answer.call.own = protocols.Prompt((1, 2), "", 4)
    row, alone = (decoding.measured(each, "completions", CLOCKS)[0] for each in (answer, plain))
    more = {"session": 4, "turn": 2, "waited_s": 0.5, "prompt_ids": (1, 2)}
    assert row["late_s"] == -0.5 and row.keys() == alone.keys() | more.keys()
    assert {name: row[name] for name in more} == more


def test_what_connecting_took_and_when_bytes_came():
    answer = answered([chunked(*FOUR, event(usage(4)))])
    answer.begun, answer.connected = 9.25, 9.75
    row, lags = decoding.measured(answer, "completions", CLOCKS)
    assert row["connect_s"] == 0.5 and row["late_s"] == 0.25 and row["sent_s"] == 10.0
    assert row["first_byte_s"] == pytest.approx(0.099, abs=1e-6) and lags == pytest.approx([0.001], abs=1e-6)
    assert row["ttft_s"] == row["e2e_s"] and row["itl_max_s"] == 0


def test_the_last_byte_of_an_events_data_has_its_moment():
    raw = chunked(event(text("a")), event(text("b")), event(usage(2)))
    first, second = raw.index(b'"a"}]}') + 6, raw.index(b'"b"}]}') + 6
    for cut, moments in (((first, second), (0.099, 0.199)), ((first - 1, second - 1), (0.199, 0.299))):
        pieces = [raw[a:b] for a, b in zip((0, *cut), (*cut, len(raw)))]
        row, _ = decoding.measured(answered(pieces, 2), "completions", CLOCKS)
        assert (row["ttft_s"], row["e2e_s"]) == pytest.approx(moments, abs=1e-6)


def test_an_event_whose_last_byte_begins_a_chunk_has_the_moment_of_that_byte():
    whole = event(text("a"))
    raw = chunked(whole[:-3], whole[-3:], event(usage(1)))
    place = raw.index(b"}\n\n")
    row, _ = decoding.measured(answered([raw[:place], raw[place:]], 1), "completions", CLOCKS)
    assert row["ttft_s"] == pytest.approx(0.199, abs=1e-6)


def test_a_stamp_at_the_edge_is_used():
    at, lag = decoding.moments(
        [(1.0, ancillary(1001.0), b""), (2.0, ancillary(1001.0), b"")], CLOCKS, since=1.0
    )
    assert at.tolist() == [1.0, 1.0] and lag.tolist() == [0.0, 1.0]
    at, lag = decoding.moments([(1.0, ancillary(1000.5), b"")], [(0.0, 1000.0), (2.0, 1000.5)])
    assert at == pytest.approx([0.25]) and lag == pytest.approx([0.75])
    at, lag = decoding.moments([(1.0, ancillary(900.0), b"")], CLOCKS)
    assert at == pytest.approx([-100.0])


@pytest.mark.parametrize(
    "raw, why",
    [
        (b"HTTP/1.1 200", "The connection ended before the answer had begun."),
        (chunked(*FOUR, event(usage(4)), end=b""), "The answer ended in the middle of an event."),
    ],
)
def test_an_answer_that_is_not_whole_does_not_count(raw, why):
    row = quoted(raw, payload=b"")
    assert row["error"].startswith(why) and "ttft_s" not in row and row["first_byte_s"] > 0


def test_an_answer_of_ids_alone_or_without_a_count_of_the_prompt():
    held = [event(text("", token_ids=[5])), *(event(text(each, token_ids=[6])) for each in "bcd")]
    row = measured(*held, event(usage(4, prompt_tokens=None)))
    assert row["error"] == "" and row["chunks"] == 4 and row["output_ids"] == [5, 6, 6, 6]
    assert row["text"] == "bcd"
    assert row["prompt_tokens"] == 3 and row["cached_tokens"] is None and row["finish_reason"] == ""
    row = measured(*held, event(text("", finish_reason="length")))
    assert row["output_tokens"] == 4 and row["finish_reason"] == "length"
    assert measured(*held[:2], event(text("cd", token_ids=[7, 8])), event(usage(4)))["output_tokens"] == 4
    row = measured(*FOUR[:3], event(text("d", finish_reason="length")), event(usage(4)))
    assert row["finish_reason"] == "length", "the last event has none"


def test_gaps_of_events_by_hand():
    columns = decoding.gaps(np.array([1.0, 1.5, 1.75]), [1, 2, 1])
    expected = {"itl_p50_s": 0.25, "itl_p90_s": 0.45, "itl_p99_s": 0.495, "itl_max_s": 0.5}
    assert columns == pytest.approx(expected) and type(columns["itl_max_s"]) is float
    alone = decoding.gaps(np.array([1.0]), [1])
    assert list(alone) == list(expected) and all(map(math.isnan, alone.values()))


def test_moments_of_a_server_stand_beside_those_of_the_client():
    pieces = [
        protocols.Piece("a", sent_ns=500_000_000),
        protocols.Piece("b"),
        protocols.Piece("c", sent_ns=10**9),
    ]
    found = decoding._truth(pieces, np.array([1.5, 2.0, 3.0]))
    assert found["delays_s"] == pytest.approx([1.0, 2.0]) and found["arrivals_s"] == pytest.approx([1.5, 3.0])
    assert decoding._truth(pieces[1:2], np.array([1.0])) == {}
