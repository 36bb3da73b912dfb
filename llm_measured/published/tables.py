"""The four tables that pages, README and commands read of what others published, as files in data/tables.

    llm-measured published tables           write them from the committed rows
    llm-measured published tables --check   1 where they are not what the committed rows give

published_lookup    speed of one user: what each source measured, and the number of each cell
published_verdicts  A against B, source by source, and what they say together
published_bits      speed, perplexity and MMLU by number format, against 16 bits
published_costs     what a longer context, a smaller KV cache and drafts leave of the speed
"""

import pandas as pd

from llm_measured.core import tables as core_tables
from llm_measured.core.files import write_whole
from llm_measured.published import build, costs, lookup, verdicts

FOLDER = build.DATA.parent / "tables"
TABLES = {
    "published_lookup": lookup.table,
    "published_verdicts": verdicts.table,
    "published_bits": costs.bits,
    "published_costs": costs.costs,
}


def computed() -> dict[str, pd.DataFrame]:
    """Return {name: rows} of the four, from the committed rows."""
    return {name: table() for name, table in TABLES.items()}


def differences() -> list[str]:
    """Return a sentence for each of the four whose file is not what the committed rows give."""
    return core_tables.differences(computed(), FOLDER, pd.read_csv, "make observatory")


def write() -> list[str]:
    """Write the four, each whole or not at all; return a sentence on each, and the bias of a crowd."""
    told = []
    for name, table in computed().items():
        write_whole(FOLDER / f"{name}.csv", core_tables.csv_text(table))
        told.append(f"{FOLDER / name}.csv: {len(table):,} rows")
    ratio, cells = lookup.bias(pd.read_csv(FOLDER / "published_lookup.csv"))
    told.append(f"{lookup.CROWD} has {ratio:.2f} times the others' speed in the median of {cells} cells.")
    return told
