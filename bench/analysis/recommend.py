"""Which engine should I use? One row per wish, computed from the observations of the machine in focus and the limits in study.yaml."""

import numpy as np
import pandas as pd

from bench import inputs
from bench.analysis import batching as batching_analysis
from bench.analysis import latency as latency_analysis
from bench.analysis import machines
from bench.analysis import quality as quality_analysis

COLUMNS = ["want", "backend", "option", "value", "unit", "next_backend", "next_option", "next_value"]
# Column that decides -> unit for readers, factor, and whether less is better.
UNITS = {
    "output_tokens_per_s": ("output tokens/s", 1, False),
    "ttft_s": ("ms", 1e3, True),
    "peak_memory_bytes": ("MB at most", 1e-6, True),
}


def choices(requests):
    """One row per wish that the data can answer: what fulfils it best and its value, and the best of the other engines with its own."""
    latency = latency_analysis.summary(machines.here(requests, "latency"))
    wishes = [
        ("the fastest answer for one user", latency, "output_tokens_per_s"),
        ("the shortest wait for the first token", latency, "ttft_s"),
        (*_throughput(requests), "output_tokens_per_s"),
        ("the smallest memory", latency, "peak_memory_bytes"),
        (
            "speed without any loss: every answer the reference's, token for token",
            _lossless(requests),
            "output_tokens_per_s",
        ),
    ]
    rows = [_best(*wish) for wish in wishes]
    return pd.DataFrame([row for row in rows if row], columns=COLUMNS)


def _throughput(requests):
    """The wish for throughput under the limit of study.yaml, and the batches whose tokens keep to it."""
    limit = inputs.study()["slo"]["tpot_s"]
    table = batching_analysis.uniform(requests)
    return f"the highest throughput with a token at least every {limit * 1e3:.0f} ms for everybody", table[
        table["tpot_s"] <= limit
    ]


def _lossless(requests):
    table = quality_analysis.summary(requests)
    table = table[table["host"].isin(machines.here(requests, "latency")["host"].unique())]
    return table[table["same_answers"] == table["answers"]]


def _best(want, table, column):
    unit, factor, least = UNITS[column]
    table = table.dropna(subset=column).sort_values(column, ascending=least)
    if table.empty:
        return None
    best, others = table.iloc[0], table[table["backend"] != table["backend"].iloc[0]]
    second = others.iloc[0] if len(others) else {"backend": "", "option": "", column: np.nan}
    told = {"want": want, "unit": unit}
    for prefix, row in (("", best), ("next_", second)):
        told |= {
            f"{prefix}backend": row["backend"],
            f"{prefix}option": row["option"],
            f"{prefix}value": row[column] * factor,
        }
    return told
