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

LUMP_TOKENS = 8  # of fewer tokens nobody can tell whether they were streamed
LUMP_SHARE = 0.75  # more of the tokens than this in one arrival: the answer was not streamed
FASTEST_S = 5e-5  # a token: a pace that no engine has, so what came faster had been kept back
READ_LATE_S = 1e-3  # from the kernel's stamp to the read: what comes together then may be the client's doing
FEWEST_ARRIVALS = 4  # with fewer there is no inter-token latency
ENCODED_AGAIN = 0.05  # share by which tokens of an answer and of its text, encoded again, may differ
QUOTED = 8  # letters of an access token that an error may not have
# Why an answer was shorter than asked for, by the beginning of its finish_reason.
SHORT = {
    "length limit max_tokens": "the server caps answers. Ask for shorter ones, -p scale.",
    "abort cancel": "the engine aborted it.",
}
ENDED = (
    "the server does not keep ignore_eos. With it taken out of the body, -p body '{\"ignore_eos\": null}', "
    "answers may be shorter."
)
STEP = 1e-3  # s that the wall clock gains on the monotonic one in a second: more is a step, no drift
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
        "error": answer.error,
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
        row |= {} if answer.error else _times(answer, dialect, stamps, lags)
    except (Wrong, http1.Broken, protocols.Malformed) as failure:
        row["error"] = str(failure)
    payload = answer.call.payload
    texts = {name: _without_token(value, payload) for name, value in row.items() if isinstance(value, str)}
    row |= texts
    row["error"] = _without_token(row["error"], payload, QUOTED)
    return row, lags


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
    # Where the clock was set between two looks nobody knows by when: those stamps are cut out.
    stepped = np.abs(np.diff(ahead)) > STEP * np.maximum(np.diff(at), 1.0)
    looks = np.searchsorted(at, after) - 1
    kernel[np.isin(looks, np.flatnonzero(stepped))] = np.nan
    earliest = np.concatenate([[since], after[:-1]])
    highest = np.fmax.accumulate(np.concatenate([[since], kernel]))[1:]
    good = (kernel <= after) & (kernel >= np.minimum(earliest, highest))
    found = np.maximum.accumulate(np.where(good, kernel, after))
    return found, np.where(good, after - kernel, np.nan)


def _times(answer: Answer, dialect: str, stamps: np.ndarray, lags: np.ndarray) -> Fields:
    """The measured columns of a complete answer; Wrong where it is not what the call needs."""
    pieces, arrivals, late_s = _pieces(answer, dialect, stamps, lags)
    call = answer.call
    reported = {name: _last(pieces, name) for name in ("prompt_tokens", "output_tokens", "cached_tokens")}
    grown = _growth(pieces)
    tokens = grown or [0] * len(pieces)
    said = [k for k, piece in enumerate(pieces) if piece.text or piece.ids or tokens[k]]
    spoken = [pieces[k] for k in said]
    texts = [piece.text for piece in spoken]
    total, finish = reported["output_tokens"], _last(pieces, "finish") or ""
    if finish == "error":
        raise Wrong(f"The server ended the answer with finish_reason 'error' after {len(spoken)} events.")
    counts = _counts(spoken, total)
    if not counts and grown and sum(grown) == total:
        counts = [tokens[k] for k in said]
    if total is None and counts:
        total = sum(counts)
    _agree(call, reported["prompt_tokens"], total, pieces, len(spoken))
    if not call.prompt_tokens and protocols.echoed(call.payload, texts[0]):
        raise Wrong(
            "The server sent the prompt back: its first event is no answer, "
            "and its moment is not the first token's."
        )
    from_s = answer.due if call.scheduled else answer.sent
    at = arrivals[said]
    names = list(dict.fromkeys(piece.model for piece in pieces if piece.model))
    if len(names) > 1:
        raise Wrong(f"The answer names several models: {', '.join(names)}.")
    answers = [moment for moment, piece in zip(at, spoken) if piece.text != piece.thought]
    ends = [arrivals[k] for k, piece in enumerate(pieces) if k >= said[-1] and (piece.finish or piece.done)]
    row = {
        "ttft_s": at[0] - from_s,
        "answer_ttft_s": math.nan,
        "e2e_s": at[-1] - from_s,
        "output_tokens": total,
        "chunks": len(spoken),
        "prompt_tokens": call.prompt_tokens or reported["prompt_tokens"],
        "cached_tokens": reported["cached_tokens"],
        "finish_reason": finish,
        "answered_by": "".join(names),
        "text": "".join(texts),
        "content": "".join(piece.text.removeprefix(piece.thought) for piece in spoken),
        "output_ids": [token for piece in spoken for token in piece.ids],
    }
    if answers and any(piece.thought for piece in spoken):
        row["answer_ttft_s"] = answers[0] - from_s
    sent = np.array([piece.sent_ns or 0 for piece in pieces]) * 1e-9
    if sent.any():  # the client's moment minus the server's, s, of a server that writes its own
        row |= {"delays_s": (arrivals - sent)[sent > 0], "arrivals_s": arrivals[sent > 0]}
    if counts:
        return row | _paced(counts, at, late_s[said])
    # What `with_gaps` needs, which knows the tokenizer.
    row["pieces"] = {
        "at": at,
        "texts": texts,
        "late_s": late_s[said],
        # Text may have come before the first one that was read.
        "preceded": any(not piece.opens and (piece.unread or not piece.news) for piece in pieces[: said[0]]),
        "ended_s": ends[0] - from_s if ends else math.nan,
        "thought_tokens": _last(pieces, "thought_tokens"),
        "unread": _unread(pieces),
    }
    return row


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


