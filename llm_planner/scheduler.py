"""One replica of a server with continuous batching, step by step, first come first served.

Compiled by Numba (which caches a function until its own file changes: empty `__pycache__` after editing what
it calls). A replica's state is a row of the arrays in `state.State`; requests are numbers that index the
arrays in `state.Requests`. Decode steps between two events (an answer that ends, a prompt that may start) are
taken in one go: their times form an arithmetic series, because every step reads one token more per sequence
than the step before it.
"""

import numpy as np
from numba import njit

from llm_planner.gaps import keep_gaps, log
from llm_planner.slots import pop, preempt, push
from llm_planner.state import (
    ATTENTION,
    BLOCK,
    CHUNKED,
    COMPUTED,
    EAGER,
    FIXED,
    GEMM_TOKEN,
    KV_TOKEN,
    KV_TOKENS,
    LAG_STEPS,
    LINK_TOKEN,
    MIXED,
    NOTHING,
    RESERVE,
    SENT_TOKEN,
    SEQUENCE,
    SHOT_TOKEN,
    SLOTS,
    STEP_TOKENS,
    WAIT_STEPS,
    WAIT_TOKENS,
    WEIGHTS,
    Requests,
    State,
)


@njit(cache=True)
def step_s(cost: np.ndarray, decoders: int, context: int, tokens: float, attention: float) -> float:
    """Seconds of one step with `decoders` sequences of `context` tokens together, and a prefill of `tokens`
    tokens.
    """
    rows = decoders + tokens
    compute = cost[GEMM_TOKEN] * rows
    # Weights are read while matrices are multiplied: neither the larger of both nor their sum, but the
    # root of their squares.
    seconds = (
        cost[FIXED]
        + cost[SEQUENCE] * decoders
        + (cost[WEIGHTS] ** 2 + compute**2) ** 0.5
        + cost[KV_TOKEN] * context
    )
    seconds += (cost[LINK_TOKEN] if tokens > 0 else cost[SHOT_TOKEN]) * rows + cost[ATTENTION] * attention
    return seconds + (cost[EAGER] if tokens > 0 else 0.0)


@njit(cache=True)
def enqueue(state: State, requests: Requests, policy: np.ndarray, r: int, request: int, at_s: float) -> None:
    """Put a request that reached replica `r` at `at_s` behind those that wait; a segment of decode steps ends
    early for it.
    """
    busy = state.end[r] < np.inf
    requests.following[request] = NOTHING
    requests.ready[request] = state.count[r]
    if state.head[r] == NOTHING:
        state.head[r] = request
    else:
        requests.following[state.tail[r]] = request
    state.tail[r] = request
    state.waiting[r] += 1
    state.load[r] += 1
    if not busy:
        return
    taken = state.steps[r]
    if state.prefill[r] == 0 and state.steps[r] > 1:
        taken = min(steps_until(state, r, at_s), state.steps[r])
    requests.ready[request] = state.count[r] + taken + int(policy[LAG_STEPS])
    if state.prefill[r] == 0:
        shorten(state, r, min(state.steps[r], taken + int(policy[LAG_STEPS])))


@njit(cache=True)
def segment_s(state: State, r: int, steps: int) -> float:
    """Seconds of the first `steps` steps of replica `r`'s current segment."""
    return steps * state.a[r] + state.b[r] * steps * (steps - 1) / 2


@njit(cache=True)
def steps_until(state: State, r: int, at_s: float) -> int:
    """How many steps of the current segment have begun by `at_s`, at least one."""
    a, b, past = state.a[r], state.b[r], at_s - state.start[r]
    if past <= 0:
        return 1
    half = a - b / 2
    number = past / half if b <= 0 else ((half * half + 2 * b * past) ** 0.5 - half) / b
    return int(number) + 1


@njit(cache=True)
def shorten(state: State, r: int, steps: int) -> None:
    """End the current segment after `steps` steps."""
    if steps != state.steps[r]:
        state.steps[r] = steps
        state.end[r] = state.start[r] + segment_s(state, r, steps)


