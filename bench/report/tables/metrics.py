"""The table of definitions."""

import pandas as pd

from bench.report import tables
from llm_measured.core.metrics import METRICS


@tables.listed
def metrics() -> pd.DataFrame:
    """One row per metric that a function of core/metrics.py computes: what it is called, what it is,
    formula, unit, source, and its name in the code."""
    rows = [
        {
            "metric": metric.title or metric.name.replace("_", " "),
            "what it is": metric.meaning,
            "formula": metric.formula,
            "unit": metric.stored_unit,
            "source": metric.source,
            "in the code": metric.name,
        }
        for metric in METRICS.values()
        if metric.function
    ]
    table = pd.DataFrame(rows)
    table.attrs["whole"] = "All of them, to look one up."
    return table
