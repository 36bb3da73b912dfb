"""Tables of the topic metrics."""

import inspect
import re

import pandas as pd

from bench import metrics as metrics_
from bench.report import columns, tables


@tables.listed
def metrics():
    """The definitions in bench/metrics.py: name in the code, what it is, formula, unit, source, read from the docstrings."""
    functions = [
        f for f in vars(metrics_).values() if inspect.isfunction(f) and f.__module__ == metrics_.__name__
    ]
    return pd.DataFrame([_metric(f) for f in functions if not f.__name__.startswith("_")])


def _metric(function):
    """`What it is, unit: formula, as SOURCE define it; conditions.` or `… (SOURCE 2023)` -> one row of the table of definitions."""
    name, doc = function.__name__, " ".join(inspect.getdoc(function).split("\n\n")[0].split())
    suffix = next((s for s in columns.UNITS if name.endswith(s)), "")
    source = re.search(r",? as ([^;:.]+?) defines? it|\s*\(([A-Z][\w&. ]+ \d{4})\)", doc)
    if source:
        doc = doc.replace(source[0], "")
    doc = re.sub(r"; NaN [^.;]*|`", "", doc)  # what code must know and a reader need not
    what, _, formula = doc.rstrip(".").partition(": ")
    return {
        "metric": name, "what it is": what.removesuffix(f", {columns.UNITS.get(suffix)}"), "formula": formula,
        "unit": columns.UNITS.get(suffix, ""), "source": next((s for s in source.groups() if s), "") if source else "",
    }  # fmt: skip
