"""What a prefix cache changes in a plan: a hit rate (`hit_rate` of notebooks/plan.ipynb and of `llm-planner
plan`), or a trace with a size of the cache and a router.

The rate by tokens is what is not computed. The simulated scheduler takes it as a share of every prompt: KV
memory is still taken for whole prompts, and the hits do not differ between requests, so that TTFT of first
turns is too short and memory is counted more than once where prompts are shared.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bench import prefix_cache
from bench.workloads.traces import Trace
from llm_planner import candidates, check, planner


def by_size(trace: Trace, sizes: Sequence[int | None], replicas: Sequence[int] = (1,)) -> pd.DataFrame:
    """One row per size of the cache (`sizes`, blocks of a replica; None: all that comes), number of replicas
    and router: columns cache_tokens (NaN: all), replicas, router and the three rates."""
    found = []
    for number in replicas:
        for router in prefix_cache.ROUTERS if number > 1 else ("session affinity",):
            for blocks in sizes:
                tokens = None if blocks is None else blocks * trace.block_tokens
                row = {"cache_tokens": tokens, "replicas": number, "router": router}
                found.append(row | trace.hit_rates(tokens, number, router))
    return pd.DataFrame(found).astype({"cache_tokens": float})


def of_trace(
    trace: Trace, cache_tokens: float | None = None, router: str = "session affinity"
) -> Callable[[int], float]:
    """The hit rate by tokens as a function of the number of replicas, for `plan`."""
    return lambda replicas: trace.hit_rates(cache_tokens, replicas, router)["by_tokens"]


def plan(
    question: dict[str, Any], hit_rate: float | Callable[[int], float], fits: check.Fits | None = None
) -> pd.DataFrame:
    """`planner.plan` of `question` (what `candidates.Question` takes) where a cache answers `hit_rate` of the
    prompt tokens; a number, or a function of the number of replicas (`of_trace`).

    More replicas share the sessions and, under a round robin, scatter them, so that the rate falls: it is
    that of as many replicas as the cheapest answer has, or of the next larger number that was tried (the
    table's column hit_rate). ValueError as of `planner.plan`.
    """
    rate_of = hit_rate if callable(hit_rate) else lambda replicas: hit_rate
    replicas = 1
    while True:
        rate = float(rate_of(replicas))
        table = planner.plan(candidates.Question(**question, hit_rate=rate), fits)
        needed = int(np.max(table["replicas"].iloc[0]))
        if needed <= replicas or not callable(hit_rate):
            return table
        replicas = needed
