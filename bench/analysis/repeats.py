"""`REPEATS=auto`: when the runs of a configuration are enough, and their interval still holds.

Stopping at the first narrow interval stops where the scatter happens to look small, and what is reported is
too narrow (Chow and Robbins, *On the Asymptotic Theory of Fixed-Width Sequential Confidence Intervals for the
Mean*, Ann. Math. Statist. 36, 1965). So the interval must stay narrow for several runs in a row, and so must
a second one that takes its variance from all contrasts of the runs. `bench.analysis.proof` counts how often
the interval holds that is left at the end.
"""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from scipy import stats

from bench.analysis import statistics

Studies: TypeAlias = Any  # the runs of one study, or an array of many studies along its last axis
WITHIN = 0.03
BUDGET = 20
# No interval of fewer runs counts, and it counts only where those of the next runs are as narrow: eight runs
# at least.
FIRST, IN_A_ROW = 6, 3
FEWEST = FIRST + IN_A_ROW - 1
# The correlation that the second interval supposes: above the 0.3 up to which the interval left at the end is
# promised.
SUPPOSED = 0.4
DONE, SPENT, AGAIN, LOST = "within", "budget spent", "more runs", "failed requests"
COLUMNS = "runs mean half_width_share state more sentence".split()


def inflation(runs: int, correlation: float = SUPPOSED) -> float:
    """How much larger the standard error of the mean is than standard deviation / √runs in an AR(1) process.

    The mean has the variance v / runs with v the sum of the correlation matrix over runs, and the squared
    standard deviation the mean (runs − v) / (runs − 1).
    """
    variance = statistics.correlations(runs, correlation).sum() / runs
    return math.sqrt(variance * (runs - 1) / (runs - variance))


def narrow(
    values: np.ndarray, within: float = WITHIN, confidence: float = statistics.CONFIDENCE
) -> np.ndarray:
    """Whether two intervals of the mean over the last axis lie within ± `within` of it.

    The one that is reported, and Student's with its standard error inflated to the correlation SUPPOSED.
    """
    runs = values.shape[-1]
    plain = stats.t.ppf((1 + confidence) / 2, runs - 1) * values.std(axis=-1, ddof=1) / math.sqrt(runs)
    half = np.maximum(statistics.half_width(values, confidence), inflation(runs) * plain)
    return half <= within * np.abs(values.mean(axis=-1))


def enough(values: Studies, within: float = WITHIN, confidence: float = statistics.CONFIDENCE) -> np.ndarray:
    """Whether the runs along the last axis are enough: `narrow` has held for IN_A_ROW runs up to now."""
    values = np.asarray(values, dtype=float)
    runs = values.shape[-1]
    if runs < FEWEST:
        return np.zeros(values.shape[:-1], dtype=bool)
    looks = [narrow(values[..., :n], within, confidence) for n in range(runs - IN_A_ROW + 1, runs + 1)]
    return np.logical_and.reduce(looks)


def decide(
    values: Sequence[float] | np.ndarray,
    within: float = WITHIN,
    budget: int = BUDGET,
    measured: int | None = None,
) -> tuple[str, int]:
    """(state, more) for the runs `values` of one configuration: how many to add before this is called again.

    `measured` counts the runs where some have no value.
    """
    measured = len(values) if measured is None else measured
    if bool(enough(values, within)):
        return DONE, 0
    if measured >= budget:
        return SPENT, 0
    return AGAIN, min(max(FEWEST - len(values), 1), budget - measured)


def _sentence(state: str, runs: int, share: float, more: int, within: float, budget: int) -> str:
    width = f"± {share * 100:.2g} %" if not math.isnan(share) else "no interval"
    aim = f"± {within * 100:g} %"
    count = "1 run" if runs == 1 else f"{runs} runs"
    return {
        DONE: f"{count}: {width}, within {aim}.",
        SPENT: f"{count}: {width}; the budget of {budget} runs is spent before {aim} is reached.",
        AGAIN: f"{count}: {width}; {more} more before it is looked at again.",
        LOST: f"{count}, some with failed requests: no more runs follow, and it is not ranked.",
    }[state]


def plan(
    runs: pd.DataFrame,
    keys: Sequence[str],
    metric: str,
    within: float = WITHIN,
    budget: int = BUDGET,
    order: str = "started",
    failed: str = "failed",
) -> pd.DataFrame:
    """What `REPEATS=auto` does next with each configuration of `runs` (one row per run).

    One row per configuration; columns `keys`, runs, mean (unit of `metric`), half_width_share (half width of
    the 95 % interval over the mean), state (within, budget spent, more runs, failed requests), more (how many
    runs to add before this is called again), sentence. ValueError for a budget below two runs.
    """
    if budget < 2:
        raise ValueError(f"A budget of {budget} runs gives no interval: take at least 2.")
    rows = []
    for key, values, group in statistics.series(runs, keys, metric, order):
        mean, _, high = statistics.mean_interval(values)
        share = (high - mean) / mean if len(values) else math.nan
        state, more = decide(values, within, budget, len(group))
        if failed in group and (group[failed] > 0).any():
            state, more = LOST, 0
        sentence = _sentence(state, len(values), share, more, within, budget)
        rows.append((*key, len(values), mean, share, state, more, sentence))
    return pd.DataFrame(rows, columns=[*keys, *COLUMNS])
