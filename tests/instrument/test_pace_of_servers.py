"""Times and counts from the same tokens: servers that people have reported, each of which knows its true pace."""

import json

import numpy as np
import pytest
from answers import Words
from builders import make_rows
from loads import make_calls

from bench.instrument.load import decoding, protocols, records, sessions
from bench.instrument.reference_server import events
from bench.observations import derived, schema
from bench.topics import levels

WORD = " word"


def event(text="", usage=None, **more):
    """One event of a stream of completions as a chunk: `usage` tokens so far, where the server says so."""
    data = {"choices": [{"index": 0, "text": text, **more}]}
    data |= {"usage": {"prompt_tokens": 3, "completion_tokens": usage}} if usage is not None else {}
    return events.chunk(b"data: " + json.dumps(data).encode() + b"\n\n")


def end(tokens, **details):
    """The usage at the end of a stream."""
    usage = {"prompt_tokens": 3, "completion_tokens": tokens, **details}
    data = json.dumps({"choices": [], "usage": usage}).encode()
    return events.chunk(b"data: " + data + b"\n\n") + events.chunk(b"data: [DONE]\n\n") + events.LAST


def words(count):
    return WORD * count


def answered(parts, tokens, dialect="completions"):
    """The row of one request to a server that sends `parts`, (s after the request, bytes) each, as the study
    keeps it, and its TPOT, s."""
    (call,) = make_calls("http://127.0.0.1:1", tokens=tokens, dialect=dialect)
    answer = records.Answer(call, 0.0, begun=0.0, sent=0.0, ended=parts[-1][0])
    answer.reads = [(at_s, None, data) for at_s, data in parts]
    row, _ = decoding.measured(answer, dialect, [(0.0, 0.0)])
    row = decoding.with_gaps(row, Words().encode)
    table = derived.derive(schema.numbers(schema.frame([row]).assign(**dict.fromkeys(schema.CONTEXT))))
    assert not row["error"], row["error"]
    return row, float(table["tpot_s"].iloc[0])


def streamed(tokens, each_s, first_s, make, last):
    """Parts: the head, an event of `make(k)` for each token k every `each_s` from `first_s` on, then `last`."""
    parts = [(0, events.STREAMED)]
    parts += [(first_s + k * each_s, made) for k in range(tokens) if (made := make(k))]
    return [*parts, (first_s + (tokens - 1) * each_s, last)]


@pytest.mark.parametrize("said", ["ids", "usage", "text"])
def test_the_tokens_of_the_first_event_are_no_gaps(said):
    """64 tokens, 10 ms each, of which the first event holds 48: the pace is 10 ms, not 2.6."""

    def make(k):
        if k < 47:
            return b""
        count = 48 if k == 47 else 1
        return event(
            words(count),
            usage=k + 1 if said == "usage" else None,
            **({"token_ids": [7] * count} if said == "ids" else {}),
        )

    row, tpot_s = answered(streamed(64, 0.01, 0.01, make, end(64)), 64)
    assert row["first_event_tokens"] == 48 and not row.get("unmeasured")
    assert tpot_s == pytest.approx(0.01)


def test_tokens_without_text_count_from_the_moment_that_usage_grows():
    """20 tokens at 20 ms, the first five without text: the first came after 50 ms, not after 150."""
    row, tpot_s = answered(
        streamed(20, 0.02, 0.05, lambda k: event(WORD if k >= 5 else "", usage=k + 1), end(20)), 20
    )
    assert row["ttft_s"] == pytest.approx(0.05, abs=1e-6) and row["first_event_tokens"] == 1
    assert tpot_s == pytest.approx(0.02)


