"""From the stamped bytes of an answer to one row of measured columns: which token was there when, and do
counts agree.

Errors of this module end up in the column `error` of a row, so their words stay as committed runs have them.
"""

import contextlib
import gzip
import math
import re
import zlib
from collections.abc import Callable, Sequence

import numpy as np

from bench.instrument import kernel_stamps
from bench.instrument.load import http1, protocols
from bench.instrument.load.protocols import Piece
from bench.instrument.load.records import Answer, Call
from llm_measured.core import metrics
from llm_measured.core.definitions import Fields, Value

# An answer of so many tokens or more is streamed if it has at least so many events, ...
STREAMED_TOKENS, STREAMED_EVENTS = 8, 4
# ... and those after the first do not come within the last share of its time, faster one after the other (s)
# than any engine decodes: after a long wait in a queue, honest tokens are within that share as well.
LUMP_SHARE, LUMP_GAP_S = 0.05, 1e-3
ENCODED_AGAIN = 0.05  # share by which tokens of an answer and of its text, encoded again, may differ
AUTHORIZATION = re.compile(
    rb"\r\n[^:\r\n]*(?:auth|key|token|secret|cookie)[^:\r\n]*: (?:Bearer )?(\S+)", re.IGNORECASE
)


class Wrong(ValueError):
    """The answer is complete and cannot be counted; the message says why."""


def measured(
    answer: Answer, dialect: str, clocks: Sequence[tuple[float, float]]
) -> tuple[Fields, np.ndarray]:
    """(row, lags) of one `records.Answer`: its measured columns, and s from each kernel's stamp to the read.

    Times count from the moment that the request was sent; for scheduled requests from the moment it was due,
    so that a wait before sending is not lost (coordinated omission). A failed answer has `error` and no
    times.
    """
    unsent, lags, stamps = math.isnan(answer.sent), np.empty(0), np.empty(0)
    row = {
        "request": answer.call.number,
        "sent_s": answer.begun if unsent else answer.sent,
        "late_s": answer.begun - answer.free,
        "connect_s": answer.connected - (answer.begun if math.isnan(answer.dialled) else answer.dialled),
        "retries": answer.retries,
        "output_tokens": 0,
        "output_ids": [],
        "error": _failure(answer),
    }
    call = answer.call
    if call.session is not None:
        row |= {"session": call.session, "turn": call.turn, "waited_s": answer.free - answer.due}
    if call.own is not None:
        row["prompt_ids"] = call.own.ids
    if answer.reads:
        stamps, lags = moments(answer.reads, clocks, -math.inf if unsent else answer.sent)
        row["first_byte_s"] = stamps[0] - answer.sent
    try:
        row |= {} if answer.error else _times(answer, dialect, stamps)
    except (Wrong, http1.Broken, protocols.Malformed) as failure:
        row["error"] = str(failure)
    payload = answer.call.payload
    texts = {name: _without_token(value, payload) for name, value in row.items() if isinstance(value, str)}
    return row | texts, lags


def moments(
    reads: Sequence[tuple], clocks: Sequence[tuple[float, float]], since: float = -math.inf
) -> tuple[np.ndarray, np.ndarray]:
    """(moment of each read in s, s by which it was read later), both on the monotonic clock.

    `reads` are (moment after the read, ancillary data, bytes), `clocks` [(monotonic moment, wall clock -
    monotonic clock)]. A kernel's stamp that is not there, or lies after the read, before the one before it or
    before `since` (the wall clock was set), is not used.
    """
    after = np.array([read[0] for read in reads])
    stamped = np.array([kernel_stamps.wall_s(read[1]) for read in reads])
    at, ahead = np.array(clocks).T
    kernel = stamped - np.interp(after, at, ahead)
    earliest = np.concatenate([[since], after[:-1]])
    highest = np.fmax.accumulate(np.concatenate([[since], kernel]))[1:]
    good = (kernel <= after) & (kernel >= np.minimum(earliest, highest))
    return np.where(good, kernel, after), np.where(good, after - kernel, np.nan)


