"""Tables of the topic history: what was measured when."""

import pandas as pd

from bench import inputs
from bench.report import tables
from llm_measured.core import columns
from llm_measured.core.columns import Column


@tables.listed
def measured_when(requests: pd.DataFrame) -> pd.DataFrame:
    """What was measured when: one row per day, device, experiment and engine with its version; runs, options,
    and whether the version was new on that device."""
    runs = requests.drop_duplicates("run_id")
    runs = runs.assign(day=runs["started"].str[:10], version=runs["backend_version"].astype(str))
    keys = ["day", "gpu", "host", "experiment", "backend", "version"]
    table = runs.groupby(keys, as_index=False, sort=True).agg(
        options=("option", lambda names: ", ".join(sorted(set(names)))), runs=("run_id", "count")
    )
    device = ["gpu", "host", "backend"]
    first = table.groupby([*device, "version"])["day"].transform("min")
    begun = table.groupby(device)["day"].transform("min")
    table["new"] = ["new version" if n else "" for n in (first == table["day"]) & (first > begun)]
    table = table.sort_values(["day", "gpu", "experiment", "backend"], ascending=[False, True, True, True])
    return columns.shown(table, "day experiment backend version options gpu runs new", new="change")


@tables.listed
def corrections() -> pd.DataFrame:
    """What was published and is corrected: a row per entry of the referee's report on revision 53dabe5, with
    the sentence before, the one now and the arithmetic (data/corrections.csv)."""
    return columns.shown(
        inputs.table("corrections"),
        "id where before after arithmetic",
        id=Column("entry"),
        where=Column("where"),
        before=Column("published until 2026-11-26"),
        after=Column("published now"),
        arithmetic=Column("arithmetic"),
    )
