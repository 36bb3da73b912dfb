"""From recorded bytes to rows: which moment each token gets, and what an answer must have."""

import math
import re

import hypothesis
import numpy as np
import pytest
from answers import CLOCKS, FOUR, QUICK, ancillary, answered, chunked, event, measured, text, usage
from hypothesis import strategies as st

from bench.instrument.load import decoding, protocols


def reads(*pairs):
    """Reads at monotonic moments with stamps on the wall clock; a stamp of None is missing."""
    return [(after, ancillary(1000 + stamp) if stamp is not None else [], b"x") for after, stamp in pairs]


def test_the_kernels_stamp_counts_not_the_read():
    at, lag = decoding.moments(
        reads((1.0, 0.9), (2.0, 1.1), (2.001, 1.2)), CLOCKS
    )  # the client was busy from 1.0 to 2.0
    assert at == pytest.approx([0.9, 1.1, 1.2], abs=1e-6)
    assert lag == pytest.approx([0.1, 0.9, 0.801], abs=1e-6)


@pytest.mark.parametrize(
    "after, stamp, why",
    [(1.0, None, "missing"), (1.0, 1.5, "after the read"), (1.0, -50.0, "before the request was sent")],
)
def test_a_first_stamp_that_cannot_be_gives_way_to_the_read(after, stamp, why):
    at, lag = decoding.moments(reads((after, stamp), (2.0, 1.9)), CLOCKS, since=0.5)
    assert (
        at == pytest.approx([1.0, 1.9], abs=1e-6)
        and math.isnan(lag[0])
        and lag[1] == pytest.approx(0.1, abs=1e-6)
    ), why


@pytest.mark.parametrize("stamp", [None, 2.5, 0.2])
def test_a_later_stamp_that_cannot_be_gives_way_to_the_read(stamp):
    # 0.2 lies before the packet at 0.9: the wall clock was set back between them.
    at, lag = decoding.moments(reads((1.0, 0.9), (2.0, stamp), (3.0, 2.9)), CLOCKS)
    assert at == pytest.approx([0.9, 2.0, 2.9], abs=1e-6) and math.isnan(lag[1])


def test_a_wall_clock_that_drifts_is_followed():
    clocks = [(0.0, 1000.0), (10.0, 1000.008)]
    at, _ = decoding.moments([(5.0, ancillary(1004.904), b"x")], clocks)
    assert at == pytest.approx([4.9], abs=1e-6)


def test_ttft_never_counts_from_a_stamp_before_the_request():
    answer = answered([chunked(event(text("a")), event(usage(1)))], 1)
    answer.reads = [(10.5, ancillary(1003.0), answer.reads[0][2])]
    assert decoding.measured(answer, "completions", CLOCKS)[0]["ttft_s"] == pytest.approx(0.5)


def test_times_count_from_sending_and_scheduled_ones_from_when_they_were_due():
    row = measured(*FOUR, event(usage(4)))
    assert row["error"] == "" and row["output_tokens"] == 4 and row["prompt_tokens"] == 3
    assert row["chunks"] == 4 and row["text"] == "abcd"
    assert (row["ttft_s"], row["e2e_s"], row["first_byte_s"]) == pytest.approx(
        (0.199, 0.499, 0.099), abs=1e-6
    )
    assert [row[c] for c in ("itl_p50_s", "itl_p90_s", "itl_p99_s", "itl_max_s")] == pytest.approx(
        [0.1] * 4, abs=1e-6
    )
    late = measured(*FOUR, event(usage(4)), at_s=3.0)  # due at 9, sent at 10
    assert (late["ttft_s"], late["e2e_s"], late["sent_s"], late["late_s"]) == pytest.approx(
        (1.199, 1.499, 10.0, 0.0), abs=1e-6
    )


DISAGREE = "^Server and client disagree on token counts:"


@pytest.mark.parametrize(
    "events, why",
    [
        ([], "^The stream was empty: it had no token.$"),
        ([event(usage(0))], "The stream was empty"),
        ([event(text("")), event(usage(4))], "The stream was empty"),
        (FOUR, "cut after 4 events: the stream ended without saying why"),
        ([*FOUR, b"data: [DONE]\n\n"], "did not report usage and sent no token ids"),
        ([*FOUR, event(usage(5))], f"{DISAGREE} 5 output tokens where 4 were asked for.$"),
        ([*FOUR, event(usage(0))], "0 output tokens where 4 were asked for"),
        ([*FOUR[:3], event(usage(3))], "3 output tokens where 4 were asked for"),
        ([*FOUR, event(text("e")), event(usage(4))], f"{DISAGREE} 5 events with text, 4 output tokens"),
        ([*FOUR, event(usage(4, prompt_tokens=9))], f"{DISAGREE} 9 prompt tokens where 3 were sent"),
        ([*FOUR, event(usage("4.5"))], "could not be read .TypeError: its counts"),
        (
            [*FOUR, event(text("", finish_reason=5)), event(usage(4))],
            "could not be read .TypeError: its text",
        ),
        ([*FOUR, b"data: {}"], "cut after 4 events"),
        ([*FOUR, b"data: {\n\n", event(usage(4))], "could not be read .JSONDecodeError"),
        ([*FOUR, b"data: 5\n\n", event(usage(4))], "int instead of an object"),
        ([*FOUR, b"data: " + b"[" * 200000 + b"\n\n"], "could not be read .RecursionError"),
        (
            [*FOUR, event({"error": {"message": "out of memory", "code": 500}})],
            "reported within the stream: out of memory",
        ),
        (
            [*FOUR, event({"error": "overloaded", "error_type": "overloaded"})],
            "reported within the stream: overloaded",
        ),
    ],
)
def test_an_answer_that_cannot_be_counted_is_an_error_without_times(events, why):
    row = measured(*events)
    assert re.search(why, row["error"]), row["error"]
    assert "ttft_s" not in row and row["output_tokens"] == 0 and row["first_byte_s"] > 0


