"""What an answer over a socket is worth: arrivals, texts, disagreements and ends, three servers a kind."""

import json
import math

import pytest
from loads import here, make_calls
from server_kinds import (
    CLOSE,
    answer,
    counted,
    delta,
    every,
    playing,
    row_of,
    said,
    sse,
    text,
)

from bench.instrument.reference_server import events
from llm_measured.core import metrics

pytestmark = [pytest.mark.usefixtures("watchdog"), pytest.mark.timing]
SLACK_S = 0.015  # what a sleeping server may be late by


def tpot_s(row):
    if row.get("unmeasured"):
        return math.nan
    first = row.get("first_event_tokens", 1)
    return float(metrics.tpot_s(row["ttft_s"], row["e2e_s"], row["output_tokens"], first))


BURSTS = {  # name: (tokens a packet, s a token, tokens)
    "bursts of 5": (5, 0.01, 40),
    "bursts of 20 of 40": (20, 0.005, 40),
    "bursts of 12 that end in a rest": (12, 0.005, 40),
}


@pytest.mark.parametrize("case", BURSTS)
def test_tokens_that_arrive_together_are_one_event(case):
    """TPOT is the engine's however many events a proxy sends at once, and no gap is 0."""
    per, itl_s, tokens = BURSTS[case]
    row, _ = row_of(answer(*every(tokens, itl_s, per=per), tokens=tokens), tokens)
    assert not row["error"] and row["chunks"] == tokens
    assert row["first_event_tokens"] == row["arrival_tokens_max"] == per
    assert row["arrival_tokens_mean"] == pytest.approx(tokens / math.ceil(tokens / per))
    last = tokens % per or per  # of a rest that came with its packet, the moments are those of its last token
    assert tpot_s(row) == pytest.approx(itl_s * (tokens - per + (per - last)) / (tokens - per), rel=0.15)
    assert ("itl_p50_s" in row and row["itl_p50_s"] > 0) == (tokens / per > 3)


@pytest.mark.parametrize("waited_s", [0.02, 0.3, 1.5])
@pytest.mark.parametrize("itl_s", [0.001])
def test_a_steady_stream_after_any_wait_is_streamed(waited_s, itl_s):
    row, _ = row_of(answer(*every(64, itl_s, first_s=waited_s), tokens=64), 64)
    assert not row["error"] and not row.get("unmeasured")
    assert row["ttft_s"] == pytest.approx(waited_s, abs=SLACK_S)
    assert tpot_s(row) == pytest.approx(itl_s, rel=0.6)


LUMPS = {
    "one packet": answer((0.2, text(" word") * 30), tokens=30),
    "a first token, then all": answer((0.02, text(" word")), (0.3, text(" word") * 29), tokens=30),
    "one event": answer((0.2, text(" word" * 30)), tokens=30),
}


@pytest.mark.parametrize("case", LUMPS)
def test_one_arrival_with_most_tokens_is_not_streamed(case):
    row, _ = row_of(LUMPS[case], 30)
    assert not row["error"] and "Not streamed" in row["unmeasured"]
    assert math.isnan(row["ttft_s"]) and math.isnan(tpot_s(row))
    assert row["e2e_s"] > 0.19 and row["output_tokens"] == 30


REPEATED = [{"type": "reasoning.text", "text": " hm"}]
FIELDS = {  # what the first ten of twenty tokens come in
    "thinking": {"thinking": " hm"},
    "both spellings and details": {"reasoning": " hm", "reasoning_details": REPEATED},
    "a refusal": {"refusal": " no"},
    "parts": {"content": [{"type": "text", "text": " a"}]},
    "tool calls": {"tool_calls": [{"index": 0, "id": "1", "function": {"name": "f", "arguments": " a"}}]},
    "the older function call": {"function_call": {"arguments": " a"}},
}


