"""Sentences of the topic overhead."""

import pandas as pd

from bench.analysis import latency as latency_analysis
from bench.report.findings import words


def cost(requests):
    """What measuring costs the engine that it costs most."""
    table = latency_analysis.overhead_summary(requests)
    if table.empty:
        return None
    worst = table.iloc[0]
    interval = ""
    if pd.notna(worst["low"]):
        interval = f", 95 % interval {words.percent(worst['low'])} to {words.percent(worst['high'])} %"
    return (
        f"Measuring costs {words.name(worst)} most: the harness takes {words.percent(worst['median'])} % "
        f"longer than the engine's own loop (median of {worst['pairs']} pairs{interval})."
    )