def _paced(counts: Sequence[int], at: np.ndarray, late_s: np.ndarray) -> Fields:
    """The columns of an answer whose k-th event has `counts[k]` tokens, came at `at` and was read `late_s`
    later (s): what arrived together is one arrival."""
    moments, which = np.unique(at, return_inverse=True)
    tokens = np.bincount(which, weights=counts)
    gaps = np.diff(moments)
    late = np.bincount(which, weights=late_s > np.median(gaps) / 2) if gaps.size else np.zeros(1)
    row = inter_token(gaps) | {
        "first_event_tokens": int(tokens[0]),
        "arrival_tokens_mean": sum(counts) / len(moments),
        "arrival_tokens_max": int(tokens.max()),
        "late_arrivals": int(((late > 0) & (tokens > 1)).sum()),
    }  # fmt: skip
    total, lasted_s = sum(counts), moments[-1] - moments[0]
    if total >= LUMP_TOKENS and tokens.max() > LUMP_SHARE * total:
        why = f"Not streamed: {tokens.max():.0f} of {total} tokens came within one arrival. "
        why += "A proxy between client and server may keep them back."
        if np.nanmax(late_s, initial=0.0) > READ_LATE_S:
            why = f"The load client itself read the answer {np.nanmax(late_s) * 1e3:.2g} ms late. {why}"
        row |= {"ttft_s": math.nan, "answer_ttft_s": math.nan, "unmeasured": why}
    elif total >= LUMP_TOKENS and lasted_s < FASTEST_S * tokens[1:].sum():
        row |= inter_token(np.empty(0))
        row["unmeasured"] = (
            f"No pace: {total} tokens came within {lasted_s * 1e3:.2g} ms, faster than any engine. They had "
            "been kept back, and the TTFT has that wait in it."
        )
    return row


def inter_token(gaps: np.ndarray) -> Fields:
    """The inter-token columns, s, of the gaps between arrivals; empty below FEWEST_ARRIVALS."""
    enough = gaps if gaps.size >= FEWEST_ARRIVALS - 1 else np.empty(0)
    columns = {f"itl_p{q}_s": metrics.percentile(enough, q) for q in (50, 90, 99)}
    return columns | {"itl_max_s": float(enough.max()) if enough.size else math.nan}


def _pieces(
    answer: Answer, dialect: str, stamps: np.ndarray, lags: np.ndarray
) -> tuple[list[Piece], np.ndarray, np.ndarray]:
    """[Piece of each event], [moment at which its last byte was there], [s by which that was read later]."""
    payload = answer.call.payload
    raw = _without_token(b"".join(read[2] for read in answer.reads), payload)
    head = http1.head(raw)
    if head is None:
        raise http1.Broken("The connection ended before the answer had begun.")
    body, places, complete = http1.body(raw, head)
    body = _without_token(body, payload)  # whole again where it came in two chunks
    if head.status != 200:
        words = _words(head, body)
        raise Wrong(
            f"HTTP {head.status}{_about(head)}: {words}{protocols.way_on(payload, head.status, words)}"
        )
    if complete and body.strip() and b"data:" not in body:
        raise Wrong(f"HTTP 200{_about(head)} instead of a stream of events: {_words(head, body)}")
    found, left = http1.events(body)
    parsed = [(protocols.read(dialect, data), end) for data, end in found + (left if complete else [])]
    pieces = [(piece, end) for piece, end in parsed if piece is not None]
    if not complete and not any(piece.done or piece.finish for piece, _ in pieces):
        raise Wrong("The answer ended in the middle of an event.")
    begins, begins_raw, _ = np.array(places, dtype=int).reshape(-1, 3).T
    last = np.array([end - 1 for _, end in pieces], dtype=int)
    chunk = np.searchsorted(begins, last, side="right") - 1
    positions = begins_raw[chunk] + last - begins[chunk] if len(pieces) else last
    ends = np.cumsum([len(read[2]) for read in answer.reads])
    reads = np.searchsorted(ends, positions, side="right")
    return [piece for piece, _ in pieces], stamps[reads], lags[reads]


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


def _without_token(content: Value, payload: bytes, least: int = 10**6) -> Value:
    """`content` (bytes or text) with stars for the access token of the request `payload`, which some servers
    quote, and for its beginnings of `least` letters or more, where a quote was cut."""
    token = AUTHORIZATION.search(payload)
    if not token:
        return content
    for length in range(len(token[1]), min(least, len(token[1])) - 1, -1):
        secret, stars = token[1][:length], b"*" * length
        if isinstance(content, bytes):
            content = content.replace(secret, stars)
        else:
            content = content.replace(secret.decode(), stars.decode())
    return content