@njit(cache=True)
def plan_prefill(state: State, requests: Requests, policy: np.ndarray, r: int) -> tuple[int, float]:
    """(tokens, attention) of the prompts that join the next step; they stand in `batch`, a prompt that is cut
    into chunks stays the head.
    """
    tokens, attention = 0, 0.0
    state.filled[r] = 0
    budget = int(policy[STEP_TOKENS]) - (state.decoders[r] if policy[MIXED] > 0 else 0)
    while state.head[r] != NOTHING:
        request = state.head[r]
        whole = requests.prompt[request] + requests.written[request]
        begun = requests.done_prompt[request]
        if (requests.ready[request] > state.count[r] and state.decoders[r] > 0) or tokens >= budget:
            break
        if begun == 0 and not admit(state, requests, policy, r, request, whole):
            break
        chunk = min(whole - begun, budget - tokens) if policy[CHUNKED] > 0 else whole
        if tokens > 0 and tokens + chunk > budget:
            state.reserved[r] -= whole
            break
        tokens += chunk
        attention += chunk * (begun + chunk / 2)
        requests.done_prompt[request] = begun + chunk
        if begun + chunk < whole:
            break
        state.batch[r, state.filled[r]] = request
        state.filled[r] += 1
        state.head[r] = requests.following[request]
        state.waiting[r] -= 1
        if state.head[r] == NOTHING:
            state.tail[r] = NOTHING
    return tokens, attention


@njit(cache=True)
def admit(state: State, requests: Requests, policy: np.ndarray, r: int, request: int, whole: int) -> bool:
    """Take a request up if a slot and memory are free; an empty server takes any.

    Beside the prompt, the share `RESERVE` of all tokens that are still to be written must fit, and one block
    of each sequence.
    """
    running = state.decoders[r] + state.filled[r]
    needed = state.reserved[r] + whole + BLOCK * (running + 1)
    if running >= policy[SLOTS]:
        return False
    if running > 0:
        if policy[RESERVE] > 0:
            needed += int(policy[RESERVE] * (requests.output[request] + unwritten(state, requests, r)))
        if needed > policy[KV_TOKENS]:
            return False
    state.reserved[r] += whole
    state.order[r] += 1
    requests.admitted[request] = state.order[r]
    return True


@njit(cache=True)
def unwritten(state: State, requests: Requests, r: int) -> int:
    """Tokens that the requests on replica `r` have still to write."""
    tokens = 0
    for place in range(state.decoders[r]):
        tokens += state.finish[r, place] - state.count[r]
    for place in range(state.filled[r]):
        tokens += requests.output[state.batch[r, place]]
    return tokens


@njit(cache=True)
def must_wait(state: State, requests: Requests, policy: np.ndarray, r: int) -> bool:
    """Whether the engine lets prompts gather before it reads them (TensorRT-LLM's
    batch_wait_timeout_iters).
    """
    if policy[WAIT_STEPS] <= 0 or state.head[r] == NOTHING or state.decoders[r] == 0:
        return False
    if state.idle_steps[r] >= policy[WAIT_STEPS] or requests.done_prompt[state.head[r]] > 0:
        return False
    gathered, request = 0, state.head[r]
    while request != NOTHING and gathered < policy[WAIT_TOKENS]:
        gathered += requests.prompt[request] if requests.ready[request] <= state.count[r] else 0
        request = requests.following[request]
    return gathered < policy[WAIT_TOKENS]


@njit(cache=True)
def begin(
    state: State, requests: Requests, cost: np.ndarray, policy: np.ndarray, r: int, at_s: float
) -> None:
    """Start replica `r`'s next segment at `at_s`: a step with prefill, a run of decode steps, or idleness."""
    state.start[r] = at_s
    room(state, requests, policy, r)
    waits = must_wait(state, requests, policy, r)
    tokens, attention = 0, 0.0
    if not waits:
        tokens, attention = plan_prefill(state, requests, policy, r)
    state.prefill[r] = tokens
    if tokens > 0:
        state.idle_steps[r] = 0
        decoders = state.decoders[r] if policy[MIXED] > 0 else 0
        state.a[r] = step_s(
            cost,
            decoders,
            state.context[r] if decoders else 0,
            tokens * policy[COMPUTED],
            attention * policy[COMPUTED],
        )
        state.b[r], state.steps[r] = 0.0, 1
        state.end[r] = at_s + state.a[r]
    elif state.decoders[r] > 0:
        decoders = state.decoders[r]
        state.a[r] = step_s(cost, decoders, state.context[r], 0.0, 0.0)
        state.b[r] = cost[KV_TOKEN] * decoders
        state.steps[r] = decode_steps(state, requests, policy, r, waits)
        state.end[r] = at_s + segment_s(state, r, state.steps[r])
    else:
        state.steps[r], state.end[r] = 0, np.inf


