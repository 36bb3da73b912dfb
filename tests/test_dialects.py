"""From bytes to tokens without a socket: HTTP cut anywhere, what each dialect's events mean, and which moment each of them gets."""

import json
import math
import re
import struct

import hypothesis
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from bench.instrument.load import connection, decoding, http1, protocols, records

PROMPT = protocols.Prompt((11, 12, 13), "one two three", 4)
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
CLOCKS = [(0.0, 1000.0)]  # the wall clock is 1,000 s ahead of the monotonic one
QUICK = settings(max_examples=150, deadline=None)


def chunked(*parts, end=b"0\r\n\r\n"):
    """A streamed response with each of `parts` in a chunk of its own."""
    return CHUNKED + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + end


def event(content, end=b"\n\n", field=b"data: "):
    """One server-sent event of an object."""
    return field + json.dumps(content).encode() + end


def text(content, **more):
    """A completions event with this text."""
    return {"choices": [{"index": 0, "text": content, **more}]}


def usage(output_tokens, prompt_tokens=3, **more):
    """A completions event with usage and without choices."""
    return {
        "choices": [],
        "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": output_tokens, **more},
    }


def cut(raw, places):
    """`raw` in pieces that end at `places`."""
    ends = sorted({place % len(raw) for place in places} - {0})
    return [raw[a:b] for a, b in zip([0, *ends], [*ends, len(raw)])]


def answered(pieces, new_tokens=4, at_s=None, prompt_tokens=3, due=9.0, sent=10.0):
    """An Answer whose k-th read came 0.1 s after the one before, the first at 10.1 s, the kernel's stamp 1 ms before each."""
    reads = [
        (sent + 0.1 * (k + 1), ancillary(1000 + sent + 0.1 * (k + 1) - 0.001), piece)
        for k, piece in enumerate(pieces)
    ]
    return records.Answer(records.Call(1, b"", at_s, prompt_tokens, new_tokens), due, due, due, sent, reads)


def ancillary(wall_s):
    """What recvmsg gives for a kernel's stamp."""
    return [(1, 35, struct.pack("@ll", int(wall_s), round(wall_s % 1 * 1e9)))]


def measured(*events, dialect="completions", **more):
    """The row of an answer whose events came one by one."""
    raw = [CHUNKED, *(b"%x\r\n%s\r\n" % (len(part), part) for part in events), b"0\r\n\r\n"]
    return decoding.measured(answered(raw, **more), dialect, CLOCKS)[0]


# --- HTTP and events -------------------------------------------------------------------------------------------------------------------


def ended(pieces):
    """(after how many reads the client takes the response for complete, whether it keeps the connection).

    None in the place of the reads: never. The reads are fed as `connection.Stream` gets them.
    """
    left = list(pieces)

    class Socket:
        def recvmsg(self, most, more):
            return (left.pop(0) if left else b""), [], 0, None

    stream = connection.Stream(Socket())
    answer = records.Answer(records.Call(1, b"", None, 3, 4), 0.0)
    stream.carry(answer, reused=False)
    for _ in range(len(pieces) + 1):
        try:
            if stream.receive():
                return len(answer.reads), stream.head.stays_open
        except (OSError, http1.Broken):
            return None, False
    raise AssertionError("an end of the connection is an end")


