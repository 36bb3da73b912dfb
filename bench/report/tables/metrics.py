"""The table of definitions."""

import pandas as pd

from bench.metrics import METRICS
from bench.report import tables


@tables.listed
def metrics():
    """One row per metric that a function of bench/metrics.py computes: name in the code, what it is, formula,
    unit, source."""
    computed = [metric for metric in METRICS.values() if metric.function]
    columns = {
        "metric": "name",
        "what it is": "title",
        "formula": "formula",
        "unit": "unit",
        "source": "source",
    }
    return pd.DataFrame(
        [{head: getattr(metric, field) for head, field in columns.items()} for metric in computed]
    )