def _last(pieces: list[Piece], name: str) -> Value:
    """The last value of `name` that an event had; None if none had one."""
    values = (getattr(piece, name) for piece in reversed(pieces))
    return next((value for value in values if value not in (None, "")), None)


def _unread(pieces: list[Piece]) -> str:
    """The fields with text that are not known here."""
    return ", ".join(sorted({piece.unread for piece in pieces if piece.unread}))


def _counts(spoken: list[Piece], total: int) -> list[int] | None:
    """Tokens in each event with text or ids: as its ids say, or one each where that is the total, or None."""
    counts = [piece.tokens or 0 for piece in spoken]
    if all(counts) and total in (None, sum(counts)):
        return counts
    return [1] * len(spoken) if total == len(spoken) else None


def _agree(call: Call, prompt_tokens: Value, output_tokens: Value, pieces: list[Piece], events: int) -> None:
    """Wrong unless the answer has as many tokens as the call needs, of the prompt that was sent."""
    disagree = "Server and client disagree on token counts:"
    news = [piece.news for piece in pieces if piece.news]
    if not events and news:
        raise Wrong(f"the server reported within the stream: {news[-1]}")
    if not events:
        fields = _unread(pieces)
        known = f" It has fields that are not known here: {fields}." if fields else ""
        raise Wrong(f"The stream was empty: it had no token.{known}")
    finish, ended = _last(pieces, "finish") or "", any(piece.done or piece.finish for piece in pieces)
    if output_tokens is None and not ended:
        raise Wrong(f"The answer was cut after {events} events: the stream ended without saying why.")
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
        more = ""
        if prompt_tokens == call.prompt_tokens + 1:
            more = " Does it add a beginning-of-sequence token?"
        raise Wrong(f"{disagree} {prompt_tokens} prompt tokens where {call.prompt_tokens} were sent.{more}")
    if not call.prompt_tokens and prompt_tokens is None:
        raise Wrong(
            "The server did not report how many tokens the prompt has, and it splits the text itself."
        )


def _other_length(call: Call, output_tokens: int, finish: str) -> str:
    """Why an answer of another length than asked for does not count."""
    if output_tokens > call.new_tokens or not finish:
        return (
            f"Server and client disagree on token counts: {output_tokens} output tokens where "
            f"{call.new_tokens} were asked for."
        )
    causes = [cause for words, cause in SHORT.items() if finish.startswith(tuple(words.split()))]
    ended = f"The answer ended after {output_tokens} of {call.new_tokens} tokens (finish_reason {finish!r})"
    return f"{ended}: {causes[0] if causes else ENDED}"


def with_gaps(row: Fields, encode: Callable[[str], Sequence[int]]) -> Fields:
    """`row` finished, where events had several tokens and only their text tells how many.

    The tokenizer counts them. Where its count and the server's differ by more than texts that are encoded
    again do, `unmeasured` says so, and what hangs on the tokens that never came is empty: TPOT; TTFT where
    text may have come before the first one; the whole time where nothing said the end.
    """
    if "pieces" not in row:
        return row
    came = row.pop("pieces")
    total, at, late_s = row["output_tokens"], came["at"], came["late_s"]
    counts = [len(encode(text)) for text in came["texts"]]
    if sum(counts) == total and min(counts) > 0:
        return row | _paced(counts, at, late_s)
    visible = max(len(counts), len(encode(row["text"])))
    if abs(visible - total) <= max(1, ENCODED_AGAIN * total):
        return row | _paced(_spread(counts, total), at, late_s)
    about = f" (it counts {came['thought_tokens']} of them as reasoning)" if came["thought_tokens"] else ""
    about += f" (fields that are not known here: {came['unread']})" if came["unread"] else ""
    row |= inter_token(np.diff(np.unique(at)))
    if visible < total:
        row["e2e_s"] = came["ended_s"]
    if visible < total and came["preceded"]:
        row |= {"ttft_s": math.nan, "answer_ttft_s": math.nan}
    return row | {
        "unmeasured": f"Text and usage disagree: the text that came is {visible} tokens, and the server "
        f"counts {total}{about}. Tokens that were not sent have no moment, so there is no pace."
    }


def _spread(counts: list[int], total: int) -> list[int]:
    """`counts` of events in proportion, so that their sum is `total`."""
    sums = np.cumsum(np.maximum(counts, 1))
    ends = np.maximum(np.rint(sums * total / sums[-1]).astype(int), np.arange(1, len(counts) + 1))
    return np.diff(np.concatenate([[0], ends])).tolist()


def with_ids(row: Fields, encode: Callable[[str], Sequence[int]]) -> Fields:
    """`row` with the token ids of its text, where the server sent fewer ids than tokens.

    It has none where the tokenizer counts otherwise.
    """
    if row["error"] or len(row["output_ids"]) == row["output_tokens"]:
        return row
    ids = list(encode(row["text"]))
    return row | {"output_ids": ids if len(ids) == row["output_tokens"] else []}
