"""How many requests bound a percentile, and p-values of many comparisons at once."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

CONFIDENCE = 0.95  # that the slowest request lies beyond a percentile that is shown


def requests_needed(share: float) -> int:
    """Fewest requests of which the slowest is beyond the percentile `share` with CONFIDENCE: 5 for the
    median, 29 for p90, 299 for p99 (1 - share^n >= 0.95; David and Nagaraja, Order Statistics, 2003, section
    7.1)."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(share))


def holm(p: Sequence[float] | pd.Series) -> np.ndarray:
    """The p-values of one family of comparisons adjusted for their number (Holm, Scandinavian Journal of
    Statistics 6, 1979); those that are NaN stay NaN."""
    values = np.asarray(p, dtype=float)
    known = ~np.isnan(values)
    adjusted = np.full_like(values, math.nan)
    if known.any():
        # As statsmodels' `multipletests`, which collects all garbage of the process at each call: half of the
        # time of a page.
        order = np.argsort(values[known], kind="stable")
        sizes = np.arange(len(order), 0, -1)
        steps = np.maximum.accumulate(sizes * values[known][order]).clip(max=1)
        adjusted[np.flatnonzero(known)[order]] = steps
    return adjusted
