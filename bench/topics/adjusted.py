"""Means where an experiment has conditions, such as levels of load or shapes of a batch."""

from collections.abc import Sequence

import pandas as pd

from bench.topics import estimates


def means(runs: pd.DataFrame, keys: Sequence[str], metric: str, conditions: Sequence[str]) -> pd.DataFrame:
    """Return the mean of `metric` of every configuration (`keys`, with the host) and condition of `runs`.

    Each condition has a regression (`estimates`) of its own. One row per configuration and condition with a
    value; columns `conditions`, `keys`, mean and half: half the width of its 95 % interval, in the metric's
    unit. A configuration with a figure that is not above zero, which has no logarithm, has the mean of its
    runs, without an interval.
    """
    names = [*conditions, *keys]
    runs = runs[runs[metric].notna()]
    table = runs.groupby(names, dropna=False, as_index=False).agg(
        plain=(metric, "mean"), least=(metric, "min")
    )
    above = runs.merge(table[table["least"] > 0], on=names)
    parts = [
        estimates.fit(rows, names, metric).means()
        for _, rows in above.groupby(list(conditions), dropna=False, sort=True)
    ]
    fitted = pd.concat(parts) if parts else pd.DataFrame(columns=[*names, "mean", "low", "high"])
    table = table.merge(fitted, "left", names)
    half = (table["high"] - table["low"]).astype(float) / 2
    return table.assign(mean=table["mean"].astype(float).fillna(table["plain"]), half=half)[
        [*names, "mean", "half"]
    ]
