"""Tables of the topic decision."""

import pandas as pd

from bench.report import tables, words
from bench.topics import recommend
from llm_measured.core import columns
from llm_measured.core.columns import Column
from llm_measured.core.metrics import METRICS

AT_MOST = {"peak_memory_bytes": " at most"}  # a maximum that was seen, not a need


@tables.of_machines
def decision(requests: pd.DataFrame) -> pd.DataFrame:
    """Which engine should I use? One row per wish: the engine and option with the highest mean over runs on
    each machine, what its answers cost, the next engine, and who was not compared."""
    table = recommend.choices(requests)
    wishes = [_wish(rows) for _, rows in table.groupby(["want"], sort=False)]
    shown = columns.of(
        "want gpu use gives verdict next not_compared model",
        want=Column("if you want"),
        gives=Column("it gives"),
        verdict=Column("its answers"),
        next=Column("the next engine"),
        not_compared=Column("not compared (one run, failures, or not judged)"),
    )
    return columns.renamed(pd.DataFrame(wishes, columns=list(shown)), shown)


def _wish(rows):
    """Return the row of one wish from the `rows` of `recommend.choices` that name something for it."""
    first, following = rows.iloc[0], rows[rows["part"] == recommend.NEXT]
    found = first[["want", "gpu", "model", "verdict", "not_compared"]].to_dict()
    name = f"{first['backend']} {first['option']}"
    if first["part"] in (recommend.ONE_RUN, recommend.WITHHELD):
        none = f"no ranking: {first['part']}"
        return found | {"use": none, "gives": f"{_value(first)} ({name})", "next": ""}
    return found | {
        "use": name,
        "gives": _value(first),
        "next": "".join(_next(row) for _, row in following.iterrows()),
    }


def _next(row):
    """Return `llamacpp Q4_0 (95.2 ± 3; 9 × 8 = 11)`."""
    lost = f"; {row['verdict']}" if row["verdict"] else ""
    return f"{row['backend']} {row['option']} ({_number(row)}{lost})"


def _number(row):
    metric = METRICS[row["column"]]
    return words.within(row["value"] * metric.factor, row["interval"] * metric.factor)


def _value(row):
    """Return a value as readers see it: `95.2 ± 3 tokens/s at batch 8, longest gap 45 ms`, `41.7 ms`."""
    metric = METRICS[row["column"]]
    unit = f"{metric.unit or metric.title}{AT_MOST.get(row['column'], '')}"
    batch = f" at batch {row['batch_size']:.0f}, longest gap {1e3 * row['gap_s']:.0f} ms"
    return f"{_number(row)} {unit}{batch if pd.notna(row['batch_size']) else ''}"