LINE_ENDS = [b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n"]


@QUICK
@hypothesis.given(
    texts=st.lists(st.text(alphabet='aé"0\\\n\r%🙂', min_size=1, max_size=8), min_size=1, max_size=6),
    ends=st.lists(st.sampled_from(LINE_ENDS), min_size=8, max_size=8), places=st.lists(st.integers(0, 5000), max_size=30),
    chunks=st.lists(st.integers(0, 2000), max_size=6), trailer=st.sampled_from([b"0\r\n\r\n", b"0\r\nTook: 5\r\nAnd: 0\r\n\r\n", b"000;x=y\r\n\r\n"]),
)  # fmt: skip
def test_any_way_of_cutting_the_bytes_gives_the_same_answer(texts, ends, places, chunks, trailer):
    events = [event(text(each), end) for each, end in zip(texts, ends)] + [
        event(usage(len(texts))),
        b"data: [DONE]\n\n",
    ]
    raw = chunked(*cut(b"".join(events), chunks), end=trailer)
    pieces = cut(raw, places)
    assert ended(pieces)[0] == len(pieces), "the end is seen with the last byte, not before and not never"
    row, _ = decoding.measured(answered(pieces, len(texts)), "completions", CLOCKS)
    assert (
        row["error"] == ""
        and row["text"] == "".join(texts)
        and row["chunks"] == row["output_tokens"] == len(texts)
    )
    # Every event's moment is that of the piece with the last byte of its data, found here byte by byte; the empty line after it says nothing new.
    piece_of = np.repeat(np.arange(len(pieces)), [len(piece) for piece in pieces])
    body = [
        at for _, raw_at, size in http1.body(raw, http1.head(raw))[1] for at in range(raw_at, raw_at + size)
    ]
    last = np.cumsum([len(each) for each in events])[: len(texts)] - [
        len(end) + 1 for end in ends[: len(texts)]
    ]
    expected = [10 + 0.1 * (piece_of[body[k]] + 1) - 0.001 for k in last]
    assert row["ttft_s"] == pytest.approx(expected[0] - 10, abs=1e-6) and row["e2e_s"] == pytest.approx(
        expected[-1] - 10, abs=1e-6
    )
    assert (
        row["itl_max_s"] == pytest.approx(np.diff(expected).max(), abs=1e-6)
        if len(texts) > 1
        else math.isnan(row["itl_max_s"])
    )


@QUICK
@hypothesis.given(places=st.lists(st.integers(0, 5000), max_size=20), missing=st.integers(1, 60))
def test_a_response_that_lacks_its_end_is_never_complete(places, missing):
    raw = chunked(*(event(text("a")) for _ in range(4)), event(usage(4)), end=b"0\r\nTook: 5\r\n\r\n")[
        :-missing
    ]
    assert ended(cut(raw, places))[0] is None


@pytest.mark.parametrize("places", [(), (3,), (20, 21, 22), range(1, 200)])
def test_a_response_with_a_length_or_none_at_all(places):
    body = event(text("a"), b"\r\n\r\n", b"data:") * 3 + event(usage(3))
    for head, keeps in (
        (b"Content-Length: %d\r\n" % len(body), True),
        (b"Connection: close\r\n", False),
        (b"Connection: close\r\nContent-Length: %d\r\n" % len(body), False),
    ):
        pieces = cut(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n" + body, places)
        reads, kept = ended(pieces)
        assert reads == len(pieces) + (b"Length" not in head) and kept == keeps
        assert decoding.measured(answered([*pieces, b""][:reads], 3), "completions", CLOCKS)[0]["chunks"] == 3


def test_a_body_shorter_than_its_length_is_an_error():
    body = event(text("a")) + event(usage(1))
    short = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(body) + 1) + body
    assert ended([short])[0] is None
    assert (
        "in the middle of an event"
        in decoding.measured(answered([short], 1), "completions", CLOCKS)[0]["error"]
    )


def test_events_are_lines_up_to_an_empty_one():
    mixed = b": ping\n\ndata:no blank\n\nevent: x\r\ndata: two\r\ndata:  lines\r\nid: 7\r\n\r\ndata: a\rdata: b\r\rretry: 5\n\ndata: c\n\r\ndata: left"
    found, rest = http1.events(mixed)
    assert [data for data, _ in found] == [b"no blank", b"two\n lines", b"a\nb", b"c"] and rest
    assert [mixed[:end].rpartition(b"\n")[2] for _, end in found] == [
        b"data:no blank",
        b"id: 7",
        b"data: a\rdata: b",
        b"data: c",
    ]
    assert http1.events(b"data: a\n\n\n \n") == ([(b"a", 7)], False)


@pytest.mark.parametrize("length", [b"zz", b"", b"-6", b"+6", b"0x6", b"1_0", b"f" * 17])
def test_a_chunk_without_a_length_is_broken_and_never_walked_for_ever(length):
    with pytest.raises(http1.Broken, match="a chunk has no length"):
        http1.Chunks(0).feed(length + b"\r\nabcdef\r\n0\r\n\r\n")


def test_what_only_looks_like_an_end_is_an_error_of_that_answer():
    broken = chunked(event(text("a")), end=b"zz\r\ndata: {}\n\n\r\n0\r\n\r\n")
    assert ended([broken])[0] == 1, "the end is known by its bytes, and walked through when the run is over"
    assert "a chunk has no length" in decoding.measured(answered([broken]), "completions", CLOCKS)[0]["error"]


def test_a_chunk_counts_when_all_of_it_is_there():
    walk = http1.Chunks(0)
    assert not walk.feed(b"5\r\nabcd") and walk.pieces == []
    assert not walk.feed(b"e\r") and walk.pieces == []
    assert not walk.feed(b"\n2\r\nfg\r\n0\r\n") and walk.pieces == [(0, 3, 5), (5, 13, 2)]
    assert walk.feed(b"\r\n") and walk.complete


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 200 " + b"x" * 70000,
    ],
)
def test_what_is_no_http_is_named(data):
    with pytest.raises(http1.Broken, match="the answer is no HTTP"):
        http1.head(data)


