"""What a reader asks of the planner, and one configuration that may answer it.

The coefficients of a configuration have an error, and arrivals are random: both are drawn in `futures`, and a
number of replicas holds the objectives where it does so in `FUTURES_HELD` of them.
"""

from collections import namedtuple
from collections.abc import Callable
from functools import cache, cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from llm_measured.core import naming
from llm_measured.predict import prices
from llm_planner import engines, rows, scheduler, shapes, state, steady, step_time

if TYPE_CHECKING:
    from llm_planner.check import Fits
    from llm_planner.worlds import Drawn

TENSOR_PARALLEL = (1, 2, 4, 8)
SHARE = 0.99  # of requests that must meet every objective
FUTURES = (
    20  # at the middles of so many equal parts of the error: the outermost are the ends of its 95 % interval
)
FUTURES_HELD = 0.95  # of the futures that must hold the objectives
SIMULATED = 2000  # requests of one replica, at least
LONGEST = 20_000  # and at most
IN_FLIGHT = 10  # times as many requests as are in flight are simulated
# Of what a replica can complete. Above it a queue takes longer to settle than LONGEST arrivals last
# (`Candidate._requests`), and whether an objective holds cannot be simulated.
MOST_UTILISED = 0.98
OVERLOAD = 1.5  # times the rate that a replica is thought to complete, to see what it does complete

BLIND = (
    "The simulator has queues, arrivals that bunch, the errors of the coefficients, and a prefix cache as "
    "one share of every prompt (hit_rate). Both are blind for hits that differ between prompts, for "
    "speculation, for lengths that scatter, for prefill on GPUs of its own, and for what else runs on the "
    "GPUs."
)

Future = namedtuple("Future", "error_tpot error_ttft seed")
Future.__doc__ = (
    "One way in which things may come: errors of TPOT and of TTFT as shares of the half widths of their 95 % "
    "intervals, and the seed of the arrivals."
)
MIDDLE = Future(0.0, 0.0, 0)


@cache
def futures() -> tuple[Future, ...]:
    """`FUTURES` equally likely futures, the slowest steps first: a Latin hypercube over normal errors of TPOT
    and TTFT, and arrivals of a seed of their own.

    Errors are taken as independent of each other. McKay, Beckman, Conover, A Comparison of Three Methods for
    Selecting Values of Input Variables, 1979.
    """
    normal = NormalDist()
    errors = [normal.inv_cdf((k + 0.5) / FUTURES) / normal.inv_cdf(0.975) for k in range(FUTURES)][::-1]
    other = np.random.default_rng(0).permutation(errors)
    return tuple(Future(error, float(ttft), seed) for seed, (error, ttft) in enumerate(zip(errors, other)))


class Question:
    """What a reader asks: model, precision, engine, lengths in tokens, rate in requests/s, objectives in s,
    GPUs at most, price per GPU hour, and the share of prompt tokens that a prefix cache answers.
    """

    def __init__(
        self,
        model: str,
        weights: str,
        engine: str,
        gpu: str,
        prompt_tokens: int,
        answer_tokens: int,
        rate: float,
        ttft_s: float,
        tpot_s: float,
        usd_per_gpu_hour: float | None = None,
        most_gpus: int = 64,
        hit_rate: float = 0.0,
    ) -> None:
        loads = dict(
            prompt_tokens=prompt_tokens, answer_tokens=answer_tokens, rate=rate, ttft_s=ttft_s, tpot_s=tpot_s
        )
        names, others = faults(model, weights, engine, gpu, loads, usd_per_gpu_hour, hit_rate)
        if names or others:
            raise ValueError(" ".join([*names, *others]))
        self.hit_rate = hit_rate
        self.usd_per_gpu_hour, self.price_source = price(gpu, usd_per_gpu_hour)
        self.model, self.weights, self.engine, self.gpu = model, weights, engine, gpu
        self.prompt_tokens, self.answer_tokens, self.rate = int(prompt_tokens), int(answer_tokens), rate
        self.ttft_s, self.tpot_s, self.most_gpus = ttft_s, tpot_s, most_gpus

    def case(self, tensor_parallel: int) -> engines.Case:
        """`engines.Case` of this question on so many GPUs."""
        return engines.Case(
            self.model,
            self.gpu,
            self.engine,
            self.weights,
            tensor_parallel,
            engines.SLOTS,
            self.prompt_tokens,
            self.answer_tokens,
            "plan",
        )


