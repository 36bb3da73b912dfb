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


@pytest.mark.parametrize("step_s", [-0.5, 0.05, 3600])
def test_a_step_of_the_wall_clock_is_cut_out(step_s):
    """Reads every 10 ms, the clock set after the fiftieth: no gap is another, whichever way it was set."""
    true_s = 10 + 0.01 * np.arange(100)
    walls = 1000 + true_s + step_s * (np.arange(100) >= 50)
    reads = [(moment + 2e-4, ancillary(wall), b"x") for moment, wall in zip(true_s, walls)]
    at, _ = decoding.moments(reads, [(9.99, 1000.0), (11.0, 1000.0 + step_s)])
    assert np.diff(at) == pytest.approx(0.01, abs=3e-4) and at == pytest.approx(true_s, abs=3e-4)


def test_ttft_never_counts_from_a_stamp_before_the_request():
    answer = answered([chunked(event(text("a")), event(usage(1)))], 1)
    answer.reads = [(10.5, ancillary(1003.0), answer.reads[0][2])]
    assert decoding.measured(answer, "completions", CLOCKS)[0]["ttft_s"] == pytest.approx(0.5)


DISAGREE = "^Server and client disagree on token counts:"


@pytest.mark.parametrize(
    "events, why",
    [
        ([], "^The stream was empty: it had no token.$"),
        ([event(usage(0))], "The stream was empty"),
        ([event(text("")), event(usage(4))], "The stream was empty"),
        (FOUR, "cut after 4 events: the stream ended without saying why"),
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