def test_a_head_is_read_when_it_is_complete():
    assert http1.head(b"HT") is None and http1.head(b"HTTP/1.1 200 OK\r\nA: b\r\n") is None
    head = http1.head(b"HTTP/1.1 429 Too Many\r\nCONTENT-length: 5\r\nx:y:z\r\n\r\nabc")
    assert (head.status, head.length, head.chunked, head.stays_open, head.fields["x"], head.start) == (
        429,
        5,
        False,
        True,
        "y:z",
        51,
    )
    both = http1.head(
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: Chunked\r\nConnection: close\r\n\r\n"
    )
    assert both.length is None and both.chunked and not both.stays_open


# --- moments ---------------------------------------------------------------------------------------------------------------------------


def reads(*pairs):
    """Reads at monotonic moments with stamps on the wall clock; a stamp of None is missing."""
    return [(after, ancillary(1000 + stamp) if stamp is not None else [], b"x") for after, stamp in pairs]


def test_the_kernels_stamp_counts_not_the_read():
    at, lag = decoding.moments(
        reads((1.0, 0.9), (2.0, 1.1), (2.001, 1.2)), CLOCKS
    )  # the client was busy from 1.0 to 2.0
    assert at == pytest.approx([0.9, 1.1, 1.2], abs=1e-6) and lag == pytest.approx(
        [0.1, 0.9, 0.801], abs=1e-6
    )


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
    clocks = [(0.0, 1000.0), (10.0, 1001.0)]
    at, _ = decoding.moments([(5.0, ancillary(1005.4), b"x")], clocks)
    assert at == pytest.approx([4.9], abs=1e-6)


def test_ttft_never_counts_from_a_stamp_before_the_request():
    answer = answered([chunked(event(text("a")), event(usage(1)))], 1)
    answer.reads = [(10.5, ancillary(1003.0), answer.reads[0][2])]
    assert decoding.measured(answer, "completions", CLOCKS)[0]["ttft_s"] == pytest.approx(0.5)


# --- what an answer must say -----------------------------------------------------------------------------------------------------------

FOUR = [event(text(each)) for each in "abcd"]


def test_times_count_from_sending_and_scheduled_ones_from_when_they_were_due():
    row = measured(*FOUR, event(usage(4)))
    assert (
        row["error"] == ""
        and row["output_tokens"] == 4
        and row["prompt_tokens"] == 3
        and row["chunks"] == 4
        and row["text"] == "abcd"
    )
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


