"""What the gates allow, in numbers, and the exception that says what was not."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from llm_measured.core.definitions import Fields

# The first counted request may be slower than the slowest of the others by this factor, else the warm-up had
# not settled. Two, because other tenants of its host may take half of a small virtual machine's memory
# bandwidth from one second to the next.
WARM_FACTOR = 2.0
WARMUPS = 20  # on a GPU: warm-up requests at most
SETTLED = 0.03  # how far time and clock of two warm-up requests in a row may be apart once a GPU has settled
WARM_SLACK_S = 0.001  # what the scheduler alone may take, which is many times what a toy engine does
# Cores that other processes may keep busy in one look of half a second before a run begins: a second job is
# seen, and a service that wakes is let pass.
BUSY_CORES = 0.5
# Share of a run's cores that other processes may keep busy in the mean over the run. On two idle cores it is
# 0.9 % (median of the committed runs, 2.7 % in 98 % of them), and rates fall with it long before a quarter of
# the machine is gone, which half a core of two would be.
BUSY_SHARE = 0.03
# Mean number of cores that the hypervisor may give to other virtual machines during a run, and the share of
# its time that a container's quota may hold the run's threads back.
STEAL_CORES = 0.1
THROTTLED_SHARE = 0.01
# Events of an answer that follow each other faster than this on average came in one lump: a proxy had kept
# them. A step of the smallest model on the fastest GPU takes several times as long.
EVENT_GAP_S = 5e-5
LUMP_EVENTS = 8  # an answer with fewer events than this says nothing of them
# What times may contradict each other by: they are differences of one clock's doubles.
ROUNDING_S = 1e-6
# How far above the best peak known of a device a single request may be: probes of memory and of matrix
# multiplication find the same peak again within this.
ABOVE_PEAK = 0.1
# An answer of fewer tokens than this may well be one word repeated, or the same one to several prompts.
TELLING_TOKENS = 16
TELLING_PROMPTS = 3  # so many different prompts with one and the same answer have not been read
# Bytes of weights per step may be this much less than the parameters at the bits that an option is named by
# (norms and biases are not counted on either side), and at most 32 bits each.
WEIGHTS_SHORT = 0.05
# Bytes of one weight at most, by the number format that an engine says it multiplies in; 4 in every other.
# One that keeps float32 weights multiplies in float32, whatever its option is named.
WEIGHT_BYTES = {"bfloat16": 2, "float16": 2}
CLOCK_DRIFT = 0.1  # how far a GPU's clock after a run may be from the one before
# How late the load client may be in the 99th percentile, as a share of the gap between two scheduled
# requests.
LATE_SHARE = 0.01


class Refused(ValueError):
    """A run that may not be published; the message says which gate refused it and why."""


def settled(warmup: Sequence[Fields]) -> bool:
    """Whether the last two warm-up requests took the same time at the same clock, within SETTLED.

    `warmup`: dicts with e2e_s and, where there is a GPU, clocks.sm in MHz.
    """
    pairs: list[list[Any]] = [
        [request.get(name) for request in warmup[-2:]] for name in ("e2e_s", "clocks.sm")
    ]
    return len(warmup) > 1 and all(
        None in pair or abs(pair[0] - pair[1]) <= SETTLED * max(pair) for pair in pairs
    )


def too_late(rate: float, behind_s: float) -> str:
    """Why a level of `rate` scheduled requests/s does not count, in a sentence; empty where it does.

    `behind_s`: how late the load client was, 99th percentile over its requests.
    """
    if not behind_s > LATE_SHARE / rate:
        return ""
    return (
        f"The load client was late: at {rate:g} requests/s it took up requests {behind_s * 1e3:.2g} ms "
        f"behind schedule (99th percentile), and {LATE_SHARE:.0%} of the gap between them is "
        f"{LATE_SHARE / rate * 1e3:.2g} ms. Give it a core of its own, or lower the rate."
    )


def late_sessions(rows: pd.DataFrame) -> str:
    """`too_late` of a level of sessions, at the rate of its requests; `rows`: columns sent_s and late_s,
    NaN where a turn was never sent."""
    sent = rows["sent_s"].dropna()
    span = sent.max() - sent.min() if len(sent) > 1 else 0.0
    return too_late((len(sent) - 1) / span, rows["late_s"].quantile(0.99)) if span > 0 else ""


def late(rows: pd.DataFrame) -> str:
    """`too_late` of one level of scheduled requests; `rows`: columns request_rate (1/s) and late_s (s)."""
    return too_late(rows["request_rate"].iloc[0], rows["late_s"].quantile(0.99))


def disagreement(found: dict) -> str:
    """Why the server's counters refuse a level, in a sentence; empty where they agree or say nothing.

    `found`: an entry of the sidecar's `counters`, differences over the level beside the sums of its rows.
    """
    if "why" in found:
        return ""
    for name in ("prompt_tokens", "cached_tokens"):
        counted, rows = found[name], found[f"rows_{name}"]
        if not rows <= counted <= rows + found["cut_tokens"]:
            words = name.replace("_", " ")
            return (
                f"The server counted {counted:.0f} {words} where the rows have {rows:.0f} and turns that "
                f"were cut at most {found['cut_tokens']:.0f} more: another client was there, or one of the "
                "two counts wrong. Give the run a server of its own."
            )
    return ""