@njit(cache=True)
def room(state: State, requests: Requests, policy: np.ndarray, r: int) -> None:
    """Preempt until one more token of every sequence fits."""
    while state.decoders[r] > 1 and state.reserved[r] + state.decoders[r] > policy[KV_TOKENS]:
        preempt(state, requests, r)


@njit(cache=True)
def decode_steps(state: State, requests: Requests, policy: np.ndarray, r: int, waits: bool) -> int:
    """How many decode steps may pass before something else can happen, at least one."""
    steps = state.finish[r, 0] - state.count[r]
    steps = min(steps, int((policy[KV_TOKENS] - state.reserved[r]) // state.decoders[r]))
    if state.head[r] != NOTHING and requests.ready[state.head[r]] > state.count[r]:
        steps = min(steps, requests.ready[state.head[r]] - state.count[r])
    if waits:
        steps = min(steps, int(policy[WAIT_STEPS]) - state.idle_steps[r])
    return max(1, steps)


@njit(cache=True)
def complete(
    state: State, requests: Requests, cost: np.ndarray, policy: np.ndarray, r: int, finished: np.ndarray
) -> tuple[int, float]:
    """Apply the segment that has ended; ids of the requests that ended with it go to `finished`; returns
    their number and the moment at which their last tokens reach the client.
    """
    steps, at_s, number = state.steps[r], state.end[r], 0
    decoding = policy[MIXED] > 0 or state.prefill[r] == 0
    lasted, growth = at_s - state.start[r], steps * state.decoders[r] if decoding else 0
    state.request_s[r] += lasted * (state.load[r] - state.waiting[r])
    state.token_s[r] += lasted * (state.reserved[r] + growth / 2)
    log(state, r, steps if decoding else 0)
    seen_s = send(state, cost, r, growth + state.filled[r])
    if decoding:
        state.context[r] += steps * state.decoders[r]
        state.reserved[r] += steps * state.decoders[r]
    if state.head[r] != NOTHING and requests.ready[state.head[r]] <= state.count[r]:
        state.idle_steps[r] += steps
    state.count[r] += steps
    if not decoding:
        for place in range(state.decoders[r]):
            state.finish[r, place] += steps
    while decoding and state.decoders[r] > 0 and state.finish[r, 0] <= state.count[r]:
        request = pop(state, r)
        leave(state, requests, r, request, seen_s)
        finished[number] = request
        number += 1
    for place in range(state.filled[r]):
        request = state.batch[r, place]
        if join(state, requests, r, request, seen_s):
            finished[number] = request
            number += 1
    state.filled[r] = 0
    return number, seen_s


@njit(cache=True)
def send(state: State, cost: np.ndarray, r: int, tokens: float) -> float:
    """Put the `tokens` of the segment that has ended on the server's front (detokenizer, HTTP), which sends
    one after the other while later steps run; returns the moment at which the last of them is sent.
    """
    state.sent_s[r] = max(state.start[r], state.sent_s[r]) + cost[SENT_TOKEN] * tokens
    return max(state.end[r], state.sent_s[r])


@njit(cache=True)
def join(state: State, requests: Requests, r: int, request: int, at_s: float) -> bool:
    """The prompt of `request` has been read: its first token is there. Whether it was the only one."""
    if np.isnan(requests.first[request]):
        requests.first[request] = at_s
        requests.decoding[request] = state.logged[r]
    requests.written[request] += 1
    state.reserved[r] += 1
    state.context[r] += requests.prompt[request] + requests.written[request]
    remaining = requests.output[request] - requests.written[request]
    if remaining <= 0:
        leave(state, requests, r, request, at_s)
        return True
    push(state, r, state.count[r] + remaining, request)
    return False


@njit(cache=True)
def leave(state: State, requests: Requests, r: int, request: int, at_s: float) -> None:
    """The last token of `request` has been written: its memory is free."""
    held = requests.prompt[request] + requests.output[request]
    requests.end[request] = at_s
    state.context[r] -= held
    state.reserved[r] -= held
    state.load[r] -= 1
    keep_gaps(state, requests, r, request)
