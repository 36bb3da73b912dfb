"""One request at a time: a row per engine, number format and version of each machine and model."""

import pandas as pd

from bench.analysis import latency as analysis
from bench.analysis import quality
from bench import topics
from bench.topics import machines


def tables(requests: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return {"latency": one row per machine, model, engine, option and version, fastest first}."""
    return {"latency": topics.of_each_machine(requests, latency)}


def latency(requests: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of one machine: means of the regression with half the width of their 95 % intervals.

    output_tokens_per_s_runs has the rate of each run, in the order of measuring; reason says why a row was not
    compared, may_be_best which rows may be the best of their machine and model (Holm).
    """
    table = analysis.summary(machines.every(requests, "latency"))
    table = quality.beside(table, requests)
    rates = [" ".join(f"{rate:.6g}" for rate in rates) for rates in table["rates"]]
    return table.drop(columns="rates").assign(output_tokens_per_s_runs=rates)