# Objectives above so many seconds were meant in milliseconds: no reader waits so long for a token.
IN_SECONDS = {"ttft_s": 3600, "tpot_s": 5}


def faults(
    model: str,
    weights: str,
    engine: str,
    gpu: str,
    loads: dict[str, float],
    usd_per_gpu_hour: float | None,
    hit_rate: float = 0.0,
) -> tuple[list[str], list[str]]:
    """What is wrong with a question, one sentence per fault: (of names, of `loads` (name -> number), of
    `hit_rate` and of the price, which is looked up only for a GPU that is known).
    """
    found = []

    def tried(check: Callable, *arguments: Any) -> None:
        try:
            check(*arguments)
        except ValueError as fault:
            found.append(str(fault))

    tried(shapes.shape, model)
    tried(naming.choose, "engine", engine, engines.ENGINES)
    tried(shapes.precision, weights)
    before = len(found)
    tried(shapes.device, gpu)
    known, names, found = len(found) == before, found, []
    for name, value in loads.items():
        if not value > 0:
            found.append(
                f"{name} is {value:g}, which no load and no objective can be; give a positive number."
            )
    for name, most in IN_SECONDS.items():
        if loads.get(name, 0) > most:
            found.append(
                f"{name} is {loads[name]:g} s; objectives are in seconds, so write "
                f"{loads[name] / 1e3:g} for {loads[name]:g} ms."
            )
    if not 0 <= hit_rate < 1:
        found.append(f"hit_rate is {hit_rate:g}; give a share of prompt tokens, 0 or more and below 1.")
    if known or usd_per_gpu_hour is not None:
        tried(price, gpu, usd_per_gpu_hour)
    return names, found


def price(gpu: str, usd_per_gpu_hour: float | None = None) -> tuple[float, str]:
    """(dollars per GPU hour, where from): the reader's own, else the lowest in the price list; ValueError
    where there is none.
    """
    if usd_per_gpu_hour is not None:
        if not usd_per_gpu_hour > 0:
            raise ValueError(
                f"A price of {usd_per_gpu_hour:g} dollars per GPU hour makes every configuration "
                f"free; give what you pay."
            )
        return float(usd_per_gpu_hour), "the reader's own"
    known = prices.table()
    known = known[known["device"] == gpu].sort_values("usd_per_gpu_hour")
    if known.empty:
        raise ValueError(f"llm_measured/predict/prices.csv has no price for {gpu}; give usd_per_gpu_hour.")
    first = known.iloc[0]
    return float(first["usd_per_gpu_hour"]), f"{first['vendor']}, {first['kind']}, {first['date']}"


