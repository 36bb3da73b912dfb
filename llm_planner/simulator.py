"""A discrete-event simulator of servers with continuous batching: loads in, the rows of the serving schema
out.

Closed loops, arrivals at given moments (Poisson, constant, or a trace's), replicas behind a router. What a
replica does is `scheduler`, what a step takes is `step_time`. 10,000 requests take well below 2 s, a million
over 1,000 replicas below a minute on one core.
"""

import numpy as np
from numba import njit

from llm_planner import scheduler
from llm_planner.state import Requests, State

ROUND_ROBIN, LEAST_LOADED = 0, 1
ROUTERS = {"round robin": ROUND_ROBIN, "least loaded": LEAST_LOADED}


@njit(cache=True)
def _sift(heap: np.ndarray, place_of: np.ndarray, key: np.ndarray, replica: int) -> None:
    """Move `replica` to its place in the heap of replicas by the end of their segments."""
    place = place_of[replica]
    while place > 0 and key[heap[(place - 1) // 2]] > key[replica]:
        heap[place] = heap[(place - 1) // 2]
        place_of[heap[place]] = place
        place = (place - 1) // 2
    while 2 * place + 1 < len(heap):
        child = 2 * place + 1
        if child + 1 < len(heap) and key[heap[child + 1]] < key[heap[child]]:
            child += 1
        if key[heap[child]] >= key[replica]:
            break
        heap[place] = heap[child]
        place_of[heap[place]] = place
        place = child
    heap[place], place_of[replica] = replica, place


@njit(cache=True)
def _route(state: State, router: int, number: int) -> int:
    """The replica that takes the request with that number: in turn, or where the fewest are, from the one
    whose turn it is.
    """
    replicas = len(state.load)
    turn = number % replicas
    if router == ROUND_ROBIN:
        return turn
    best = turn
    for k in range(replicas):
        r = turn + k - (replicas if turn + k >= replicas else 0)
        if state.load[r] < state.load[best]:
            best = r
        if state.load[best] == 0:
            break
    return best


@njit(cache=True)
def run(
    state: State,
    requests: Requests,
    due: np.ndarray,
    known: int,
    turnaround: float,
    cost: np.ndarray,
    policy: np.ndarray,
    router: int,
) -> tuple[float, float]:
    """Work off all requests. `due`: moments at which they reach the scheduler, the first `known` of them; in
    a closed loop (`turnaround` not NaN) each answer that ends makes the next one due `turnaround` s later.

    Returns means over the time from the arrival of the first tenth to the last arrival, of all replicas
    together: (requests that were taken up and had not ended, tokens that held KV memory); NaN where all
    arrive at once.
    """
    replicas, size = len(state.load), len(due)
    heap, place_of, finished = (
        np.arange(replicas),
        np.arange(replicas),
        np.empty(state.who.shape[1] + 1, dtype=np.int64),
    )
    next_one, done = 0, 0
    begun_s, lasted_s, requests_0, tokens_0, requests_1, tokens_1 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    while done < size:
        first = heap[0]
        if next_one < known and due[next_one] <= state.end[first]:
            at_s = due[next_one]
            if next_one == size // 10:
                begun_s, requests_0, tokens_0 = at_s, state.request_s.sum(), state.token_s.sum()
            r = _route(state, router, next_one)
            idle = state.end[r] == np.inf
            scheduler.enqueue(state, requests, policy, r, next_one, at_s)
            next_one += 1
            while idle and replicas == 1 and next_one < known and due[next_one] <= at_s:
                scheduler.enqueue(state, requests, policy, r, next_one, at_s)
                next_one += 1
            if idle:
                scheduler.begin(state, requests, cost, policy, r, at_s)
            _sift(heap, place_of, state.end, r)
            if next_one == size:
                lasted_s = at_s - begun_s
                requests_1, tokens_1 = state.request_s.sum(), state.token_s.sum()
            continue
        at_s = state.end[first]
        number, seen_s = scheduler.complete(state, requests, cost, policy, first, finished)
        done += number
        for _ in range(number if turnaround == turnaround else 0):
            if known < size:
                due[known] = seen_s + turnaround
                known += 1
        scheduler.begin(state, requests, cost, policy, first, at_s)
        _sift(heap, place_of, state.end, first)
    if lasted_s <= 0:
        return np.nan, np.nan
    return (requests_1 - requests_0) / lasted_s, (tokens_1 - tokens_0) / lasted_s
