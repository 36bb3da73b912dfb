"""Answers of the reference server for each fault that the tests play: BENCH_ANSWERS names this file.

An answer is a generator of (moment in s after the request arrived, bytes) for a `Completion` and a
`Schedule`; bytes with a place for a stamp are stamped when they are sent. b"" closes the connection, None
resets it.
"""

import json
from collections.abc import Callable, Iterator
from itertools import count
from time import monotonic_ns

from bench.instrument.reference_server.events import (
    HEAD,
    STREAMED,
    Completion,
    Part,
    Schedule,
    chunk,
    plain,
    usual,
    with_stamp,
)

NEVER_S = 10**9
RETOKENISED = " to ken"


def _until_half(completion: Completion, schedule: Schedule) -> Iterator[Part]:
    """The first half of the usual answer."""
    for k, part in enumerate(usual(completion, schedule)):
        if k > completion.tokens // 2:
            return
        yield part


def _end_s(completion: Completion, schedule: Schedule) -> float:
    """One gap after the last token."""
    return schedule.at_s(completion.tokens)


def reset(completion: Completion, schedule: Schedule) -> Iterator[Part]:
    """The connection is reset after half of the tokens."""
    yield from _until_half(completion, schedule)
    yield _end_s(completion, schedule), None


def silent(completion: Completion, schedule: Schedule) -> Iterator[Part]:
    """Nothing, for ever."""
    yield NEVER_S, b""


def stalls(completion: Completion, schedule: Schedule) -> Iterator[Part]:
    """Half of the tokens, then nothing, for ever."""
    yield from _until_half(completion, schedule)
    yield NEVER_S, b""


def drip(completion: Completion, schedule: Schedule) -> Iterator[Part]:
    """Every byte apart, one per gap: an answer that never seems to end."""
    for k, byte in enumerate(STREAMED + b"".join(chunk(b"data: {}\n\n") for _ in range(10**4))):
        yield k * schedule.itl_s, bytes([byte])


def _refusal(status: int, more: str = "") -> Callable[[Completion, Schedule], Iterator[Part]]:
    def refused(completion: Completion, schedule: Schedule) -> Iterator[Part]:
        error = {"error": {"message": f"refused with {status}", "code": status}}
        yield 0, plain(status, json.dumps(error), more)

    refused.__doc__ = f"HTTP {status}."
    return refused


def malformed(completion: Completion, schedule: Schedule) -> Iterator[Part]:
    """An event that is no JSON, in the middle."""
    yield from _until_half(completion, schedule)
    broken = chunk(b'data: {"choices": [{"text": \n\n')
    yield _end_s(completion, schedule), broken + completion.counts() + completion.done


def truncated(completion: Completion, schedule: Schedule) -> Iterator[Part]:
    """The connection closes within an event."""
    yield from _until_half(completion, schedule)
    yield _end_s(completion, schedule), with_stamp(completion.token(), 0)[:40]
    yield _end_s(completion, schedule), b""


def no_http(completion: Completion, schedule: Schedule) -> Iterator[Part]:
    """Bytes that are no HTTP."""
    yield 0, b"SSH-2.0-OpenSSH_9.2\r\n"


def no_length(completion: Completion, schedule: Schedule) -> Iterator[Part]:
    """A chunk whose length is no number."""
    yield 0, STREAMED + b"zz\r\ndata: {}\n\n\r\n"


def utf8(completion: Completion, schedule: Schedule) -> Iterator[Part]:
    """A character's bytes in two packets, and the first byte of one that never ends."""
    yield 0, STREAMED
    for k in range(completion.tokens):
        text = b" \xc3." if k == 1 else b" " + "é".encode()
        event = completion.token("...").replace(b"...", text)  # the stamp is in the second part
        at = event.index(b"\xc3") + 1
        yield schedule.at_s(k), event[:at]
        yield schedule.at_s(k + 0.3), event[at:]
    yield _end_s(completion, schedule), completion.counts() + completion.done


