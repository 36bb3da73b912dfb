"""What an answer over a socket is worth: arrivals, texts, disagreements and ends, three servers a kind."""

import json
import math

import numpy as np
import pytest
from builders import make_rows
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

from bench.instrument.load import decoding, protocols, records, sessions
from bench.instrument.reference_server import events
from bench.observations import derived, schema
from bench.topics import levels
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
    row, sent = row_of(answer(*every(tokens, itl_s, per=per), tokens=tokens), tokens)
    assert not row["error"] and row["chunks"] == tokens
    assert row["first_event_tokens"] == row["arrival_tokens_max"] == per
    assert row["arrival_tokens_mean"] == pytest.approx(tokens / math.ceil(tokens / per))
    assert tpot_s(row) == pytest.approx((sent[-2] - sent[1]) / (tokens - per), rel=0.1)
    assert ("itl_p50_s" in row and row["itl_p50_s"] > 0) == (tokens / per > 3)


@pytest.mark.parametrize("waited_s", [0.02, 0.3, 1.5])
@pytest.mark.parametrize("itl_s", [0.0001, 0.0005, 0.001])
def test_a_steady_stream_after_any_wait_is_streamed(waited_s, itl_s):
    row, sent = row_of(answer(*every(256, itl_s, first_s=waited_s), tokens=256), 256)
    assert not row["error"] and not row.get("unmeasured")
    assert row["ttft_s"] == pytest.approx(sent[1] - row["sent_s"], abs=SLACK_S)
    assert tpot_s(row) == pytest.approx((sent[-2] - sent[1]) / 255, rel=0.1)


DRAFTS = {
    "one to four": (1, 4, 2, 3, 4, 1, 2, 3),
    "mostly five": (5, 5, 1, 5, 5, 4, 5),
    "now and then": (1,) * 9 + (7,),
}


@pytest.mark.parametrize("case", DRAFTS)
def test_an_engine_that_drafts_has_its_own_pace_and_gaps(case):
    """Several tokens in an event, 20 ms a step: ITL is a step, TPOT what a token takes."""
    sizes = DRAFTS[case]
    parts = [(0.03 + 0.02 * k, text(" word" * size)) for k, size in enumerate(sizes)]
    row, sent = row_of(answer(*parts, tokens=sum(sizes)), sum(sizes))
    assert not row["error"] and not row.get("unmeasured") and row["first_event_tokens"] == sizes[0]
    assert row["arrival_tokens_max"] == max(sizes) and row["itl_p50_s"] == pytest.approx(
        np.median(np.diff(sent[1:-1])), rel=0.2
    )
    assert tpot_s(row) == pytest.approx((sent[-2] - sent[1]) / sum(sizes[1:]), rel=0.05)


LUMPS = {
    "one packet": answer((0.2, text(" word") * 30), tokens=30),
    "a first token, then all": answer((0.02, text(" word")), (0.3, text(" word") * 29), tokens=30),
    "one event": answer((0.2, text(" word" * 30)), tokens=30),
}


@pytest.mark.parametrize("case", LUMPS)
def test_one_arrival_with_most_tokens_is_not_streamed(case):
    row, sent = row_of(LUMPS[case], 30)
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
    row, sent = row_of(answer(*parts, tokens=20), 20, "chat")
    assert not row["error"] and not row.get("unmeasured")
    assert row["ttft_s"] == pytest.approx(sent[1] - row["sent_s"], abs=SLACK_S) and row["chunks"] == 20
    assert tpot_s(row) == pytest.approx((sent[-2] - sent[1]) / 19, rel=0.1)


BOM = b"\xef\xbb\xbf"


@pytest.mark.parametrize("mark", [BOM, b"\n\n" + BOM, b": hello\n\n"])
def test_bytes_before_the_stream_cost_no_token(mark):
    first = b"data: " + json.dumps({"choices": [{"text": " word"}]}).encode() + b"\n\n"
    parts = [(0.03, events.chunk(mark + first)), *every(20, 0.01, first_s=0.03, start=1)]
    row, sent = row_of(answer(*parts, tokens=20), 20)
    assert not row["error"] and row["chunks"] == 20
    assert row["ttft_s"] == pytest.approx(sent[1] - row["sent_s"], abs=SLACK_S)