@pytest.mark.parametrize(("shown", "counted"), [(28, 128), (10, 20), (24, 32)])
def test_tokens_that_never_came_have_no_pace(shown, counted):
    """Reasoning that is counted and not sent, or usage that counts more than came: TPOT is empty, with a
    reason, never a half of the truth; TTFT is the first text's."""
    hidden = counted - shown
    details = {"completion_tokens_details": {"reasoning_tokens": hidden}}
    parts = streamed(
        counted, 0.002, 0.02, lambda k: event(WORD) if k >= hidden else b"", end(counted, **details)
    )
    row, tpot_s = answered(parts, counted)
    assert np.isnan(tpot_s) and row["ttft_s"] > 0 and "first_event_tokens" not in row
    assert f"is {shown} tokens, and the server counts {counted} (it counts {hidden}" in row["unmeasured"]


@pytest.mark.parametrize("count", [1, 3, 8, 16, 32])
def test_an_answer_that_came_at_its_end_has_throughput_and_no_pace(count):
    """64 tokens after 0.3 s, in one event or many: throughput is true, and no objective on a time is met."""
    size = 64 // count
    sizes = [size] * (count - 1) + [64 - size * (count - 1)]
    parts = [(0, events.STREAMED)] + [(0.3 + k * 5e-5, event(words(n))) for k, n in enumerate(sizes)]
    row, tpot_s = answered([*parts, (0.3, end(64))], 64)
    assert np.isnan(row["ttft_s"]) and np.isnan(tpot_s) and "Not streamed" in row["unmeasured"]
    rows = make_rows(n=20, experiment="serving", tokens=64, concurrency=1.0)
    rows = [
        one | row | {"request": k, "sent_s": k * 0.3, "output_ids": "", "e2e_s": 0.3}
        for k, one in enumerate(rows)
    ]
    table = derived.derive(schema.numbers(schema.frame(rows).assign(**dict.fromkeys(schema.CONTEXT))))
    (level,) = levels.levels(table, {"ttft_s": 1.0, "tpot_s": 1.0}).to_dict("records")
    assert level["output_tokens_per_s"] == pytest.approx(64 / 0.3)
    assert level["met"] == 0 and np.isnan(level["tpot_p50_s"]) and np.isnan(level["ttft_p50_s"])


def test_a_long_wait_before_a_steady_stream_is_no_lump():
    """In a queue of a second, 16 tokens at 2 ms are the last 3 % of the time: they were streamed."""
    row, tpot_s = answered(streamed(16, 0.002, 1.0, lambda k: event(WORD), end(16)), 16)
    assert row["ttft_s"] == pytest.approx(1.0) and tpot_s == pytest.approx(0.002)


@pytest.mark.parametrize("spelling", ["reasoning", "reasoning_content", "both"])
def test_thoughts_and_answer_have_a_first_token_each(spelling):
    """15 tokens of thought, 5 of the answer; a server that sends both spellings sends each thought once."""
    names = ["reasoning", "reasoning_content"] if spelling == "both" else [spelling]

    def make(k):
        delta = dict.fromkeys(names, " hm") if k < 15 else {"content": " ok"}
        return event(delta=delta)

    row, tpot_s = answered(streamed(20, 0.01, 0.05, make, end(20)), 20, "chat")
    assert row["text"] == " hm" * 15 + " ok" * 5 and row["content"] == " ok" * 5
    assert row["ttft_s"] == pytest.approx(0.05)
    assert row["answer_ttft_s"] == pytest.approx(0.2) and tpot_s == pytest.approx(0.01)


def test_a_history_of_own_answers_has_no_thoughts():
    """The second turn of a chat carries what the model answered, not what it thought."""
    asked = protocols.Prompt((1, 2), "a b", 20, (("user", "a b"),))
    added = protocols.Prompt((3,), "c", 20)
    sent = []
    first = sessions.Own(lambda prompt: b"", asked, asked)
    second = sessions.Own(lambda prompt: sent.append(prompt) or b"whole", None, added)
    before = records.Answer(records.Call(1, b"", None, None, 20, own=first), 0.0)
    row = {"text": " hm hm ok ok", "content": " ok ok", "output_ids": [], "output_tokens": 4}
    second.follow(records.Call(2, b"", None, None, 20, own=second), before, row, Words().encode)
    assert sent[0].messages == (("user", "a b"), ("assistant", " ok ok"), ("user", "c"))
    assert "hm" not in sent[0].text
