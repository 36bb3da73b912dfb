"""Tables of the topic across machines: what holds on every machine, and what depends on it."""

import pandas as pd

from bench import html
from bench.report import tables
from bench.topics import across_machines as across_analysis
from llm_measured.core import columns
from llm_measured.core.columns import Column

MOST_ROWS = 40


@tables.listed
def across_machines(requests: pd.DataFrame) -> pd.DataFrame:
    """Every engine and option against the leading one of all machines, in output tokens/s: one row per
    engine and option that several machines have beside it, the best first."""
    table = across_analysis.against_leader(requests)
    leader = " ".join(table.iloc[0][across_analysis.THAN[:2]]) if len(table) else "the leading one"
    return columns.shown(
        _with_processors(table.head(MOST_ROWS), across_analysis.each_against_leader(requests)),
        "verdict backend option ratio low high by_processor least most",
        ratio=Column(f"times {leader}, mean of processor types"),
        **_COLUMNS,
    )


@tables.listed
def depends_on_machine(requests: pd.DataFrame) -> pd.DataFrame:
    """The pairs of engines and options of which one is faster on some machines and slower on others: one row
    per pair, those that most machines have first, then those whose ratios lie farthest apart."""
    table = across_analysis.every_pair(requests)
    table = table[(table["slower"] > 0) & (table["faster"] > 0)]
    table = table.assign(
        apart=table["most"] / table["least"], than=table["than_backend"] + " " + table["than_option"]
    )
    table = table.sort_values(["machines", "apart"], ascending=False).head(MOST_ROWS)
    return columns.shown(
        table,
        "verdict backend option than ratio low high least most",
        than=Column("against"),
        ratio=Column("times as fast"),
        **{name: column for name, column in _COLUMNS.items() if name != "by_processor"},
    )


_COLUMNS = {
    "low": Column(f"95 % interval, from {across_analysis.FEWEST_PROCESSORS} processor types on, from"),
    "high": Column("to"),
    "by_processor": Column("by processor type"),
    "least": Column("least of a machine"),
}


def _with_processors(table: pd.DataFrame, each: pd.DataFrame) -> pd.DataFrame:
    """Add by_processor: the ratio on each processor type, `epyc-zen4-2c 1.15, intel-xeon-2c 0.74`."""
    types = across_analysis.by_processor(each)
    types = types.assign(by_processor=types["gpu"] + " " + types["ratio"].map(html.number))
    names = [*across_analysis.KEYS, *across_analysis.THAN]
    said = types.groupby(names)["by_processor"].agg(", ".join).reset_index()
    return table.merge(said, "left", names)
