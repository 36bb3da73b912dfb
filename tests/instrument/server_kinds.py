"""Servers of each kind that the load client has to read rightly: one fake server, three cases a rule.

A case is what the server sends, part by part: (seconds after the request was there, bytes). What is right for
it stands beside it. All of it goes over a socket.
"""

import contextlib
import itertools
import json
import threading
import time

from loads import hang_up, here, make_calls, request_of, tiny

from bench.experiments import running
from bench.instrument.reference_server import events

MODEL = "ground-truth"
CLOSE, RESET = "close", "reset"  # in the place of bytes


def sse(data, end=b"\n\n"):
    """One event as a chunk: an object, or bytes."""
    data = data if isinstance(data, bytes) else json.dumps(data).encode()
    return events.chunk(b"data: " + data + end)


def text(content="", model=MODEL, finish=None, usage=None, **more):
    """A completions event."""
    choice = {"index": 0, "text": content, "finish_reason": finish} | more
    return sse({"model": model, "choices": [choice]} | ({"usage": usage} if usage else {}))


def delta(finish=None, model=MODEL, usage=None, **fields):
    """A chat event with these fields of the delta."""
    choice = {"index": 0, "delta": fields, "finish_reason": finish}
    return sse({"model": model, "choices": [choice]} | ({"usage": usage} if usage else {}))


def counted(tokens, prompt_tokens=3, **more):
    """The usage event and the marker of the end."""
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": tokens} | more
    return sse({"choices": [], "usage": usage}) + sse(b"[DONE]")


def said(tokens, prompt_tokens=3):
    """Usage as it stands in an event of the answer."""
    return {"prompt_tokens": prompt_tokens, "completion_tokens": tokens}


def answer(*parts, tokens, head=events.STREAMED, end=None, after_s=0.0, **usage):
    """A whole answer: `parts`, then the usage and the last chunk, `after_s` after the last part."""
    end = counted(tokens, **usage) + events.LAST if end is None else end
    last_s = parts[-1][0] if parts else 0.0
    return [(0.0, head), *parts, (last_s + after_s, end)]


def every(tokens, itl_s, first_s=0.02, per=1, make=text, word=" word", start=0):
    """Parts of `tokens` tokens, one event each and `per` events a packet."""
    made = [make(word) for _ in range(tokens)]
    return [(first_s + (k + per - 1) * itl_s, b"".join(made[k : k + per])) for k in range(start, tokens, per)]


def play(peer, parts, sent):
    """Send `parts` at their moments, which go into `sent`; whether the connection is still open."""
    began = time.monotonic()
    for at_s, data in parts:
        time.sleep(max(0.0, began + at_s - time.monotonic()))
        if data == CLOSE:
            return False
        if data == RESET:
            hang_up(peer)
            return False
        sent.append(time.monotonic())
        peer.sendall(data)
    return True


@contextlib.contextmanager
def playing(*answers, sent=None):
    """A server whose n-th request gets the n-th of `answers` (parts, or a function of the request that makes
    them), the last one for ever; yields (address, requests that came). The moments of parts go into `sent`."""
    requests, turns, lock = [], itertools.count(), threading.Lock()

    def serve(peer, _):
        while request := request_of(peer):
            with lock:
                turn = next(turns)
                requests.append(request)
            parts = answers[min(turn, len(answers) - 1)]
            if not play(peer, parts(request) if callable(parts) else parts, [] if sent is None else sent):
                return

    with tiny(serve) as (url, _):
        yield url, requests


def row_of(parts, tokens, dialect="completions", encode=str.split, exact=True):
    """The row of one request to a server that plays `parts`, finished as the study finishes it, and the
    moments at which they were sent."""
    sent = []
    with playing(parts, sent=sent) as (url, _):
        calls = make_calls(url, tokens=tokens, dialect=dialect)
        calls[0].exact = exact
        (row,), _ = here(url, calls, dialect=dialect)
    return running.decoding.with_gaps(row, encode), sent
