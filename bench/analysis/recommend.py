"""Which engine should I use? Wishes answered from the observations of the machine in focus and the limits in
study.yaml."""

import numpy as np
import pandas as pd

from bench import inputs
from bench.analysis import batching as batching_analysis
from bench.analysis import latency as latency_analysis
from bench.analysis import machines
from bench.analysis import quality as quality_analysis

COLUMNS = ["want", "column", "backend", "option", "value", "next_backend", "next_option", "next_value"]
LESS_IS_BETTER = {"ttft_s", "peak_memory_bytes"}


def choices(requests):
    """One row per wish that the data can answer: what fulfils it best, and the best of the other engines.

    Columns: want, `column` that decides, backend, option and value (in the column's unit) of the best, and
    the same of the next engine with `next_`; NaN and empty where there is no other.
    """
    latency = latency_analysis.summary(machines.here(requests, "latency"))
    limit = inputs.study()["slo"]["tpot_s"]
    batches = batching_analysis.uniform(requests)
    within = batches[batches["tpot_s"] <= limit]
    everybody = f"the highest throughput with a token at least every {limit * 1e3:.0f} ms for everybody"
    lossless = "speed without any loss: every answer the reference's, token for token"
    wishes = [
        ("the fastest answer for one user", latency, "output_tokens_per_s"),
        ("the shortest wait for the first token", latency, "ttft_s"),
        (everybody, within, "output_tokens_per_s"),
        ("the smallest memory", latency, "peak_memory_bytes"),
        (lossless, _lossless(requests), "output_tokens_per_s"),
    ]
    rows = [_best(*wish) for wish in wishes]
    return pd.DataFrame([row for row in rows if row], columns=COLUMNS)


def _lossless(requests):
    """Options of the machine in focus whose answers are all the reference's."""
    table = quality_analysis.summary(requests)
    table = table[table["host"].isin(machines.here(requests, "latency")["host"].unique())]
    return table[table["same_answers"] == table["answers"]]


def _best(want, table, column):
    """The row of one wish; None where no row of `table` has the column."""
    table = table.dropna(subset=column).sort_values(column, ascending=column in LESS_IS_BETTER)
    if table.empty:
        return None
    best, others = table.iloc[0], table[table["backend"] != table["backend"].iloc[0]]
    second = others.iloc[0] if len(others) else {"backend": "", "option": "", column: np.nan}
    choice = {"want": want, "column": column}
    for prefix, row in (("", best), ("next_", second)):
        choice |= {f"{prefix}{name}": row[name] for name in ("backend", "option")}
        choice[f"{prefix}value"] = row[column]
    return choice
