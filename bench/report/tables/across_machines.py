"""Tables of the topic across machines: what holds on every machine, and what depends on it."""

import pandas as pd

from bench import columns
from bench.analysis import across_machines as across_analysis
from bench.analysis import across_machines_proof
from bench.columns import Column
from bench.report import tables

MOST_ROWS = 40


@tables.listed
def across_machines(requests: pd.DataFrame) -> pd.DataFrame:
    """Every engine and option against the one in front of all machines, in output tokens/s: one row per
    engine and option that several machines have beside it, the best first, pooled over machines."""
    table = across_analysis.against_leader(requests)
    leader = " ".join(table.iloc[0][across_analysis.THAN[:2]]) if len(table) else "the one in front"
    return columns.shown(
        _counted(table.head(MOST_ROWS)),
        "verdict backend option ratio low high spread predicted_low predicted_high least most on",
        ratio=Column(f"times {leader}"),
        **_POOLED,
    )


@tables.listed
def depends_on_machine(requests: pd.DataFrame) -> pd.DataFrame:
    """The pairs of engines and options of which one is faster on some machines and not on others: one row per
    pair, those that most machines have first, then those whose ratios lie farthest apart."""
    table = across_analysis.every_pair(requests)
    table = table[table["verdict"] == across_analysis.DEPENDS]
    table = table.assign(
        apart=table["most"] / table["least"], than=table["than_backend"] + " " + table["than_option"]
    )
    table = table.sort_values(["machines", "apart"], ascending=False).head(MOST_ROWS)
    return columns.shown(
        _counted(table),
        "verdict backend option than ratio low high spread least most on",
        than=Column("against"),
        ratio=Column("times as fast"),
        **{name: column for name, column in _POOLED.items() if not name.startswith("predicted")},
    )


@tables.listed
def across_machines_coverage() -> pd.DataFrame:
    """Simulated machines: one row per interval and number of machines; how often it holds the truth in the
    least and the most favourable case."""
    return columns.shown(
        across_machines_proof.proof_table(across_machines_proof.load()),
        "method machines lowest spread errors errors_are highest studies",
        method=Column("interval"),
        lowest=Column("holds at least", "%", 100),
        spread=Column("there: true spread", "%", 100),
        errors=Column("errors of machines"),
        highest=Column("holds at most", "%", 100),
        studies=Column("studies each"),
    )


_POOLED = {
    "low": Column("95 % interval from"),
    "high": Column("to"),
    "spread": Column("spread between machines", "%", 100),
    "predicted_low": Column("a further machine from"),
    "predicted_high": Column("to "),
    "least": Column("least of a machine"),
    "on": Column("machines"),
}


def _counted(table: pd.DataFrame) -> pd.DataFrame:
    """`table` with the machines in words (`4, 2 with one run`)."""
    once = (", " + table["borrowed"].astype(str) + " with one run").where(table["borrowed"] > 0, "")
    return table.assign(on=table["machines"].astype(str) + once)
