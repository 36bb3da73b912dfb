"""Answers of the reference server for each fault that the tests play: BENCH_ANSWERS names this file.

An answer is a generator of (moment in s after the request arrived, bytes) for a `Completion` and a
`Schedule`; bytes with a place for a stamp are stamped when they are sent. b"" closes the connection, None
resets it.
"""

import json
from collections.abc import Iterator
from itertools import count

from bench.instrument.reference_server.events import (
    HEAD,
    NOW,
    STREAMED,
    Completion,
    Part,
    Schedule,
    plain,
    usual,
)

NEVER_S = 10**9
RETOKENISED = " to ken"


def with_stamp(event: bytes, moment_ns: int) -> bytes:
    """The bytes of a `stamped` event with `moment_ns` in the place of the stamp."""
    return event.replace(NOW.encode(), NOW.encode() % moment_ns)


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


def refused(completion: Completion, schedule: Schedule) -> Iterator[Part]:
    """HTTP 500."""
    yield 0, plain(500, json.dumps({"error": {"message": "refused with 500", "code": 500}}))


def truncated(completion: Completion, schedule: Schedule) -> Iterator[Part]:
    """The connection closes within an event."""
    yield from _until_half(completion, schedule)
    yield _end_s(completion, schedule), with_stamp(completion.token(), 0)[:40]
    yield _end_s(completion, schedule), b""


def wrong_usage(completion: Completion, schedule: Schedule) -> Iterator[Part]:
    """It counts one token more than it sent."""
    completion.usage = False
    *parts, (at_s, _) = usual(completion, schedule)
    yield from parts
    yield at_s, completion.counts(completion.tokens + 1) + completion.done


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


FAULTS = {
    "reset": reset,
    "silent": silent,
    "stalls": stalls,
    "http-500": refused,
    "truncated": truncated,
    "keeps-no-connection": keeps_no_connection,
    "endless": endless,
    "cache-misreports": cache_misreports,
    "cache-silent": cache_silent,
    "retokenises": retokenises,
    "wrong-usage": wrong_usage,
}
