"""Simulated worlds in which the planner's answer is tried: `llm-planner worlds` writes
data/planner_worlds.csv.

A world has true coefficients, drawn from what the committed fit does not know, and arrivals of its own. The
planner has answered before, from the committed fit alone. In each world the recommended number of replicas is
simulated, and the least number that would have met the goal there is looked for.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

from bench import inputs
from llm_planner import candidates, check, fit, planner, step_time

TABLE = "planner_worlds"
NUMBER = 100
SEED = 1000  # of the first world's arrivals; the planner's own futures have others
COEFFICIENTS, ERRORS = "the fit's coefficients", "step times off as on rows that no fit saw"


class Drawn:
    """Coefficients of one world in the place of `check.Fits`: true, and so without an error."""

    def __init__(self, coefficients: np.ndarray) -> None:
        self.coefficients = coefficients

    def of(
        self, engine: str, gpu: str, model: str, error_group: str = ""
    ) -> tuple[np.ndarray, np.ndarray, str]:
        """(coefficients, no half widths, "")."""
        return self.coefficients, np.zeros(2), ""


def coefficients(fits: check.Fits, engine: str, gpu: str, number: int = NUMBER) -> np.ndarray:
    """Array (number, coefficients): normal in their logarithms around the committed fit of an engine and GPU,
    with its covariance, none above what is possible (`fit.HIGHEST`).
    """
    table = inputs.table(check.COVARIANCE)
    same = table[(table["engine"] == engine) & (table["gpu"] == gpu)].set_index("coefficient")
    covariance = same.loc[step_time.NAMES, step_time.NAMES].to_numpy()
    best = np.log(fits.coefficients[engine, gpu][0])
    draw = np.random.default_rng(0).multivariate_normal(best, covariance, number)
    return np.exp(np.minimum(draw, fit.HIGHEST))


def drawn(
    question: candidates.Question, tensor_parallel: int, fits: check.Fits, number: int = NUMBER
) -> Iterator[tuple[str, candidates.Candidate, candidates.Future]]:
    """(what was drawn, the configuration, its future) of every world: as many of each kind."""
    for k, true in enumerate(coefficients(fits, question.engine, question.gpu, number)):
        world = candidates.Candidate(question, tensor_parallel, Drawn(true))
        yield COEFFICIENTS, world, candidates.Future(0.0, 0.0, SEED + k)
    usual = candidates.Candidate(question, tensor_parallel, fits)
    errors = np.random.default_rng(1).normal(size=(number, 2)) / 1.96
    for k, pair in enumerate(errors):
        yield ERRORS, usual, candidates.Future(float(pair[0]), float(pair[1]), SEED + k)


def least(holds: Callable[[int], bool], start: int, most: int) -> int:
    """The least number from 1 to `most` that `holds`, looked for from `start`; `most` + 1 where none does."""
    number = start
    if holds(number):
        while number > 1 and holds(number - 1):
            number -= 1
        return number
    while number <= most and not holds(number):
        number += 1
    return number


def tried(parameters: dict, fits: check.Fits | None = None, number: int = NUMBER) -> pd.DataFrame:
    """One row per recommended row (the cheapest of each GPU and precision) and kind of world.

    Columns: drawn, gpu, weights, tensor_parallel, replicas, worlds, met (in how many the recommended row met
    the goal), least (the median of the least number that did), most (its largest), more (the median of
    recommended
    less least), ttft_half_width and tpot_half_width (logarithms), unknown, refused and asked (GPUs x
    precisions x GPUs of a replica, in the whole question).
    """
    fits, found = fits or check.Fits(), []
    answers, _ = planner.answers(parameters, fits)
    asked = len(parameters["gpus"].split()) * len(parameters["weights"].split())
    asked *= len(candidates.TENSOR_PARALLEL)
    names = "model engine prompt_tokens answer_tokens rate ttft_s tpot_s most_gpus hit_rate".split()
    for (gpu, weights), part in answers.groupby(["gpu", "weights"], sort=False):
        question = candidates.Question(
            **{name: parameters[name] for name in names}, gpu=gpu, weights=weights, usd_per_gpu_hour=1.0
        )
        row = part.iloc[0]
        replicas, tp = int(row["replicas"]), int(row["tensor_parallel"])
        half = candidates.Candidate(question, tp, fits).widths
        worlds = {COEFFICIENTS: [], ERRORS: []}
        for kind, world, future in drawn(question, tp, fits, number):

            def holds(replicas, world=world, future=future):
                return world.holds(question.rate / replicas, future)[0]

            fewest = least(holds, replicas, question.most_gpus // tp)
            worlds[kind].append(fewest)
        for kind, seen in worlds.items():
            fewest = np.array(seen)
            found.append(
                {"drawn": kind, "gpu": gpu, "weights": weights, "tensor_parallel": tp, "replicas": replicas}
                | {"worlds": len(seen), "met": int((fewest <= replicas).sum()), "least": np.median(fewest)}
                | {"most": int(fewest.max()), "more": np.median(replicas - fewest)}
                | {"ttft_half_width": half[0], "tpot_half_width": half[1], "unknown": row["unknown"]}
                | {"refused": asked - len(answers), "asked": asked}
            )
    return pd.DataFrame(found)


def commit(parameters: dict) -> pd.DataFrame:
    """`tried`, printed, and written to data/planner_worlds.csv."""
    table = tried(parameters)
    path = inputs.DATA / f"{TABLE}.csv"
    table.to_csv(path, index=False, float_format="%.4g", lineterminator="\n")
    print(table.to_string())
    return table