def _times(answer: Answer, dialect: str, stamps: np.ndarray) -> Fields:
    """The measured columns of a complete answer; Wrong where it is not what the call needs."""
    pieces, arrivals = _pieces(answer, dialect, stamps)
    call = answer.call
    reported = {name: _last(pieces, name) for name in ("prompt_tokens", "output_tokens", "cached_tokens")}
    grown = _growth(pieces)
    tokens = grown or [0] * len(pieces)
    spoken = [
        (at, piece, n) for at, piece, n in zip(arrivals, pieces, tokens) if piece.text or piece.ids or n
    ]
    texts = [piece.text for _, piece, _ in spoken]
    total, finish = reported["output_tokens"], _last(pieces, "finish") or ""
    if finish == "error":
        raise Wrong(f"The server ended the answer with finish_reason 'error' after {len(spoken)} events.")
    counts = _counts([piece for _, piece, _ in spoken], total)
    if not counts and grown and sum(grown) == total:
        counts = [n for *_, n in spoken]
    if total is None and counts:
        total = sum(counts)
    _agree(call, reported["prompt_tokens"], total, len(spoken), finish)
    if not call.prompt_tokens and protocols.echoed(call.payload, texts[0]):
        raise Wrong(
            "The server sent the prompt back: its first event is no answer, "
            "and its moment is not the first token's."
        )
    from_s = answer.due if call.scheduled else answer.sent
    at = np.array([at for at, *_ in spoken])
    thoughts = [piece.thought for _, piece, _ in spoken]
    answers = [moment for moment, piece, _ in spoken if piece.text != piece.thought]
    row = {
        "ttft_s": at[0] - from_s,
        "answer_ttft_s": answers[0] - from_s if answers and any(thoughts) else math.nan,
        "e2e_s": at[-1] - from_s,
        "output_tokens": total,
        "chunks": len(spoken),
        "prompt_tokens": call.prompt_tokens or reported["prompt_tokens"],
        "cached_tokens": reported["cached_tokens"],
        "finish_reason": finish,
        "text": "".join(texts),
        "content": "".join(text.removeprefix(thought) for text, thought in zip(texts, thoughts)),
        "output_ids": [token for _, piece, _ in spoken for token in piece.ids],
    }
    if why := _not_streamed(at - from_s, total):
        row |= {"ttft_s": math.nan, "answer_ttft_s": math.nan, "unmeasured": why}
    elif counts:
        row |= _paced(at, counts)
    else:
        row |= {"pieces": (at, texts), "thought_tokens": _last(pieces, "thought_tokens")}
    return row | _truth(pieces, arrivals)


def _growth(pieces: list[Piece]) -> list[int] | None:
    """Tokens that each event brought, where the usage grows from event to event; None where it does not.

    Every event with text must have usage of its own.
    """
    if not all(piece.output_tokens for piece in pieces if piece.text or piece.ids):
        return None
    counted, grown = 0, []
    for piece in pieces:
        now = counted if piece.output_tokens is None else piece.output_tokens
        if now < counted or (not now and piece.text):
            return None
        grown.append(now - counted)
        counted = now
    return grown if sum(map(bool, grown)) > 1 else None


def _not_streamed(at_s: np.ndarray, total: int) -> str:
    """Why an answer of `total` tokens, whose events came at `at_s` (s after the request), was not streamed,
    in a sentence; empty where it was, or is too short to tell."""
    if total < STREAMED_TOKENS:
        return ""
    if len(at_s) < STREAMED_EVENTS:
        return f"Not streamed: {len(at_s)} events for {total} tokens."
    last_s, rest_s = at_s[-1], at_s[-1] - at_s[1]
    if rest_s <= LUMP_SHARE * last_s and rest_s < LUMP_GAP_S * (len(at_s) - 2):
        return (
            f"Not streamed: {len(at_s) - 1} of {len(at_s)} events came within the last {rest_s * 1e3:.2g} ms "
            f"of {last_s:.3g} s. A proxy between client and server may keep them back."
        )
    return ""


def _paced(at: np.ndarray, counts: Sequence[int]) -> Fields:
    """The inter-token columns and the tokens of the first event, of events at `at` with `counts` tokens."""
    row = gaps(at, counts) | {"first_event_tokens": counts[0]}
    whole = sum(counts) == counts[0] > 1
    return row | ({"unmeasured": f"All {counts[0]} tokens came with the first event."} if whole else {})