class Candidate:
    """One configuration of a question: its scheduler and step costs, simulated at a rate per replica."""

    def __init__(self, question: Question, tensor_parallel: int, fits: "Fits | Drawn") -> None:
        self.question, self.tensor_parallel = question, tensor_parallel
        self.case = question.case(tensor_parallel)
        self.setting = engines.setting(self.case)
        self.coefficients, self.widths, self.unknown = fits.of(question.engine, question.gpu, question.model)
        self.cost = step_time.cost(self.setting, self.coefficients)
        self.policy = engines.policy(self.case)
        self.policy[state.COMPUTED] *= 1 - question.hit_rate
        self.request_s = self.coefficients[step_time.NAMES.index("request_s")]

    def alone(self) -> tuple[float, float]:
        """(TTFT s, TPOT s) of one request on an idle replica: no load makes them smaller."""
        q = self.question
        return self.request_s + self.prefill_s(), scheduler.step_s(
            self.cost, 1, q.prompt_tokens + q.answer_tokens / 2, 0.0, 0.0
        )

    def prefill_s(self) -> float:
        """Seconds of a step that computes one prompt, but for what the prefix cache has of it."""
        prompt, computed = self.question.prompt_tokens, 1 - self.question.hit_rate
        return scheduler.step_s(self.cost, 0, 0, prompt * computed, prompt**2 / 2 * computed)

    @cached_property
    def capacity(self) -> float:
        """Requests/s that a replica completes while more arrive than it can: above that rate the queue grows
        for as long as requests come.
        """
        lengths = self.question.prompt_tokens, self.question.answer_tokens
        replica = steady.replica(self.case, self.coefficients)
        batch = max(1, steady.largest_batch(replica, *lengths, np.inf, np.inf))
        ttft_s, tpot_s = steady.times(replica, batch, *lengths)
        rate, requests = OVERLOAD * batch / (ttft_s + tpot_s * lengths[1]), max(SIMULATED, IN_FLIGHT * batch)
        while True:
            tried = self._served(rate, requests, MIDDLE)
            ends = tried.sent_s + tried.e2e_s
            first, last = tried.sent_s[requests // 2], tried.sent_s[-1]
            completed = np.mean((ends > first) & (ends <= last)) * requests / (last - first)
            if completed < 0.9 * rate:
                return float(completed)
            rate *= 2

    def utilisation(self, rate: float, future: Future = MIDDLE) -> float:
        """Of what a replica can complete, the share that `rate` requests/s are; from 1 its queue grows."""
        return rate / self.capacity * self._slower(future)

    def _slower(self, future):
        """Factor on all step costs; the time of a step of any batch, and so TPOT in a closed loop, moves by
        as much, and the rate that is completed by its inverse.
        """
        return float(np.exp(self.widths[1] * future.error_tpot))

    def simulate(self, rate: float, future: Future = MIDDLE) -> rows.Simulation:
        """One replica that gets `rate` requests/s in Poisson arrivals, in one of the futures."""
        requests = self._requests(rate, future)
        while True:
            tried = self._served(rate, requests, future)
            in_flight = tried.e2e_s.mean() * rate
            if requests >= min(IN_FLIGHT * in_flight, LONGEST):
                return tried
            requests = int(min(2 * IN_FLIGHT * in_flight, LONGEST))

    def _requests(self, rate, future):
        """Requests to simulate: a queue settles within about 1 / (1 - utilisation)^2 arrivals, the relaxation
        time of a queue in heavy traffic, and is watched for four times as long.
        """
        idle = 1 - min(self.utilisation(rate, future), MOST_UTILISED)
        return int(min(max(SIMULATED, 4 / idle**2), LONGEST))

    def _served(self, rate, requests, future):
        """Slower steps wait longer for each other; what else TTFT is off by passes before the scheduler."""
        q, slower = self.question, self._slower(future)
        before_s = self.alone()[0] * np.exp(self.widths[0] * future.error_ttft) - self.prefill_s() * slower
        lengths = np.full(requests, q.prompt_tokens), np.full(requests, q.answer_tokens)
        at_s = rows.poisson(rate, requests, future.seed)
        return rows.Simulation(
            *lengths, self.cost * slower, self.policy, at_s=at_s, request_s=max(0.0, before_s), gaps=False
        )

    def good(self, simulation: rows.Simulation) -> float:
        """Share of requests that meet both objectives, the first tenth (an empty server) not counted."""
        kept = slice(len(simulation.ttft_s) // 10, None)
        return float(
            np.mean(
                (simulation.ttft_s[kept] <= self.question.ttft_s)
                & (simulation.tpot_s[kept] <= self.question.tpot_s)
            )
        )

    def holds(self, rate: float, future: Future) -> tuple[bool, rows.Simulation | None]:
        """(whether `SHARE` of the requests meet both objectives at `rate`, the simulation); no simulation
        where the queue grows, which holds nothing.
        """
        if self.utilisation(rate, future) > MOST_UTILISED:
            return False, None
        tried = self.simulate(rate, future)
        return bool(self.good(tried) >= SHARE), tried

    def fewest_replicas(self) -> tuple[int, list] | None:
        """(replicas, `holds` of every future) of the fewest replicas that hold the objectives for `SHARE` of
        requests in `FUTURES_HELD` of the futures; None within `most_gpus` GPUs.

        The slowest futures decide where to look; what they leave is simulated in all of them.
        """
        drawn = futures()
        allowed = int(len(drawn) * (1 - FUTURES_HELD) + 1e-9)
        low, high = 1, self.question.most_gpus // self.tensor_parallel
        most = high
        while low < high:
            middle = (low + high) // 2
            if self._missed(middle, drawn[: 2 * allowed + 1], allowed) > allowed:
                low = middle + 1
            else:
                high = middle
        for replicas in range(low, most + 1):
            tried = []
            for future in drawn:
                tried.append(self.holds(self.question.rate / replicas, future))
                if sum(not holds for holds, _ in tried) > allowed:
                    break
            else:
                return replicas, tried
        return None

    def _missed(self, replicas, drawn, allowed):
        """How many of the futures `drawn` miss the objectives, counted until one more than `allowed` does."""
        missed = 0
        for future in drawn:
            missed += not self.holds(self.question.rate / replicas, future)[0]
            if missed > allowed:
                break
        return missed