@pytest.mark.parametrize("case", FIELDS)
def test_all_text_that_a_delta_carries_is_text(case):
    parts = [(0.05 + 0.01 * k, delta(**(FIELDS[case] if k < 10 else {"content": " b"}))) for k in range(20)]
    row, _ = row_of(answer(*parts, tokens=20), 20, "chat")
    assert not row["error"] and not row.get("unmeasured")
    assert row["ttft_s"] == pytest.approx(0.05, abs=SLACK_S) and row["chunks"] == 20
    assert tpot_s(row) == pytest.approx(0.01, rel=0.2)


BOM = b"\xef\xbb\xbf"


@pytest.mark.parametrize("mark", [BOM, b"\n\n" + BOM, b": hello\n\n"])
def test_bytes_before_the_stream_cost_no_token(mark):
    first = b"data: " + json.dumps({"choices": [{"text": " word"}]}).encode() + b"\n\n"
    parts = [(0.03, events.chunk(mark + first)), *every(20, 0.01, first_s=0.03, start=1)]
    row, _ = row_of(answer(*parts, tokens=20), 20)
    assert not row["error"] and row["chunks"] == 20
    assert row["ttft_s"] == pytest.approx(0.03, abs=SLACK_S)


@pytest.mark.parametrize("name", ["audio_transcript", "x_plan", "diff"])
def test_a_field_that_is_not_known_is_named_and_empties_the_wait(name):
    """Its text may have come first: TTFT is as unknown as the pace, the total rate is not."""
    parts = [(0.03 + 0.01 * k, delta(**({name: " x"} if k < 10 else {"content": " b"}))) for k in range(20)]
    row, _ = row_of(answer(*parts, tokens=20), 20, "chat")
    assert not row["error"] and name in row["unmeasured"]
    assert math.isnan(row["ttft_s"]) and math.isnan(tpot_s(row)) and row["e2e_s"] > 0.2


AGREE = {
    "several tokens in an event": answer(*every(5, 0.04, make=lambda w: text(w * 4)), tokens=20),
    "a byte held back": answer(
        *every(9, 0.01), (0.12, text("")), (0.13, text(" é")), *every(20, 0.01, start=11), tokens=20
    ),
    "a last token without text": answer(
        *every(19, 0.01), (0.22, text("", finish="length")), tokens=20, after_s=0.001
    ),
}


@pytest.mark.parametrize("case", AGREE)
def test_what_is_no_disagreement_has_all_its_times(case):
    row, _ = row_of(AGREE[case], 20)
    assert not row["error"] and not row.get("unmeasured")
    assert row["ttft_s"] > 0 and tpot_s(row) == pytest.approx(0.01, rel=0.35)


