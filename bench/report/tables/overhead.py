"""Tables of the topic overhead."""

import pandas as pd

from bench.analysis import latency as latency_analysis
from bench.report import tables
from llm_measured.core import columns
from llm_measured.core.columns import Column


@tables.of_machines
def overhead(requests: pd.DataFrame) -> pd.DataFrame:
    """What measuring costs: one row per engine and option, mean over pairs of harness / own loop - 1, with
    its 95 % interval over pairs."""
    return columns.shown(
        latency_analysis.overhead_summary(requests),
        f"{columns.ENGINE} pairs runs mean low high verdict gpu model",
        mean=Column("cost, mean", "%", 100),
        low=Column("95 % interval over pairs from", "%", 100),
        high=Column("to", "%", 100),
        verdict=Column("than the own loop"),
    )
