"""A replica's decoding requests: a heap with the answer that ends first on top, and who goes when
memory is full.
"""

from numba import njit

from llm_planner.state import NOTHING, Requests, State


@njit(cache=True)
def push(state: State, r: int, finish: int, request: int) -> None:
    """Put a decoding request into replica `r`'s heap of answers, the one that ends first on top."""
    place = state.decoders[r]
    keys, who = state.finish[r], state.who[r]
    while place > 0 and keys[(place - 1) // 2] > finish:
        keys[place], who[place] = keys[(place - 1) // 2], who[(place - 1) // 2]
        place = (place - 1) // 2
    keys[place], who[place] = finish, request
    state.decoders[r] += 1


@njit(cache=True)
def pop(state: State, r: int) -> int:
    """Take the request that ends first out of the heap."""
    keys, who = state.finish[r], state.who[r]
    taken, size = who[0], state.decoders[r] - 1
    state.decoders[r] = size
    key, last, place = keys[size], who[size], 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[place], who[place] = keys[child], who[child]
        place = child
    keys[place], who[place] = key, last
    return taken


@njit(cache=True)
def preempt(state: State, requests: Requests, r: int) -> None:
    """Send the request that was admitted last back to the front of the queue: its KV cache is dropped and
    read again later.
    """
    latest = 0
    for place in range(1, state.decoders[r]):
        if requests.admitted[state.who[r, place]] > requests.admitted[state.who[r, latest]]:
            latest = place
    victim, kept = state.who[r, latest], state.decoders[r]
    remaining = state.finish[r, latest] - state.count[r]
    keys, who = state.finish[r, :kept].copy(), state.who[r, :kept].copy()
    state.decoders[r] = 0
    for place in range(kept):
        if place != latest:
            push(state, r, keys[place], who[place])
    requests.written[victim] = requests.output[victim] - remaining
    requests.done_prompt[victim] = 0
    held = requests.prompt[victim] + requests.written[victim]
    state.context[r] -= held
    state.reserved[r] -= held
    requests.following[victim] = state.head[r]
    state.head[r] = victim
    if state.tail[r] == NOTHING:
        state.tail[r] = victim
    state.waiting[r] += 1
    requests.ready[victim] = state.count[r]
