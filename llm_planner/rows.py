"""Simulated requests: when they arrive, and what each of them waits for."""

import numpy as np

from llm_measured.core import naming
from llm_planner import simulator, state


def poisson(rate: float, requests: int, seed: int = 0) -> np.ndarray:
    """Moments in s of `requests` arrivals with exponential gaps, `rate` per second; ValueError for a rate
    that is not positive.
    """
    if not rate > 0:
        raise ValueError(f"A rate of {rate:g} requests/s brings no request; give a positive rate.")
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, requests))


class Simulation:
    """Requests worked off by replicas of one configuration: arrays of times in s, one element per request.

    `concurrency` places of a closed loop, or `at_s`, the moments of arrival (a trace's, `poisson`).
    `request_s`: from a client to the scheduler. `router`: a name of simulator.ROUTERS. `gaps`: keep
    inter-token latencies.

    Attributes `running` and `kv_tokens`: the means that `simulator.run` returns.
    """

    def __init__(
        self,
        prompt: np.ndarray,
        output: np.ndarray,
        cost: np.ndarray,
        policy: np.ndarray,
        *,
        concurrency: int | None = None,
        at_s: np.ndarray | None = None,
        request_s: float = 0.0,
        replicas: int = 1,
        router: str = "round robin",
        gaps: bool = True,
    ) -> None:
        if (concurrency is None) == (at_s is None):
            raise ValueError(
                "A load is either `concurrency` places or moments of arrival `at_s`; give one of both."
            )
        naming.choose("router", router, simulator.ROUTERS)
        self.prompt, self.output = np.asarray(prompt), np.asarray(output)
        self.concurrency, self.request_s = concurrency, request_s
        size, slots = len(self.prompt), int(policy[state.SLOTS])
        requests = state.new_requests(self.prompt, self.output)
        servers = state.new_state(
            replicas, slots, state.LOGGED if gaps and replicas < 64 else 256 if gaps else 0
        )
        due = np.full(size, request_s) if at_s is None else np.asarray(at_s, dtype=float) + request_s
        known = size if concurrency is None else min(concurrency, size)
        turnaround = request_s if at_s is None else np.nan
        self.running, self.kv_tokens = simulator.run(
            servers, requests, due, known, turnaround, cost, policy, simulator.ROUTERS[router]
        )
        self.sent_s, self.gaps = due - request_s, requests.gaps
        self.ttft_s, self.e2e_s = requests.first - self.sent_s, requests.end - self.sent_s
        self.tpot_s = (self.e2e_s - self.ttft_s) / np.maximum(self.output - 1, 1)
