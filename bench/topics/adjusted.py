"""Means where an experiment has conditions, such as levels of load or shapes of a batch.

Each condition has a regression (`estimates`) of its own, of all machines that measured it.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from bench.observations import schema
from bench.topics import estimates, once

SETTING = ["experiment", *schema.SETTING, "host"]


def fits(
    runs: pd.DataFrame, keys: Sequence[str], metric: str, conditions: Sequence[str] = ()
) -> list[tuple[dict, estimates.Fit]]:
    """Return (values of experiment and `conditions`, the regression of `metric` there) of each that has runs.

    One row of `runs` per run and condition; columns experiment, `keys` (with the host), `conditions`,
    `metric`, started. A configuration with a figure that is not above zero, which has no logarithm, is in no
    regression.
    """
    where = ["experiment", *conditions]
    names = dict.fromkeys([*where, *keys, metric, "host", "started", "ended"])
    return _fits(runs[[name for name in names if name in runs]], tuple(keys), metric, tuple(where))


@once.for_the_same_rows
def _fits(
    runs: pd.DataFrame, keys: tuple[str, ...], metric: str, where: tuple[str, ...]
) -> list[tuple[dict, estimates.Fit]]:
    fitted = []
    for place, rows in runs[runs[metric].notna()].groupby(list(where), dropna=False, sort=True):
        if (rows[metric] <= 0).any():
            above = (rows[metric] > 0).groupby([rows[key] for key in keys], dropna=False).transform("all")
            rows = rows[above]
        if len(rows):
            fitted.append((dict(zip(where, place)), estimates.fit(rows, keys, metric)))
    return fitted


def means(
    runs: pd.DataFrame, keys: Sequence[str], metric: str, conditions: Sequence[str] = ()
) -> pd.DataFrame:
    """The mean of `metric` of every configuration and condition of `runs` (as `fits` takes them).

    One row per configuration and condition with a value; columns SETTING, `conditions`, `keys` and `half`,
    those of `estimates.MEANS`: `half` is half the width of the interval, in the metric's unit. Where a
    figure is not above zero, the mean is that of the runs, without an interval.
    """
    names = [*dict.fromkeys([*SETTING, *conditions, *keys])]
    plain = runs[runs[metric].notna()].groupby(names, dropna=False, sort=True)[metric]
    table = plain.agg(plain="mean", count="size").reset_index()
    models = fits(runs, keys, metric, conditions)
    if not models:
        nothing = dict.fromkeys(("low", "high", "half", "measuring_sessions"), np.nan)
        return table.rename(columns={"plain": "mean", "count": "runs"}).assign(**nothing, note="")
    found = pd.concat([model.means().assign(**where) for where, model in models], ignore_index=True)
    table = table.merge(found, "left", names)
    table = table.assign(
        mean=table["mean"].fillna(table["plain"]),
        runs=table["runs"].fillna(table["count"]).astype(int),
        note=table["note"].fillna(""),
        half=(table["high"] - table["low"]) / 2,
    )
    return table.drop(columns=["plain", "count"])