@pytest.mark.parametrize("name", ["audio_transcript", "x_plan", "diff"])
def test_a_field_that_is_not_known_is_named_and_empties_the_wait(name):
    """Its text may have come first: TTFT is as unknown as the pace, the total rate is not."""
    parts = [(0.03 + 0.01 * k, delta(**({name: " x"} if k < 10 else {"content": " b"}))) for k in range(20)]
    row, sent = row_of(answer(*parts, tokens=20), 20, "chat")
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
    row, sent = row_of(AGREE[case], 20)
    assert not row["error"] and not row.get("unmeasured")
    assert row["ttft_s"] > 0 and tpot_s(row) == pytest.approx(0.01, rel=0.5)


SAYS = {  # how a server says that its k-th event has n tokens
    "ids": lambda k, n: {"token_ids": [7] * n},
    "usage": lambda k, n: {"usage": said(k + 1)},
    "its text alone": lambda k, n: {},
}


@pytest.mark.parametrize("case", SAYS)
def test_the_tokens_of_the_first_event_are_no_gaps(case):
    """64 tokens, 10 ms each, of which the first event holds 48: the pace is 10 ms, not 2.6."""
    sizes = [(k, 48 if k == 47 else 1) for k in range(47, 64)]
    parts = [(0.01 * (k + 1), text(" word" * n, **SAYS[case](k, n))) for k, n in sizes]
    row, sent = row_of(answer(*parts, tokens=64), 64)
    assert row["first_event_tokens"] == 48 and not row["error"] and not row.get("unmeasured")
    assert tpot_s(row) == pytest.approx((sent[-2] - sent[1]) / 16, rel=0.05)


def test_tokens_without_text_count_from_the_moment_that_usage_grows():
    """20 tokens at 10 ms, the first five without text: the first came after 50 ms, not after 100."""
    parts = [(0.05 + 0.01 * k, text(" word" * (k >= 5), usage=said(k + 1))) for k in range(20)]
    row, sent = row_of(answer(*parts, tokens=20), 20)
    assert row["first_event_tokens"] == 1 and row["ttft_s"] == pytest.approx(
        sent[1] - row["sent_s"], abs=SLACK_S
    )
    assert tpot_s(row) == pytest.approx((sent[-2] - sent[1]) / 19, rel=0.05)


@pytest.mark.parametrize("names", [["reasoning"], ["reasoning_content"], ["reasoning", "reasoning_content"]])
def test_thoughts_and_answer_have_a_first_token_each(names):
    """A server that sends both spellings sends each thought once."""
    deltas = [dict.fromkeys(names, " hm")] * 15 + [{"content": " ok"}] * 5
    parts = [(0.05 + 0.01 * k, delta(**fields)) for k, fields in enumerate(deltas)]
    row, sent = row_of(answer(*parts, tokens=20), 20, "chat")
    assert row["text"] == " hm" * 15 + " ok" * 5 and row["content"] == " ok" * 5
    assert row["answer_ttft_s"] - row["ttft_s"] == pytest.approx(sent[16] - sent[1], abs=0.005)


def test_a_history_of_own_answers_has_no_thoughts():
    """The second turn of a chat carries what the model answered, not what it thought."""
    asked = protocols.Prompt((1, 2), "a b", 20, (("user", "a b"),))
    added, history = protocols.Prompt((3,), "c", 20), []
    first = sessions.Own(lambda prompt: b"", asked, asked)
    second = sessions.Own(lambda prompt: history.append(prompt) or b"whole", None, added)
    before = records.Answer(records.Call(1, b"", None, None, 20, own=first), 0.0)
    row = {"text": " hm hm ok ok", "content": " ok ok", "output_ids": [], "output_tokens": 4}
    second.follow(records.Call(2, b"", None, None, 20, own=second), before, row, str.split)
    assert history[0].messages == (("user", "a b"), ("assistant", " ok ok"), ("user", "c"))
    assert "hm" not in history[0].text


