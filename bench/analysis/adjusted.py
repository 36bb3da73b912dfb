"""Adjusted means where an experiment has conditions, such as levels of load or shapes of a batch.

Each machine, model and condition has a model (`comparison`) of its own, of the configurations that were
measured there.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from bench import memo
from bench.analysis import comparison
from bench.observations import schema

# Runs are compared with those of the same experiment on the same machine, with the same model and weights.
SETTING = ["experiment", *schema.SETTING, "host"]
OPTIONAL = ["ended", "run_id", "placement"]


def fits(
    runs: pd.DataFrame, keys: Sequence[str], metric: str, conditions: Sequence[str] = ()
) -> list[tuple[dict, comparison.Fit]]:
    """(values of SETTING and `conditions`, the model of the runs' `metric` there) of every one that has a
    value.

    One row of `runs` per run and condition; columns SETTING, `keys`, `conditions`, `metric`, started. A
    configuration with a figure that is not above zero, which has no logarithm, is in no model.
    """
    optional = [name for name in OPTIONAL if name in runs]
    kept = [*dict.fromkeys([*SETTING, *conditions, *keys, "started", *optional, metric])]
    return _fits(runs.loc[runs[metric].notna(), kept], tuple(keys), metric, tuple(conditions))


@memo.by_content
def _fits(
    runs: pd.DataFrame, keys: tuple[str, ...], metric: str, conditions: tuple[str, ...]
) -> list[tuple[dict, comparison.Fit]]:
    found, where = [], [*SETTING, *conditions]
    times = [name for name in ("started", "ended") if name in runs]
    runs = runs.assign(**{name: pd.to_datetime(runs[name], utc=True) for name in times})  # read once
    for place, rows in runs.groupby(where, dropna=False, sort=True):
        if (rows[metric] <= 0).any():
            above = (rows[metric] > 0).groupby([rows[key] for key in keys], dropna=False).transform("all")
            rows = rows[above]
        if len(rows):
            found.append((dict(zip(where, place)), comparison.fit(rows, keys, metric)))
    return found


def means(
    runs: pd.DataFrame, keys: Sequence[str], metric: str, conditions: Sequence[str] = ()
) -> pd.DataFrame:
    """The adjusted mean of `metric` of every configuration and condition of `runs` (as `fits` takes them).

    One row per configuration and condition with a value; columns SETTING, `conditions`, `keys` and `half`,
    those of `comparison.MEANS`: `half` is half the width of the interval, in the metric's unit. Where a
    figure is not above zero, the mean is that of the runs, without an interval.
    """
    names = [*dict.fromkeys([*SETTING, *conditions, *keys])]
    plain = runs[runs[metric].notna()].groupby(names, dropna=False, sort=True)[metric]
    table = plain.agg(plain="mean", count="size").reset_index()
    models = fits(runs, keys, metric, conditions)
    if not models:
        nothing = dict.fromkeys(("low", "high", "half", "sittings"), np.nan)
        return table.rename(columns={"plain": "mean", "count": "runs"}).assign(**nothing, note="")
    found = pd.concat([model.means() for *_, model in models], ignore_index=True)
    here = np.repeat(np.arange(len(models)), [len(model.table) for *_, model in models])
    where = pd.DataFrame([where for where, *_ in models]).iloc[here].reset_index(drop=True)
    table = table.merge(pd.concat([found, where[[*where.columns.difference(keys)]]], axis=1), "left", names)
    table = table.assign(
        mean=table["mean"].fillna(table["plain"]),
        runs=table["runs"].fillna(table["count"]).astype(int),
        note=table["note"].fillna(""),
        half=(table["high"] - table["low"]) / 2,
    )
    return table.drop(columns=["plain", "count"])
