"""What the scheduler works on: requests and replicas as arrays, and the order of what goes into a step and a
policy.
"""

from collections import namedtuple
from collections.abc import Sequence
from typing import NamedTuple

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

    start: np.ndarray
    end: np.ndarray
    a: np.ndarray
    b: np.ndarray
    head: np.ndarray
    tail: np.ndarray
    log: np.ndarray
    steps: np.ndarray
    count: np.ndarray
    prefill: np.ndarray
    decoders: np.ndarray
    context: np.ndarray
    reserved: np.ndarray
    waiting: np.ndarray
    filled: np.ndarray
    idle_steps: np.ndarray
    load: np.ndarray
    logged: np.ndarray
    order: np.ndarray
    finish: np.ndarray
    who: np.ndarray
    batch: np.ndarray
    request_s: np.ndarray
    token_s: np.ndarray
    sent_s: np.ndarray


def new_requests(prompt: Sequence[int] | np.ndarray, output: Sequence[int] | np.ndarray) -> Requests:
    """Arrays of requests with `prompt` and `output` tokens; times in s, NaN until they have happened.

    Copies: for the compiler an array of pandas, which may only be read, is of a type of its own, and all
    would be compiled once more for it.
    """
    size = len(prompt)
    return Requests(
        np.array(prompt, dtype=np.int64),
        np.array(output, dtype=np.int64),
        *(np.full(size, np.nan) for _ in range(2)),
        *(np.zeros(size, dtype=np.int64) for _ in range(3)),
        np.full(size, NOTHING),
        *(np.zeros(size, dtype=np.int64) for _ in range(2)),
        np.full((size, 4), np.nan),
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