def empty(completion: Completion, schedule: Schedule) -> Iterator[Part]:
    """A stream without a single token."""
    yield schedule.ttft_s, STREAMED + completion.counts(0) + completion.done


def two_per_chunk(completion: Completion, schedule: Schedule) -> Iterator[Part]:
    """Two tokens in every event."""
    yield 0, STREAMED
    for k in range(0, completion.tokens, 2):
        yield schedule.at_s(k), completion.token(" two tokens")
    yield _end_s(completion, schedule), completion.counts() + completion.done


def two_per_packet(completion: Completion, schedule: Schedule) -> Iterator[Part]:
    """Two events in every packet."""
    yield 0, STREAMED
    for k in range(0, completion.tokens, 2):
        yield schedule.at_s(k), with_stamp(completion.token(), monotonic_ns()) * 2
    yield _end_s(completion, schedule), completion.counts() + completion.done


def _ending(end: Callable[[Completion], bytes]) -> Callable[[Completion, Schedule], Iterator[Part]]:
    """The usual tokens with another end: a function of the Completion."""

    def answer(completion: Completion, schedule: Schedule) -> Iterator[Part]:
        completion.usage = False
        *parts, (at_s, _) = usual(completion, schedule)
        yield from parts
        yield at_s, end(completion)

    return answer


def keeps_no_connection(completion: Completion, schedule: Schedule) -> Iterator[Part]:
    """No chunks, no length: the connection ends the answer; no blank after `data:`, lines end with CR LF."""
    yield 0, HEAD.format(200, "text/event-stream", "Connection: close").encode()
    for k in range(completion.tokens):
        event = completion.token().split(b"\r\n")[1]
        yield schedule.at_s(k), event.replace(b"data: ", b"data:").replace(b"\n\n", b"\r\n\r\n")
    yield _end_s(completion, schedule), completion.counts().split(b"\r\n")[1] + b"\n\n"
    yield _end_s(completion, schedule), b""


def endless(completion: Completion, schedule: Schedule) -> Iterator[Part]:
    """Tokens without end, as fast as they go."""
    yield 0, STREAMED
    flood = with_stamp(completion.token(" token" * 2000), 0) * 8
    for _ in count():
        yield 0, flood


def cache_misreports(completion: Completion, schedule: Schedule) -> Iterator[Part]:
    """It says that the whole prompt was cached, whatever was."""
    completion.reported = completion.prompt_tokens
    return usual(completion, schedule)


def cache_silent(completion: Completion, schedule: Schedule) -> Iterator[Part]:
    """It answers from its cache, and no count says so."""
    completion.reported = None
    return usual(completion, schedule)


def retokenises(completion: Completion, schedule: Schedule) -> Iterator[Part]:
    """The text of its answers encodes to other tokens than it computed."""
    completion.text = RETOKENISED
    return usual(completion, schedule)


ERROR = chunk(b'data: {"error": {"message": "out of memory", "code": 500}}\n\n')
FAULTS = {
    "reset": reset,
    "silent": silent,
    "stalls": stalls,
    "drip": drip,
    "http-429": _refusal(429, "\r\nRetry-After: 1"),
    "http-500": _refusal(500),
    "http-503": _refusal(503),
    "malformed": malformed,
    "truncated": truncated,
    "no-http": no_http,
    "no-length": no_length,
    "utf8": utf8,
    "empty": empty,
    "two-per-chunk": two_per_chunk,
    "two-per-packet": two_per_packet,
    "keeps-no-connection": keeps_no_connection,
    "endless": endless,
    "cache-misreports": cache_misreports,
    "cache-silent": cache_silent,
    "retokenises": retokenises,
    "no-usage": _ending(lambda completion: completion.done),
    "wrong-usage": _ending(lambda completion: completion.counts(completion.tokens + 1) + completion.done),
    "error-event": _ending(lambda completion: ERROR + completion.done),
}