def _pieces(answer: Answer, dialect: str, stamps: np.ndarray) -> tuple[list[Piece], np.ndarray]:
    """[Piece of each event], [moment at which its last byte was there]."""
    payload = answer.call.payload
    raw = _without_token(b"".join(read[2] for read in answer.reads), payload)
    head = http1.head(raw)
    if head is None:
        raise http1.Broken("The connection ended before the answer had begun.")
    body, places, complete = http1.body(raw, head)
    body = _without_token(body, payload)  # whole again where it came in two chunks
    if head.status != 200:
        raise Wrong(f"HTTP {head.status}{_about(head)}: {_words(head, body)}")
    found, rest = http1.events(body)
    if not found and complete and body.strip():
        raise Wrong(f"HTTP 200{_about(head)} instead of a stream of events: {_words(head, body)}")
    if not complete or rest:
        raise Wrong("The answer ended in the middle of an event.")
    parsed = [(protocols.read(dialect, data), end) for data, end in found]
    pieces = [(piece, end) for piece, end in parsed if piece is not None]
    begins, begins_raw, _ = np.array(places, dtype=int).reshape(-1, 3).T
    last = np.array([end - 1 for _, end in pieces], dtype=int)
    chunk = np.searchsorted(begins, last, side="right") - 1
    positions = begins_raw[chunk] + last - begins[chunk] if len(pieces) else last
    ends = np.cumsum([len(read[2]) for read in answer.reads])
    return [piece for piece, _ in pieces], stamps[np.searchsorted(ends, positions, side="right")]


def _about(head: http1.Head) -> str:
    """The fields of a refusal's head that tell its cause, in brackets after a blank; empty without any."""
    fields = [head.fields.get(name, "") for name in ("content-type", "content-encoding", "location")]
    kind = "" if fields[0].startswith("application/json") and head.status != 200 else fields[0]
    told = [kind, fields[1] and f"compressed by {fields[1]}", fields[2] and f"location {fields[2]}"]
    told = [text for text in told if text]
    return f" ({', '.join(told)})" if told else ""


def _words(head: http1.Head, body: bytes | bytearray) -> str:
    """The server's own words in a body that is no stream; compressed ones are unpacked where it is gzip."""
    if head.fields.get("content-encoding", "").lower() == "gzip":
        with contextlib.suppress(OSError, EOFError, zlib.error):
            return protocols.reason(gzip.decompress(bytes(body)))
    return protocols.reason(bytes(body))


def _without_token(content: Value, payload: bytes) -> Value:
    """`content` (bytes or text) with as many stars where a server quotes the access token of the request
    `payload`.

    Some do when they refuse it.
    """
    token = AUTHORIZATION.search(payload)
    if not token:
        return content
    secret, stars = token[1], b"*" * len(token[1])
    if isinstance(content, bytes):
        return content.replace(secret, stars)
    return content.replace(secret.decode(), stars.decode())


def _failure(answer: Answer) -> str:
    """Why the connection failed, without the token.

    An error that quotes the beginning of bytes that were no HTTP may have cut the token in two: it is made
    anew.
    """
    if not answer.error or not AUTHORIZATION.search(answer.call.payload):
        return answer.error
    try:
        raw = _without_token(b"".join(read[2] for read in answer.reads), answer.call.payload)
        head = http1.head(raw)
        if head:
            http1.body(raw, head)
    except http1.Broken as failure:
        return str(failure)
    return answer.error


def _last(pieces: list[Piece], name: str) -> Value:
    """The last value of `name` that an event had; None if none had one."""
    values = (getattr(piece, name) for piece in reversed(pieces))
    return next((value for value in values if value not in (None, "")), None)


def _counts(spoken: list[Piece], total: int) -> list[int] | None:
    """Tokens in each event with text or ids: as its ids say, or one each where that is the total, or None."""
    counts = [piece.tokens or 0 for piece in spoken]
    if all(counts) and total in (None, sum(counts)):
        return counts
    return [1] * len(spoken) if total == len(spoken) else None


