"""The table of corrections."""

import pandas as pd

from bench import inputs
from bench.report import tables
from llm_measured.core import columns
from llm_measured.core.columns import Column


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
