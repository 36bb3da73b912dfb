"""Tables of the topic placement: what the place of a machine's processors does to a decode step."""

from bench.analysis import placement as placement_analysis
from bench.report import columns, tables
from bench.report.columns import Column


@tables.of_machines
def placement(requests):
    """TPOT with the processors apart over TPOT with them near each other: one row per configuration of which
    three runs met both places."""
    shown = columns.of(
        "backend option model bandwidth ratio low high runs near apart",
        bandwidth=Column("bandwidth, apart over near"),
        ratio=Column("TPOT, apart over near"),
        low=Column("from"),
        high=Column("to"),
        near=Column("requests near"),
        apart=Column("requests apart"),
    )
    return columns.renamed(placement_analysis.effects(requests), shown)