def _agree(call: Call, prompt_tokens: Value, output_tokens: Value, events: int, finish: str) -> None:
    """Wrong unless the answer has as many tokens as the call needs, of the prompt that was sent."""
    disagree = "Server and client disagree on token counts:"
    if not events:
        raise Wrong("The stream was empty: it had no token.")
    if output_tokens is None:
        raise Wrong(
            "The server did not report usage and sent no token ids, so tokens cannot be counted "
            "(events are no tokens)."
        )
    if output_tokens > call.new_tokens or (call.exact and output_tokens != call.new_tokens):
        raise Wrong(_other_length(call, output_tokens, finish))
    if events > output_tokens:
        raise Wrong(f"{disagree} {events} events with text, {output_tokens} output tokens reported.")
    if call.prompt_tokens and prompt_tokens not in (None, call.prompt_tokens):
        more = (
            " Does it add a beginning-of-sequence token?" if prompt_tokens == call.prompt_tokens + 1 else ""
        )
        raise Wrong(f"{disagree} {prompt_tokens} prompt tokens where {call.prompt_tokens} were sent.{more}")
    if not call.prompt_tokens and prompt_tokens is None:
        raise Wrong(
            "The server did not report how many tokens the prompt has, and it splits the text itself."
        )


def _other_length(call: Call, output_tokens: int, finish: str) -> str:
    """Why an answer of another length than asked for does not count."""
    if output_tokens < call.new_tokens and finish and finish not in ("length", "limit"):
        return (
            f"The answer ended after {output_tokens} of {call.new_tokens} tokens (finish_reason {finish!r}): "
            "the server does not keep ignore_eos. With it taken out of the body answers may be shorter."
        )
    return (
        f"Server and client disagree on token counts: {output_tokens} output tokens where {call.new_tokens} "
        "were asked for."
    )


def gaps(at: np.ndarray, counts: Sequence[int]) -> Fields:
    """The inter-token columns, s, for events at the moments `at` with `counts` tokens each.

    Tokens that came together have no gap between them.
    """
    found = metrics.itl_s(np.repeat(at, counts))
    columns = {f"itl_p{q}_s": metrics.percentile(found, q) for q in (50, 90, 99)}
    return columns | {"itl_max_s": float(found.max()) if found.size else math.nan}


def _truth(pieces: list[Piece], arrivals: np.ndarray) -> Fields:
    """The client's moment minus the server's, s, of each event into which a server wrote its own."""
    sent = np.array([piece.sent_ns or 0 for piece in pieces]) * 1e-9
    return {"delays_s": (arrivals - sent)[sent > 0], "arrivals_s": arrivals[sent > 0]} if sent.any() else {}


def with_gaps(row: Fields, encode: Callable[[str], Sequence[int]]) -> Fields:
    """`row` with its inter-token columns and the tokens of its first event, where events had several tokens
    and only their text tells how many.

    The tokenizer counts them. Where its count is not the server's, the inter-token columns stay empty; where
    they differ by more than texts that are encoded again do, `unmeasured` says so.
    """
    at, texts = row.pop("pieces", (None, None))
    thought_tokens = row.pop("thought_tokens", None)
    if texts is None:
        return row
    total, counts = row["output_tokens"], [len(encode(text)) for text in texts]
    if sum(counts) == total and min(counts) > 0:
        return row | _paced(at, counts)
    visible = max(len(texts), len(encode(row["text"])))
    if abs(visible - total) > max(1, ENCODED_AGAIN * total):
        thought = f" (it counts {thought_tokens} of them as reasoning)" if thought_tokens else ""
        return row | {
            "unmeasured": f"Text and usage disagree: the text that came is {visible} tokens, and the server "
            f"counts {total}{thought}. Tokens that were not sent have no moment, so there is no pace."
        }
    return row | {"first_event_tokens": min(max(1, counts[0]), total)}


def with_ids(row: Fields, encode: Callable[[str], Sequence[int]]) -> Fields:
    """`row` with the token ids of its text, where the server sent fewer ids than tokens.

    It has none where the tokenizer counts otherwise.
    """
    if row["error"] or len(row["output_ids"]) == row["output_tokens"]:
        return row
    ids = list(encode(row["text"]))
    return row | {"output_ids": ids if len(ids) == row["output_tokens"] else []}
