"""HTTP cut anywhere: where a response ends and which of its bytes are which event."""

import math

import hypothesis
import numpy as np
import pytest
from answers import CLOCKS, QUICK, answered, chunked, cut, event, text, usage
from hypothesis import strategies as st

from bench.instrument.load import connection, decoding, http1, records


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
    ends=st.lists(st.sampled_from(LINE_ENDS), min_size=8, max_size=8),
    places=st.lists(st.integers(0, 5000), max_size=30),
    chunks=st.lists(st.integers(0, 2000), max_size=6),
    trailer=st.sampled_from([b"0\r\n\r\n", b"0\r\nTook: 5\r\nAnd: 0\r\n\r\n", b"000;x=y\r\n\r\n"]),
)
def test_any_way_of_cutting_the_bytes_gives_the_same_answer(texts, ends, places, chunks, trailer):
    events = [event(text(each), end) for each, end in zip(texts, ends)] + [
        event(usage(len(texts))),
        b"data: [DONE]\n\n",
    ]
    raw = chunked(*cut(b"".join(events), chunks), end=trailer)
    pieces = cut(raw, places)
    assert ended(pieces)[0] == len(pieces), "the end is seen with the last byte, not before and not never"
    row, _ = decoding.measured(answered(pieces, len(texts)), "completions", CLOCKS)
    assert row["error"] == "" and row["text"] == "".join(texts)
    assert row["chunks"] == row["output_tokens"] == len(texts)
    # Every event's moment is that of the piece with the last byte of its data, found here byte by byte;
    # the empty line after it has nothing new.
    piece_of = np.repeat(np.arange(len(pieces)), [len(piece) for piece in pieces])
    body = [
        at for _, raw_at, size in http1.body(raw, http1.head(raw))[1] for at in range(raw_at, raw_at + size)
    ]
    last = np.cumsum([len(each) for each in events])[: len(texts)] - [
        len(end) + 1 for end in ends[: len(texts)]
    ]
    expected = [10 + 0.1 * (piece_of[body[k]] + 1) - 0.001 for k in last]
    assert row["ttft_s"] == pytest.approx(expected[0] - 10, abs=1e-6)
    assert row["e2e_s"] == pytest.approx(expected[-1] - 10, abs=1e-6)
    assert (
        row["itl_max_s"] == pytest.approx(np.diff(sorted(set(expected))).max(), abs=1e-6)
        if len(set(expected)) > 3
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
    mixed = b": ping\n\ndata:no blank\n\nevent: x\r\ndata: two\r\ndata:  lines\r\nid: 7\r\n\r\n"
    mixed += b"data: a\rdata: b\r\rretry: 5\n\ndata: c\n\r\ndata: left"
    found, rest = http1.events(mixed)
    assert [data for data, _ in found] == [b"no blank", b"two\n lines", b"a\nb", b"c"] and rest
    assert [mixed[:end].rpartition(b"\n")[2] for _, end in found] == [
        b"data:no blank",
        b"id: 7",
        b"data: a\rdata: b",
        b"data: c",
    ]
    assert http1.events(b"data: a\n\n\n \n") == ([(b"a", 7)], [])


@pytest.mark.parametrize("length", [b"zz", b"", b"-6", b"+6", b"0x6", b"1_0", b"f" * 17])
def test_a_chunk_without_a_length_is_broken_and_never_walked_for_ever(length):
    with pytest.raises(http1.Broken, match="a chunk has no length"):
        http1.Chunks(0).feed(length + b"\r\nabcdef\r\n0\r\n\r\n")


def test_what_only_looks_like_an_end_is_an_error_of_that_answer():
    broken = chunked(event(text("a")), end=b"zz\r\ndata: {}\n\n\r\n0\r\n\r\n")
    assert ended([broken])[0] == 1, "the end is known by its bytes, and walked through when the run is over"
    assert "a chunk has no length" in decoding.measured(answered([broken]), "completions", CLOCKS)[0]["error"]


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1  200 OK\r\n\r\n",
        b"\r\n\r\n",
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
