"""Sentences of the topic overhead."""

import pandas as pd

from bench.analysis import comparison
from bench.analysis import latency as latency_analysis
from bench.report.findings import words


def cost(requests: pd.DataFrame) -> str | None:
    """What measuring costs: with which engines the interval over pairs parts it from nothing, and how far
    the others' reach."""
    settings = latency_analysis.settings(latency_analysis.overhead_summary(requests).dropna(subset="low"))
    if not settings:
        return None
    table = settings[0][1]
    parts = [_apart(table, "dearer", "more"), _apart(table, "cheaper", "less")]
    equal = table[table["verdict"] == comparison.EQUAL]
    if len(equal):
        whom = "all" if len(equal) == len(table) else f"{len(equal)} of"
        ends = f"{words.percent(equal['low'].min())} to {words.percent(equal['high'].max())} %"
        parts.append(
            f"cannot be distinguished from nothing with {whom} {len(table)} engines and options, whose "
            f"intervals reach from {ends}"
        )
    pairs = words.plural(table["pairs"].min(), "pair")
    least = "" if table["pairs"].nunique() == 1 else "at least "
    return (
        f"{words.on(table.iloc[0])}, what measuring adds to the time of an engine's own loop "
        f"{'; it '.join(filter(None, parts))} (95 % intervals over {least}{pairs} of requests)."
    )


def _apart(table, verdict, more):
    """The engines whose interval lies on one side of nothing; empty where there are none."""
    each = [
        f"{_percent(row)} with {words.name(row)}" for _, row in table[table["verdict"] == verdict].iterrows()
    ]
    return f"takes {more} time: {words.listed(each)}" if each else ""


def _percent(row: pd.Series) -> str:
    """`2.7 % (0.4 to 5)`: a cost with its interval."""
    low, mean, high = (words.percent(row[name]) for name in ("low", "mean", "high"))
    return f"{mean} % ({low} to {high} %)"