@pytest.mark.parametrize(
    "events, why",
    [
        ([], "The stream was empty"),
        ([event(usage(0))], "The stream was empty"),
        ([event(text("")), event(usage(4))], "The stream was empty"),
        (FOUR, "did not report usage and sent no token ids"),
        ([*FOUR, event(usage(5))], "5 output tokens where 4 were asked for"),
        ([*FOUR, event(usage(0))], "0 output tokens where 4 were asked for"),
        ([*FOUR[:3], event(usage(3))], "3 output tokens where 4 were asked for"),
        ([*FOUR, event(text("e")), event(usage(4))], "5 events with text, 4 output tokens"),
        ([*FOUR, event(usage(4, prompt_tokens=9))], "9 prompt tokens where 3 were sent"),
        ([*FOUR, event(usage("4"))], "could not be read .TypeError: its counts"),
        (
            [*FOUR, event(text("", finish_reason=5)), event(usage(4))],
            "could not be read .TypeError: its text",
        ),
        ([*FOUR, b"data: {}"], "in the middle of an event"),
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
    assert row["itl_p50_s"] == pytest.approx(0.0) and row["itl_max_s"] == pytest.approx(0.1, abs=1e-6)
    assert measured(*two[:2])["output_tokens"] == 4, "ids are a count where usage is missing"
    bare = measured(event(text("ab")), event(text("cd")), event(usage(4)))
    assert bare["output_tokens"] == 4 and not any(column.startswith("itl") for column in bare)
    at, texts = bare["pieces"]
    assert texts == ["ab", "cd"] and np.diff(at) == pytest.approx([0.1], abs=1e-6)


def test_ids_that_contradict_usage_are_no_count():
    row = measured(event(text("ab", token_ids=[5])), event(text("cd", token_ids=[7, 8])), event(usage(4)))
    assert row["output_tokens"] == 4 and "pieces" in row and "itl_p50_s" not in row


def test_a_servers_own_moments_give_the_delay_of_every_event():
    row = measured(
        *(event(text(each) | {"sent_ns": int((10.15 + 0.1 * k) * 1e9)}) for k, each in enumerate("abcd")),
        event(usage(4)),
    )
    assert row["delays_s"] == pytest.approx([0.049] * 4, abs=1e-6) and row["arrivals_s"] == pytest.approx(
        [10.199, 10.299, 10.399, 10.499], abs=1e-6
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


@QUICK
@hypothesis.given(
    dialect=st.sampled_from(sorted(protocols.DIALECTS)),
    odd=st.dictionaries(
        st.sampled_from("choices usage error content tokens stop timings token details tokens_predicted tokens_evaluated sent_ns generated_text".split()),
        JSON | st.lists(st.dictionaries(st.sampled_from("text delta token_ids finish_reason".split()), JSON | st.dictionaries(st.sampled_from(["content"]), JSON)), max_size=2)
        | st.dictionaries(st.sampled_from("completion_tokens prompt_tokens prompt_tokens_details id text prefill generated_tokens cache_n".split()), JSON), max_size=4,
    ),
)  # fmt: skip
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


# --- dialects --------------------------------------------------------------------------------------------------------------------------


def sent(dialect, url="http://user@here:81/v/", more=None, token=""):
    """(first line, header fields, body) of a request."""
    head, _, body = protocols.request(dialect, url, PROMPT, "m", more, token).partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return first, dict(line.split(": ", 1) for line in lines), json.loads(body)


@pytest.mark.parametrize(
    "dialect, path, expected",
    [
        ("completions", "/v1/completions", {"model": "m", "prompt": [11, 12, 13], "max_tokens": 4, "temperature": 0, "echo": False, "stream": True, "stream_options": {"include_usage": True}}),
        ("text", "/v1/completions", {"model": "m", "prompt": "one two three", "max_tokens": 4, "temperature": 0, "echo": False, "stream": True, "stream_options": {"include_usage": True}}),
        (
            "chat", "/v1/chat/completions",
            {"model": "m", "messages": [{"role": "user", "content": "one two three"}], "max_tokens": 4, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}},
        ),
        ("llamacpp", "/completion", {"prompt": [11, 12, 13], "n_predict": 4, "temperature": 0, "stream": True, "return_tokens": True}),
        ("tgi", "/generate_stream", {"inputs": "one two three", "parameters": {"max_new_tokens": 4, "do_sample": False, "details": True, "decoder_input_details": False}}),
    ],
)  # fmt: skip
def test_what_is_sent(dialect, path, expected):
    first, fields, body = sent(dialect)
    assert first == f"POST /v{path} HTTP/1.1" and body == expected
    assert (
        fields["Host"] == "here:81"
        and int(fields["Content-Length"]) == len(json.dumps(expected))
        and "Authorization" not in fields
    )


def test_more_goes_into_the_body_and_the_token_into_the_header():
    assert sent("completions", more={"ignore_eos": True})[2]["ignore_eos"] is True
    assert sent("tgi", more={"seed": 1})[2]["parameters"]["seed"] == 1
    assert sent("chat", token="secret")[1]["Authorization"] == "Bearer secret"
    with pytest.raises(ValueError, match="Did you mean 'completions'"):
        protocols.request("completion", "http://here", PROMPT, "m")


@pytest.mark.parametrize("dialect", protocols.DIALECTS)
def test_a_prompt_that_comes_back_is_known_where_it_was_sent_as_text(dialect):
    payload = protocols.request(dialect, "http://here", PROMPT, "m")
    assert protocols.echoed(payload, "one two three and more") == (dialect in ("text", "chat", "tgi"))
    assert not protocols.echoed(payload, "one two") and not protocols.echoed(b"", "one two three")


def test_completions_with_usage_in_every_event():
    every = [
        event(text(each) | {"usage": {"prompt_tokens": 3, "completion_tokens": k + 1}})
        for k, each in enumerate("abcd")
    ]
    row = measured(*every, event(text("", finish_reason="length")), b"data: [DONE]\n\n")
    assert row["error"] == "" and row["output_tokens"] == 4 and row["finish_reason"] == "length"


def test_a_prompt_from_the_cache_is_told():
    assert measured(*FOUR, event(usage(4, prompt_tokens_details={"cached_tokens": 2})))["cached_tokens"] == 2
    assert measured(*FOUR, event(usage(4, prompt_tokens_details=None)))["cached_tokens"] is None


def delta(**content):
    return event({"choices": [{"index": 0, "delta": content, "finish_reason": None}]})


def test_a_chat_begins_with_a_role_which_is_no_token():
    row = measured(
        delta(role="assistant", content=""),
        *(delta(content=each) for each in "abcd"),
        event(usage(4, 30)),
        dialect="chat",
        prompt_tokens=None,
    )
    assert row["error"] == "" and row["chunks"] == 4 and row["ttft_s"] == pytest.approx(0.299, abs=1e-6)


def test_reasoning_is_tokens():
    row = measured(
        delta(reasoning_content="a", content=None),
        delta(reasoning="b"),
        delta(content="c"),
        delta(content="d"),
        event(usage(4)),
        dialect="chat",
    )
    assert row["error"] == "" and row["text"] == "abcd" and row["chunks"] == 4


def test_tgi_says_ids_and_the_counts_at_the_end():
    def part(number, word, **more):
        return event(
            {
                "index": number,
                "token": {"id": number, "text": word, "logprob": -1.0, "special": False},
                "generated_text": None,
                "details": None,
            }
            | more
        )

    last = {
        "generated_text": "abcd",
        "details": {
            "finish_reason": "length",
            "generated_tokens": 4,
            "prefill": [{"id": 1}] * 3,
            "seed": None,
        },
    }
    row = measured(
        part(1, "a"), part(2, "b"), part(3, ""), part(4, "d", **last), dialect="tgi", prompt_tokens=None
    )
    assert (
        row["error"] == ""
        and row["output_ids"] == [1, 2, 3, 4]
        and row["prompt_tokens"] == 3
        and row["finish_reason"] == "length"
        and row["chunks"] == 4
    )
    assert (
        "3 output tokens where 4"
        in measured(part(1, "a"), part(2, "b"), part(3, "c"), dialect="tgi")["error"]
    )
    more = last | {"details": {"generated_tokens": 5}}
    assert (
        "5 output tokens where 4"
        in measured(part(1, "a"), part(2, "b"), part(3, "c"), part(4, "d", **more), dialect="tgi")["error"]
    )


def test_llamacpp_says_its_counts_at_the_end():
    def part(word, **more):
        return event({"content": word, "tokens": [5], "stop": False} | more)

    end = {
        "stop": True,
        "tokens": [],
        "tokens_evaluated": 3,
        "tokens_predicted": 4,
        "stop_type": "limit",
        "timings": {"cache_n": 1},
    }
    row = measured(*(part(each) for each in "abcd"), part("", **end), dialect="llamacpp")
    assert (
        row["error"] == ""
        and row["output_tokens"] == 4
        and row["chunks"] == 4
        and row["cached_tokens"] == 1
        and row["finish_reason"] == "limit"
    )
    held = measured(
        part("ab"), part("c"), part("d"), part("", **end), dialect="llamacpp"
    )  # a token was held back: ids are no count
    assert held["output_tokens"] == 4 and "pieces" in held
    assert "did not report usage" in measured(*(part(each) for each in "abcd"), dialect="llamacpp")["error"]


def test_bytes_that_are_no_utf8_spoil_a_text_not_a_count():
    assert protocols.read("completions", b'{"choices": [{"text": "\xc3"}]}').text == "\ufffd"
    assert protocols.read("completions", b"[DONE]") is None and protocols.read("completions", b" ") is None
