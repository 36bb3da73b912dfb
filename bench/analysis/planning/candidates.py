"""What a reader asks of the planner, and one configuration that may answer it."""

import numpy as np

from bench import inputs
from bench.analysis.planning import engines, rows, scheduler, step_time

TENSOR_PARALLEL = (1, 2, 4, 8)
SHARE = 0.99  # of requests that must meet every objective
SIMULATED = 2000  # requests of one replica, at least
LONGEST = 20_000  # and at most


class Question:
    """What a reader asks: model, precision, engine, lengths in tokens, rate in requests/s, objectives in s,
    GPUs at most, price per GPU hour.
    """

    def __init__(
        self,
        model,
        weights,
        engine,
        gpu,
        prompt_tokens,
        new_tokens,
        rate,
        ttft_s,
        tpot_s,
        usd_per_gpu_hour=None,
        most_gpus=64,
    ):
        for name, value in dict(
            prompt_tokens=prompt_tokens, new_tokens=new_tokens, rate=rate, ttft_s=ttft_s, tpot_s=tpot_s
        ).items():
            if not value > 0:
                raise ValueError(
                    f"{name} is {value:g}, which no load and no objective can be; give a positive number."
                )
        self.usd_per_gpu_hour, self.price_source = price(gpu, usd_per_gpu_hour)
        self.model, self.weights, self.engine, self.gpu = model, weights, engine, gpu
        self.prompt_tokens, self.new_tokens, self.rate = int(prompt_tokens), int(new_tokens), rate
        self.ttft_s, self.tpot_s, self.most_gpus = ttft_s, tpot_s, most_gpus

    def case(self, tensor_parallel):
        """`engines.Case` of this question on so many GPUs."""
        return engines.Case(
            self.model,
            self.gpu,
            self.engine,
            self.weights,
            tensor_parallel,
            engines.SLOTS,
            self.prompt_tokens,
            self.new_tokens,
            "plan",
        )


def price(gpu, usd_per_gpu_hour=None):
    """(dollars per GPU hour, where from): the reader's own, else the lowest of data/prices.csv; ValueError
    where there is none.
    """
    if usd_per_gpu_hour is not None:
        if not usd_per_gpu_hour > 0:
            raise ValueError(
                f"A price of {usd_per_gpu_hour:g} dollars per GPU hour makes every configuration "
                f"free; give what you pay."
            )
        return float(usd_per_gpu_hour), "the reader's own"
    known = inputs.table("prices")
    known = known[known["device"] == gpu].sort_values("usd_per_gpu_hour")
    if known.empty:
        raise ValueError(f"data/prices.csv has no price for {gpu}; give usd_per_gpu_hour.")
    first = known.iloc[0]
    return float(first["usd_per_gpu_hour"]), f"{first['vendor']}, {first['kind']}, {first['date']}"


class Candidate:
    """One configuration of a question: its scheduler and step costs, simulated at a rate per replica."""

    def __init__(self, question, tensor_parallel, fits):
        self.question, self.tensor_parallel = question, tensor_parallel
        case = question.case(tensor_parallel)
        self.setting = engines.setting(case)
        self.coefficients, self.widths, self.estimated = fits.of(question.engine, question.gpu)
        self.cost = step_time.cost(self.setting, self.coefficients)
        self.policy = engines.policy(case)
        self.request_s = self.coefficients[step_time.NAMES.index("request_s")]

    def alone(self):
        """(TTFT s, TPOT s) of one request on an idle replica: no load makes them smaller."""
        q = self.question
        prefill = scheduler.step_s(self.cost, 0, 0, float(q.prompt_tokens), q.prompt_tokens**2 / 2)
        return self.request_s + prefill, scheduler.step_s(
            self.cost, 1, q.prompt_tokens + q.new_tokens / 2, 0.0, 0.0
        )

    def simulate(self, rate):
        """`rows.Simulation` of one replica that gets `rate` requests/s in Poisson arrivals."""
        q = self.question
        answer_s = self.alone()[1] * q.new_tokens
        requests = int(min(max(SIMULATED, 10 * rate * answer_s), LONGEST))
        lengths = np.full(requests, q.prompt_tokens), np.full(requests, q.new_tokens)
        at_s = rows.poisson(rate, requests)
        return rows.Simulation(
            *lengths, self.cost, self.policy, at_s=at_s, request_s=self.request_s, gaps=False
        )

    def good(self, simulation):
        """Share of requests that meet both objectives, the first tenth (an empty server) not counted."""
        kept = slice(len(simulation.ttft_s) // 10, None)
        return np.mean(
            (simulation.ttft_s[kept] <= self.question.ttft_s)
            & (simulation.tpot_s[kept] <= self.question.tpot_s)
        )

    def fewest_replicas(self, share=SHARE):
        """(replicas, their simulation) that hold the objectives for `share` of requests, the fewest; None
        within `most_gpus` GPUs.
        """
        most = self.question.most_gpus // self.tensor_parallel
        low, high, found = 1, most, None
        while low <= high:
            middle = (low + high) // 2
            tried = self.simulate(self.question.rate / middle)
            if self.good(tried) >= share:
                high, found = middle - 1, (middle, tried)
            else:
                low = middle + 1
        return found