def test_a_prompt_that_nobody_counted_is_an_error_where_the_server_makes_it():
    assert (
        "how many tokens the prompt has"
        in measured(*FOUR, event(usage(4, prompt_tokens=None)), prompt_tokens=None)["error"]
    )
    assert measured(*FOUR, event(usage(4, prompt_tokens=30)), prompt_tokens=None)["prompt_tokens"] == 30


@pytest.mark.parametrize("status", [400, 429, 500, 503])
def test_what_a_refusal_says_is_in_the_error(status):
    for body, reason in (
        (b'{"error": {"message": "too long"}}', "too long"),
        (b'{"detail": "no"}', "no"),
        (b'{"message": "gone"}', "gone"),
        (b"<h1>bad\xff</h1>", "<h1>bad"),
    ):
        raw = b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)
        assert decoding.measured(answered([raw]), "completions", CLOCKS)[0]["error"].startswith(
            f"HTTP {status}: {reason}"
        )
    long = b"HTTP/1.1 500 X\r\nContent-Length: 5000\r\n\r\n" + b"x" * 5000
    assert len(decoding.measured(answered([long]), "completions", CLOCKS)[0]["error"]) < 220


def test_two_tokens_of_one_event_have_no_gap_and_are_never_one():
    two = [event(text("ab", token_ids=[5, 6])), event(text("cd", token_ids=[7, 8])), event(usage(4))]
    row = measured(*two)
    assert row["output_tokens"] == 4 and row["chunks"] == 2 and row["output_ids"] == [5, 6, 7, 8]
    assert row["first_event_tokens"] == row["arrival_tokens_max"] == 2 and np.isnan(row["itl_p50_s"])
    assert measured(*two[:2])["output_tokens"] == 4, "ids are a count where usage is missing"
    bare = measured(event(text("ab")), event(text("cd")), event(usage(4)))
    assert bare["output_tokens"] == 4 and not any(column.startswith("itl") for column in bare)
    at, texts = bare["pieces"]["at"], bare["pieces"]["texts"]
    assert texts == ["ab", "cd"] and np.diff(at) == pytest.approx([0.1], abs=1e-6)


def test_ids_that_contradict_usage_are_no_count():
    row = measured(event(text("ab", token_ids=[5])), event(text("cd", token_ids=[7, 8])), event(usage(4)))
    assert row["output_tokens"] == 4 and "pieces" in row and "itl_p50_s" not in row


def test_a_servers_own_moments_give_the_delay_of_every_event():
    row = measured(
        *(event(text(each) | {"sent_ns": int((10.15 + 0.1 * k) * 1e9)}) for k, each in enumerate("abcd")),
        event(usage(4)),
    )
    assert row["delays_s"] == pytest.approx([0.049] * 4, abs=1e-6)
    assert row["arrivals_s"] == pytest.approx([10.199, 10.299, 10.399, 10.499], abs=1e-6)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


@QUICK
@hypothesis.given(
    dialect=st.sampled_from(sorted(protocols.DIALECTS)),
    odd=st.dictionaries(
        st.sampled_from(
            (
                "choices usage error content tokens stop timings token details tokens_predicted "
                "tokens_evaluated sent_ns generated_text"
            ).split()
        ),
        JSON
        | st.lists(
            st.dictionaries(
                st.sampled_from("text delta token_ids finish_reason".split()),
                JSON | st.dictionaries(st.sampled_from(["content"]), JSON),
            ),
            max_size=2,
        )
        | st.dictionaries(
            st.sampled_from(
                (
                    "completion_tokens prompt_tokens prompt_tokens_details id text prefill generated_tokens "
                    "cache_n"
                ).split()
            ),
            JSON,
        ),
        max_size=4,
    ),
)
def test_whatever_a_server_says_becomes_a_row(dialect, odd):
    good = {
        "choices": [{"text": "a"}],
        "usage": {"completion_tokens": 4},
        "content": "a",
        "token": {"id": 1, "text": "a"},
        "tokens_predicted": 4,
    }
    for odd_one in (good | odd, odd):
        row = measured(
            *[event(good)] * 3,
            event(odd_one),
            event(good | {"stop": True, "content": "", "choices": [], "token": None}),
            dialect=dialect,
        )
        assert ("ttft_s" in row) != bool(row["error"]) and row["first_byte_s"] > 0
