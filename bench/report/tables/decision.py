"""Tables of the topic decision."""

import pandas as pd

from bench import columns
from bench.analysis import ranking, recommend
from bench.columns import Column
from bench.metrics import METRICS
from bench.report import tables
from bench.report.findings import words

AT_MOST = {"peak_memory_bytes": " at most"}  # a maximum that was seen, not a need
SHOWN = 3  # names in one cell


@tables.of_machines
def decision(requests: pd.DataFrame) -> pd.DataFrame:
    """Which engine should I use? One row per wish: the engines and options that fulfil it best on each
    machine, together where they cannot be distinguished, and the next engine."""
    table = recommend.choices(requests)
    wishes = [_wish(rows) for _, rows in table.groupby(["want"], sort=False)]
    shown = columns.of(
        "want gpu use gives next model",
        want=Column("if you want"),
        gives=Column("it gives"),
        next=Column("the next engine"),
    )
    return columns.renamed(pd.DataFrame(wishes, columns=list(shown)), shown)


def _wish(rows):
    """The row of one wish from the `rows` of `recommend.choices` that name something for it."""
    first = rows.iloc[0]
    best, following = (rows[rows["part"] == part] for part in (recommend.BEST, recommend.NEXT))
    names = [f"{row['backend']} {row['option']}" for _, row in best.iterrows()]
    found = first[["want", "gpu", "model"]].to_dict()
    if best.empty:
        why = "one run each" if first["reason"] == ranking.ONE_RUN else first["reason"]
        highest = f"{first['backend']} {first['option']}"
        return found | {"use": f"no ranking: {why}", "gives": f"{_value(first)} ({highest})", "next": ""}
    return found | {
        "use": words.listed(names, SHOWN).replace(" and ", " or "),
        "gives": words.listed([_value(row, unit=False) for _, row in best.iterrows()], SHOWN) + _unit(first),
        "next": "".join(
            f"{row['backend']} {row['option']} ({_value(row, unit=False)})" for _, row in following.iterrows()
        ),
    }


def _value(row, unit=True):
    """A value as readers see it, with its interval: `95.2 ± 3 output tokens/s`, `41.7 ms`."""
    metric = METRICS[row["column"]]
    return words.within(row["value"] * metric.factor, row["interval"] * metric.factor) + _unit(row) * unit


def _unit(row):
    metric = METRICS[row["column"]]
    return f" {metric.display_unit or metric.symbol}{AT_MOST.get(row['column'], '')}"
