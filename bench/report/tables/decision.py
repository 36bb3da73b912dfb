"""Tables of the topic decision."""

import pandas as pd

from bench.analysis import recommend
from bench.metrics import METRICS
from bench.report import columns, html, tables
from bench.report.columns import Column

AT_MOST = {"peak_memory_bytes": " at most"}  # a maximum that was seen, not a need


@tables.listed
def decision(requests):
    """Which engine should I use? One row per wish: the engine and option that fulfil it best on the machine
    in focus, and the next engine."""
    table = recommend.choices(requests)
    table = table.assign(
        gives=[_value(name, value) for name, value in zip(table["column"], table["value"])],
        next=[_next(row) for _, row in table.iterrows()],
    )
    shown = columns.of(
        "want backend option gives next",
        want=Column("if you want"),
        backend="use",
        gives=Column("it gives"),
        next=Column("the next engine"),
    )
    return columns.renamed(table, shown)


def _value(name, value):
    """A value as readers see it, with its unit: `95.2 output tokens/s`, `41.7 ms`."""
    metric = METRICS[name]
    return (
        f"{html.number(value * metric.factor)} {metric.display_unit or metric.symbol}{AT_MOST.get(name, '')}"
    )


def _next(row):
    """The best of the other engines with its value; empty where there is none."""
    if pd.isna(row["next_value"]):
        return ""
    value = html.number(row["next_value"] * METRICS[row["column"]].factor)
    return f"{row['next_backend']} {row['next_option']} ({value})"
