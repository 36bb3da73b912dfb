"""Inter-token latencies of simulated requests, from the segments of steps that a replica keeps."""

import numpy as np
from numba import njit

from llm_planner.state import Requests, State


@njit(cache=True)
def log(state: State, r: int, steps: int) -> None:
    """Keep the segment that has ended, for inter-token latencies: tokens of each decoding sequence, first and
    last step time.
    """
    if state.log.shape[1] == 0:
        return
    place = state.logged[r] % state.log.shape[1]
    state.log[r, place, 0] = steps
    state.log[r, place, 1] = state.a[r]
    state.log[r, place, 2] = state.a[r] + state.b[r] * max(0, state.steps[r] - 1)
    state.logged[r] += 1


@njit(cache=True)
def keep_gaps(state: State, requests: Requests, r: int, request: int) -> None:
    """50th, 90th, 99th percentile and maximum of the gaps between tokens of an answer, from the segments that
    it lived through.

    A segment counts with the mean of its step times, its tokens as weight; steps in which decoders stand
    still lengthen the next gap.
    """
    size = state.log.shape[1]
    first = max(requests.decoding[request], state.logged[r] - size)
    if size == 0 or first >= state.logged[r]:
        return
    gaps, tokens, kept = lived(state, r, first, size)
    order = np.argsort(gaps[:kept])
    total, past, level = tokens[:kept].sum(), 0.0, 0
    shares = (0.5, 0.9, 0.99)
    for place in order:
        past += tokens[place]
        while level < 3 and past >= shares[level] * total:
            requests.gaps[request, level] = gaps[place]
            level += 1
    if kept > 0:
        requests.gaps[request, 3] = gaps[order[-1]]


@njit(cache=True)
def lived(state: State, r: int, first: int, size: int) -> tuple[np.ndarray, np.ndarray, int]:
    """(gaps, tokens with that gap, how many of both) of the segments since number `first`."""
    number = 2 * (state.logged[r] - first)
    gaps, tokens, still, kept = np.empty(number), np.empty(number), 0.0, 0
    for k in range(first, state.logged[r]):
        steps, one, last = state.log[r, k % size]
        if steps == 0:
            still += one
            continue
        if still > 0:
            gaps[kept], tokens[kept] = one + still, 1
            steps, still, kept = steps - 1, 0.0, kept + 1
        if steps > 0:
            gaps[kept], tokens[kept] = (one + last) / 2, steps
            kept += 1
    return gaps, tokens, kept