HIDDEN = {  # name: (parts, whether TTFT stands, the end in s or None where nobody knows it)
    "thoughts that are counted only": (
        answer(*every(20, 0.01, first_s=0.1), (0.3, text("", finish="length")), tokens=60),
        True,
        0.3,
    ),
    "an empty event that may have been a token": (
        answer((0.03, text("")), *every(20, 0.01, first_s=0.1), (0.3, text("", finish="length")), tokens=60),
        False,
        0.3,
    ),
    "tokens after the last text that nobody ends": (
        answer(*every(20, 0.01, first_s=0.02), tokens=60, end=sse({"choices": [], "usage": said(60)}) + events.LAST),
        True,
        None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", HIDDEN)
def test_more_tokens_than_text_empty_what_hangs_on_them(case):
    parts, waited, end_s = HIDDEN[case]
    row, _ = row_of(parts, 60)
    assert not row["error"] and "disagree" in row["unmeasured"] and math.isnan(tpot_s(row))
    assert math.isnan(row["ttft_s"]) != waited
    if end_s is None:
        assert math.isnan(row["e2e_s"])
    else:
        assert row["e2e_s"] == pytest.approx(end_s, abs=SLACK_S)


GOOD = every(20, 0.005)
ENDS = {
    "open after the marker": answer(*GOOD, tokens=20, end=counted(20)),
    "open after the finish, without a marker": answer(
        *GOOD[:-1], (0.12, text(" word", finish="length", usage=said(20))), tokens=20, end=b""
    ),
    "closed after the marker without the last chunk": [
        *answer(*GOOD, tokens=20, end=counted(20)),
        (0.15, CLOSE),
    ],
    "a marker without its empty line": answer(
        *GOOD,
        tokens=20,
        end=sse({"choices": [], "usage": said(20)}) + sse(b"[DONE]", end=b"") + events.LAST,
    ),
    "usage as the last event without its empty line": answer(
        *GOOD, tokens=20, end=sse({"choices": [], "usage": said(20)}, end=b"\n") + events.LAST
    ),
    "early hints": answer(
        *GOOD, tokens=20, head=b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + events.STREAMED
    ),
    "processing, twice": answer(
        *GOOD, tokens=20, head=b"HTTP/1.1 102 Processing\r\n\r\n" * 2 + events.STREAMED
    ),
    "news before the answer": answer(
        (0.0, sse({"message": "queued", "position": 3}) + sse(b"ping")), *GOOD, tokens=20
    ),
    "usage as floats": answer(
        *GOOD, tokens=20, end=sse({"choices": [], "usage": {"prompt_tokens": 3.0, "completion_tokens": 20.0}}) + sse(b"[DONE]") + events.LAST
    ),
    "usage as strings": answer(
        *GOOD, tokens=20, end=sse({"choices": [], "usage": {"prompt_tokens": "3", "completion_tokens": "20"}}) + sse(b"[DONE]") + events.LAST
    ),
    "other names": answer(
        *GOOD, tokens=20, end=sse({"choices": [], "usage": {"input_tokens": 3, "output_tokens": 20}}) + sse(b"[DONE]") + events.LAST
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ENDS)
def test_the_end_of_an_answer_is_the_protocols(case):
    with playing(ENDS[case]) as (url, requests):
        calls = make_calls(url, 3, tokens=20)
        rows, _ = here(url, calls, timeout_s=5.0)
    assert [row["error"] for row in rows] == [""] * 3 and len(requests) == 3
    assert all(row["output_tokens"] == 20 and row["prompt_tokens"] == 3 for row in rows)
    assert rows[-1]["sent_s"] - rows[0]["sent_s"] < 2.5


FAILED = {
    "the engine aborts": (
        answer(*every(5, 0.005), (0.05, text("", finish="abort")), tokens=5),
        "aborted the answer after 5 of 20 tokens",
    ),
    "the server caps": (
        answer(*every(5, 0.005), (0.05, text("", finish="length")), tokens=5),
        "caps answers at 5 tokens",
    ),
    "an answer that was cut": (
        answer(*every(5, 0.005), tokens=5, end=events.LAST),
        "without saying why",
    ),
    "an error without its frame": (
        answer(*every(5, 0.005), tokens=5, end=events.chunk(b'{"error": "engine died"}\n\n') + events.LAST),
        "engine died",
    ),
    "news and no answer": (
        answer(tokens=0, end=sse({"message": "queue full", "type": "overloaded"}) + events.LAST),
        "queue full",
    ),
    "the stop of the model": (
        answer(*every(5, 0.005), (0.05, text("", finish="stop")), tokens=5),
        "does not keep ignore_eos",
    ),
}


@pytest.mark.parametrize("case", FAILED)
def test_an_answer_that_is_not_whole_is_called_by_its_name(case):
    parts, words = FAILED[case]
    row, _ = row_of(parts, 20)
    assert words in row["error"], row["error"]


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens_details": {"cached_tokens": 2.0}},
        {"prompt_cache_hit_tokens": 2},
        {"input_tokens_details": {"cached_tokens": 2}},
        {"cache_read_input_tokens": "2"},
    ],
)
def test_cached_tokens_are_read_under_every_name(usage):
    row, _ = row_of(answer(*GOOD, tokens=20, **usage), 20)
    assert not row["error"] and row["cached_tokens"] == 2
