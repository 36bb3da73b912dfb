"""Tables of the topic overhead."""

from bench.analysis import latency as latency_analysis
from bench.report import columns, tables
from bench.report.columns import Column


@tables.of_machines
def overhead(requests):
    """What measuring costs: one row per engine and option, mean over pairs of harness / own loop - 1, with
    its 95 % interval over pairs."""
    shown = columns.of(
        f"{columns.ENGINE} pairs runs mean low high verdict gpu model",
        mean=Column("cost, mean", "%", 100),
        low=Column("95 % interval over pairs from", "%", 100),
        high=Column("to", "%", 100),
        verdict=Column("than the own loop"),
    )
    return columns.renamed(latency_analysis.overhead_summary(requests), shown)