@pytest.mark.parametrize("count", [1, 32])
def test_an_answer_that_came_at_its_end_has_throughput_and_no_pace(count):
    """64 tokens after 0.3 s, in one read or flushed event by event: no objective on a time is met."""
    call = make_calls("http://127.0.0.1:1", tokens=64)[0]
    kept = records.Answer(call, 0.0, begun=0.0, sent=0.0, ended=0.3)
    flushed = [(0.3 + 5e-5 * k, None, text(" word" * (64 // count))) for k in range(count)]
    kept.reads = [
        (0.0, None, events.STREAMED),
        *flushed,
        (0.3 + 5e-5 * count, None, counted(64) + events.LAST),
    ]
    row = decoding.with_gaps(decoding.measured(kept, "completions", [(0.0, 0.0)])[0], str.split)
    assert math.isnan(tpot_s(row)) and math.isnan(row["itl_p50_s"])
    assert (row["ttft_s"] == pytest.approx(0.3)) == (count == 32), (
        "32 arrivals: the first one's moment is known"
    )
    assert ("No pace" if count == 32 else "Not streamed") in row["unmeasured"]
    rows = make_rows(n=20, experiment="serving", tokens=64, concurrency=1.0)
    more = {"output_ids": "", "e2e_s": 0.3}
    rows = [one | row | more | {"request": k, "sent_s": k * 0.3} for k, one in enumerate(rows)]
    table = derived.derive(schema.numbers(schema.frame(rows).assign(**dict.fromkeys(schema.CONTEXT))))
    (level,) = levels.levels(table, {"ttft_s": 1.0, "tpot_s": 1.0}).to_dict("records")
    assert level["output_tokens_per_s"] == pytest.approx(64 / 0.3)
    assert level["met"] == 0 and math.isnan(level["tpot_p50_s"])


HIDDEN = {  # name: (parts, whether TTFT stands, whether anybody says the end)
    "thoughts that are counted only": (
        answer(*every(20, 0.01, first_s=0.1), (0.3, text("", finish="length")), tokens=60, completion_tokens_details={"reasoning_tokens": 40}),
        True,
        True,
    ),
    "an empty event that may have been a token": (
        answer((0.03, text("")), *every(20, 0.01, first_s=0.1), (0.3, text("", finish="length")), tokens=60),
        False,
        True,
    ),
    "tokens after the last text that nobody ends": (
        answer(*every(20, 0.01, first_s=0.02), tokens=60, end=sse({"choices": [], "usage": said(60)}) + events.LAST),
        True,
        False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", HIDDEN)
def test_more_tokens_than_text_empty_what_hangs_on_them(case):
    parts, waited, ended = HIDDEN[case]
    row, sent = row_of(parts, 60)
    assert not row["error"] and "disagree" in row["unmeasured"] and math.isnan(tpot_s(row))
    assert ("it counts 40 of them as reasoning" in row["unmeasured"]) == case.startswith("thoughts")
    assert math.isnan(row["ttft_s"]) != waited
    assert math.isnan(row["e2e_s"]) == (not ended)
    if ended:
        assert row["e2e_s"] == pytest.approx(sent[-2] - row["sent_s"], abs=SLACK_S)


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
        "after 5 of 20 tokens (finish_reason 'abort'): the engine aborted it",
    ),
    "the server caps": (
        answer(*every(5, 0.005), (0.05, text("", finish="length")), tokens=5),
        "after 5 of 20 tokens (finish_reason 'length'): the server caps answers",
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
    row, sent = row_of(parts, 20)
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
    row, sent = row_of(answer(*GOOD, tokens=20, **usage), 20)
    assert not row["error"] and row["cached_tokens"] == 2
