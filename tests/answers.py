"""Recorded answers for the tests of decoding: events, responses, reads with stamps."""

import json
import struct

from hypothesis import settings

from bench.instrument.load import decoding, protocols, records

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
    """An Answer whose k-th read came 0.1 s after the one before, the first at 10.1 s.

    The kernel's stamp is 1 ms before each.
    """
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


FOUR = [event(text(each)) for each in "abcd"]


class Words:
    """A checkpoint's tokenizer: a token for every word."""

    def encode(self, text):
        return [sum(word.encode()) % 500 for word in text.split()]

    def decode(self, ids):
        return " ".join(map(str, ids))
