"""Moments of a load: caps before scale, ticks spread, sessions sampled."""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

TICKED = 0.5  # where more of the gaps are 0, the clock of a trace ticks


def tick_s(at_s: ArrayLike) -> float:
    """Seconds between two ticks of the clock that moments were read from, 0 where it does not tick: a
    short gap between moments that differ (their 10th percentile: ticks may be empty), where more than TICKED
    of all gaps are 0."""
    gaps = np.diff(np.sort(np.asarray(at_s, dtype=float)))
    if not len(gaps) or (gaps == 0).mean() <= TICKED or not (gaps > 0).any():
        return 0.0
    return float(np.percentile(gaps[gaps > 0], 10, method="lower"))


def spread(at_s: ArrayLike, seed: int) -> np.ndarray:
    """Moments with those of one tick spread evenly at random over the time until the next one, in order.

    The same for the same seed; unchanged where the clock does not tick.
    """
    at_s, tick = np.asarray(at_s, dtype=float), tick_s(at_s)
    if not tick:
        return at_s.copy()
    drawn, moved = np.random.default_rng([seed, 2]), at_s.copy()
    for moment in np.unique(at_s):
        same = np.flatnonzero(at_s == moment)
        moved[same] = moment + np.sort(drawn.uniform(0, tick, len(same)))
    return moved


def capped(table: pd.DataFrame, cap_s: float | None) -> pd.Series:
    """The moments `at_s` of requests with the columns session and at_s, no two turns of a session farther
    apart than `cap_s` (None: as they are). What follows a long gap moves towards the turn before it."""
    if cap_s is None:
        return table["at_s"]
    ordered = table.sort_values(["session", "at_s"], kind="stable")
    gaps = ordered.groupby("session")["at_s"].diff().clip(upper=cap_s)
    first = ordered.groupby("session")["at_s"].transform("first")
    return (first + gaps.fillna(0.0).groupby(ordered["session"]).cumsum()).reindex(table.index)


def sample(sessions: ArrayLike, share: float, seed: int) -> set[int]:
    """A random `share` of the different `sessions`, at least one: whole sessions, because a random tenth of
    the requests of a trace has a third of its hit rate. ValueError for a share outside 0 to 1."""
    if not 0 < share <= 1:
        raise ValueError(f"sample must be above 0 and at most 1, not {share!r}.")
    every = np.unique(np.asarray(sessions))
    count = max(1, round(share * len(every)))
    return set(np.random.default_rng([seed, 3]).choice(every, count, replace=False).tolist())
