"""What the scheduler works on: requests and replicas as arrays, and the order of what goes into a step and a
policy.
"""

from collections import namedtuple
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

# Seconds of a step: see `step_time.cost`, whose order this is.
FIXED, EAGER, SEQUENCE, WEIGHTS, GEMM_TOKEN, KV_TOKEN, LINK_TOKEN, ATTENTION, SHOT_TOKEN, SENT_TOKEN = range(
    10
)
# What a scheduler may do: see `engines.Policy`, whose order this is.
STEP_TOKENS, CHUNKED, MIXED, SLOTS, KV_TOKENS, RESERVE, LAG_STEPS, WAIT_STEPS, WAIT_TOKENS, COMPUTED = range(
    10
)
NOTHING = -1
BLOCK = 16  # tokens: engines hand out KV memory in blocks of as many
LOGGED = 2048  # segments of a replica's past that are kept for inter-token latencies

Array = Any  # a NumPy array; to mypy its entries are arrays again, to Numba numbers and rows
Requests = namedtuple(
    "Requests", "prompt output first end written done_prompt ready following decoding admitted gaps"
)
COUNTS = "steps count prefill decoders context reserved waiting filled idle_steps load logged order".split()
PER_SLOT = "finish who batch".split()
# Integrals over time of requests that were taken up and of tokens that hold KV memory.
INTEGRALS = ["request_s", "token_s"]
SENT = ["sent_s"]  # until when the server's front, which sends one token after the other, is busy


class State(NamedTuple):
    """Replicas: an entry each in every array."""

    start: Array
    end: Array
    a: Array
    b: Array
    head: Array
    tail: Array
    log: Array
    steps: Array
    count: Array
    prefill: Array
    decoders: Array
    context: Array
    reserved: Array
    waiting: Array
    filled: Array
    idle_steps: Array
    load: Array
    logged: Array
    order: Array
    finish: Array
    who: Array
    batch: Array
    request_s: Array
    token_s: Array
    sent_s: Array


def new_requests(prompt: Sequence[int] | np.ndarray, output: Sequence[int] | np.ndarray) -> Requests:
    """Arrays of requests with `prompt` and `output` tokens; times in s, NaN until they have happened.

    Copies: for the compiler an array of pandas, which may only be read, is of a type of its own, and all
    would be compiled once more for it.
    """
    size = len(prompt)
    zeros = np.zeros((5, size), dtype=np.int64)
    return Requests(
        prompt=np.array(prompt, dtype=np.int64),
        output=np.array(output, dtype=np.int64),
        first=np.full(size, np.nan),
        end=np.full(size, np.nan),
        written=zeros[0],
        done_prompt=zeros[1],
        ready=zeros[2],
        following=np.full(size, NOTHING),
        decoding=zeros[3],
        admitted=zeros[4],
        gaps=np.full((size, 4), np.nan),
    )


def new_state(replicas: int, slots: int, logged: int = LOGGED) -> State:
    """Arrays of `replicas` idle replicas with at most `slots` sequences each."""
    counts = {name: np.zeros(replicas, dtype=np.int64) for name in COUNTS}
    slotted = {name: np.zeros((replicas, slots + 1), dtype=np.int64) for name in PER_SLOT}
    return State(
        start=np.zeros(replicas),
        end=np.full(replicas, np.inf),
        a=np.zeros(replicas),
        b=np.zeros(replicas),
        head=np.full(replicas, NOTHING),
        tail=np.full(replicas, NOTHING),
        log=np.zeros((replicas, logged, 3)),
        **counts,
        **slotted,
        **{name: np.zeros(replicas) for name in [*INTEGRALS, *SENT]},
    )
