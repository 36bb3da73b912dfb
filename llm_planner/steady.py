"""What a replica does in a steady state, without simulating it: the closed form of the page's calculator.

A batch of equal requests, each replaced as soon as it ends: every step decodes all of them, and every answer
costs the others one prefill. No arrivals that bunch, no full queue: `simulator` has those.

    TPOT = decode step + batch x what a prefill adds to a step / new tokens, or what the server's front
           needs to send a token of each request, where that is longer
    TTFT = way of a request + half a step + its prefill

assets/planner.js is the same in the browser; a test compares both.
"""

import math
from collections import namedtuple

import numpy as np

from llm_measured.core.definitions import Fields
from llm_planner import engines, scheduler, state, step_time

Replica = namedtuple("Replica", "cost mixed chunk kv_tokens request_s")
Replica.__doc__ = (
    "Step costs (`step_time.cost`), whether prompts join decode steps, prompt tokens of a step at most, "
    "tokens that the KV cache holds, and s from a client to the scheduler."
)
TENSOR_PARALLEL = (1, 2, 4, 8)


def replica(case: engines.Case, coefficients: np.ndarray) -> Replica:
    """`Replica` of an `engines.Case`; ValueError where the model does not fit."""
    setting, policy = engines.setting(case), engines.Policy(*engines.policy(case))
    chunk = policy.step_tokens if policy.chunked else math.inf
    cost = step_time.cost(setting, coefficients)
    request_s = coefficients[step_time.NAMES.index("request_s")]
    return Replica(cost, bool(policy.mixed), chunk, policy.kv_tokens, request_s)


def _step(one, sequences, context, tokens=0.0, attention=0.0):
    return scheduler.step_s(one.cost, sequences, context, tokens, attention)


def times(one: Replica, batch: float, prompt_tokens: float, answer_tokens: float) -> tuple[float, float]:
    """(TTFT s, TPOT s) of a replica that always has `batch` requests of these lengths."""
    context = batch * (prompt_tokens + answer_tokens / 2)
    steps = math.ceil(prompt_tokens / one.chunk) if one.chunk < math.inf else 1
    chunk, attention = prompt_tokens / steps, prompt_tokens**2 / 2 / steps
    decode = _step(one, batch, context)
    if one.mixed:
        rest = batch - 1
        prefill = steps * _step(one, rest, context * rest / batch, chunk, attention)
        added = prefill - steps * _step(one, rest, context * rest / batch) if rest else 0.0
    else:
        prefill = steps * _step(one, 0, 0, chunk, attention)
        added = prefill if batch > 1 else 0.0
    wait = decode / 2 if batch > 1 else 0.0
    sent = batch * one.cost[state.SENT_TOKEN]
    return one.request_s + wait + prefill, max(decode + (batch - 1) * added / answer_tokens, sent)


def largest_batch(
    one: Replica,
    prompt_tokens: float,
    answer_tokens: float,
    ttft_s: float,
    tpot_s: float,
    most: int = engines.SLOTS,
) -> int:
    """The most requests at once that fit the KV cache and hold both objectives; 0 where not even
    one does.
    """
    low, high = 0, min(most, int(one.kv_tokens // (prompt_tokens + answer_tokens)))
    while low < high:
        middle = (low + high + 1) // 2
        ttft, tpot = times(one, middle, prompt_tokens, answer_tokens)
        low, high = (middle, high) if ttft <= ttft_s and tpot <= tpot_s else (low, middle - 1)
    return low


def answer(one: Replica, gpus: int, question: Fields) -> Fields:
    """What one replica of `gpus` GPUs does for `question`, and how many of them its load takes: a dict.

    `question`: prompt_tokens, answer_tokens, rate (requests/s), ttft_s, tpot_s, usd_per_gpu_hour. Keys:
    batch,
    ttft_s, tpot_s, requests_per_s of one replica, replicas, gpus, usd_per_hour, usd_per_million_output (all
    dollars over answers' tokens). Only batch (0) where no batch holds the objectives.
    """
    lengths = question["prompt_tokens"], question["answer_tokens"]
    batch = largest_batch(one, *lengths, question["ttft_s"], question["tpot_s"])
    if batch == 0:
        return {"batch": 0}
    ttft, tpot = times(one, batch, *lengths)
    rate = batch / (ttft + tpot * (lengths[1] - 1))
    replicas = math.ceil(question["rate"] / rate)
    usd = replicas * gpus * question["usd_per_gpu_hour"]
    return {
        "batch": batch,
        "ttft_s": ttft,
        "tpot_s": tpot,
        "requests_per_s": rate,
        "replicas": replicas,
        "gpus": replicas * gpus,
        "usd_per_hour": usd,
        "usd_per_million_output": usd / (question["rate"] * 3600 * lengths[1] / 1e6),
    }
