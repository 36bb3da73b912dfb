"""Tables of the topic overhead."""

from bench.analysis import latency as latency_analysis
from bench.report import columns, tables
from bench.report.columns import Column


@tables.listed
def overhead(requests):
    """What measuring costs: one row per engine and option, median over pairs of harness / own loop - 1."""
    shown = columns.of(
        f"{columns.ENGINE} pairs median low high gpu model",
        median=Column("cost, median", "%", 100),
        low=Column("95 % interval from", "%", 100),
        high=Column("to", "%", 100),
    )
    return columns.renamed(latency_analysis.overhead_summary(requests), shown)
