"""The only clock for in-process engines: warm-up, requests, token arrivals.

What happens per token is one clock reading and two appends; everything else waits until the request has
ended.
"""

import gc
from collections.abc import Callable, Sequence
from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

import numpy as np

from llm_measured.core import metrics
from llm_measured.core.definitions import Fields, Result

if TYPE_CHECKING:
    from bench.backends.common.contract import Engine


class Arrivals:
    """The callback of an engine: records when each token of each request arrived, and which token it was."""

    def __init__(self, requests: int) -> None:
        self.times_s: list[list[float]] = [[] for _ in range(requests)]
        self.ids: list[list[int]] = [[] for _ in range(requests)]

    def __call__(self, request: int, token_id: int) -> None:
        now = clock()
        self.times_s[request].append(now)
        self.ids[request].append(token_id)


def generate(
    engine: "Engine",
    prompts: list[list[int]],
    max_new_tokens: int,
    streaming: bool = True,
    collect: bool = True,
) -> list[Fields]:
    """Run one batch of `prompts` (token ids) through `engine`; returns the measured columns of each
    prompt.

    `streaming=False`, or an engine whose `streams` is false, runs the engine's own loop without a callback:
    such rows have an end-to-end time and no TTFT. An engine that fails gives rows with `error`; one that
    returns another number of tokens than `max_new_tokens` is such a failure. `collect=False` leaves out the
    collection of garbage before the request: where joules are counted, the engine would be idle meanwhile.
    """
    arrivals = Arrivals(len(prompts))
    streaming = streaming and getattr(engine, "streams", True)
    if collect:
        gc.collect()
    gc.disable()  # a collection in the middle of a request would be charged to the engine
    sent = clock()
    try:
        ids = engine.generate(prompts, max_new_tokens, arrivals if streaming else None)
        returned = clock()
    except Exception as failure:
        return failed(prompts, f"{type(failure).__name__}: {failure}", sent)
    finally:
        gc.enable()
    if streaming:
        rows = [
            _row(sent, times, returned, seen, max_new_tokens)
            for times, seen in zip(arrivals.times_s, arrivals.ids)
        ]
    else:
        rows = [_row(sent, [], returned, each, max_new_tokens) for each in ids]
    return [row | getattr(engine, "speculation", {}) for row in rows]


def _row(sent: float, times: list[float], returned: float, ids: Sequence[int], max_new_tokens: int) -> Fields:
    """Measured columns of one request.

    The end-to-end time ends with the last token that arrived, or with the call where nothing streams.
    """
    ids = [int(i) for i in ids]
    if len(ids) != max_new_tokens:
        return _failed(sent, f"the engine gave {len(ids)} tokens where {max_new_tokens} were asked for")
    gaps = metrics.itl_s(times)
    return {
        "sent_s": sent,
        "ttft_s": metrics.ttft_s(sent, times),
        "e2e_s": (times[-1] if times else returned) - sent,
        "output_tokens": len(ids),
        "itl_p50_s": metrics.percentile(gaps, 50),
        "itl_p90_s": metrics.percentile(gaps, 90),
        "itl_p99_s": metrics.percentile(gaps, 99),
        "itl_max_s": float(gaps.max()) if gaps.size else np.nan,
        "output_ids": ids,
        "error": "",
    }


def failed(prompts: Sequence, why: str, sent: float | None = None) -> list[Fields]:
    """Rows of a batch that failed, one per prompt: when it was sent (s; default: now) and why."""
    sent = clock() if sent is None else sent
    return [_failed(sent, why) for _ in prompts]


def _failed(sent: float | None, why: str) -> Fields:
    return {"sent_s": sent, "output_ids": [], "output_tokens": 0, "error": why.strip() or "no reason given"}


def timed(function: Callable[..., Result], *arguments: Any) -> tuple[Result, float]:
    """(result, seconds) of one call: load times."""
    start = clock()
    result = function(*arguments)
    return result, clock() - start


class Stopwatch:
    """Seconds since it was made: for budgets, not for results."""

    def __init__(self) -> None:
        self.start = clock()

    def seconds(self) -> float:
        return clock() - self.start
