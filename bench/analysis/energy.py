"""Energy: joules per output token beside output tokens per second, for every way of measuring."""

from collections.abc import Sequence

import pandas as pd

from bench import naming
from bench.analysis import levels as levels_analysis
from bench.analysis import machines
from bench.observations import derived, schema

KINDS = {"latency": "one request at a time", "batching": "batches", "serving": "a server under load"}
KEYS = [*schema.CONFIGURATION, "kind", "loop", "load"]
MEANS = ["output_tokens_per_s", "joules_per_token", "idle_w"]


def points(requests: pd.DataFrame) -> pd.DataFrame:
    """What a token took on the machine in focus of each kind of run, at which speed: one row per
    configuration and load of which the energy is known.

    Columns: the configuration, kind (a key of KINDS), loop (closed, open, or empty), load (requests sent
    together, at once, or per second), output_tokens_per_s (means over runs), joules_per_token (idle power
    included; the GPUs' on GPUs, the packages' on a CPU), idle_w (the same device's, engine loaded; NaN where
    it is unknown), runs. An empty frame where no energy was read.
    """
    alone = _per_token(_read(requests, "latency"), []).assign(kind="latency", load=1)
    found = [rows for rows in (alone, _batching(requests), _serving(requests)) if len(rows)]
    if not found:
        return pd.DataFrame(columns=[*KEYS, *MEANS, "runs"])
    means = {name: (name, "mean") for name in MEANS}
    return pd.concat(found).groupby(KEYS, as_index=False).agg(**means, runs=("run_id", "nunique"))


def _read(requests: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """The requests of an experiment whose energy is known, with it: joules, idle_w."""
    rows = machines.here(requests, experiment)
    rows = rows[rows["error"] == ""]
    cpu = rows["gpu"].map(naming.is_cpu).astype(bool)
    rows = rows.assign(
        joules=rows["cpu_energy_j"].where(cpu, rows["gpu_energy_j"]),
        idle_w=rows["cpu_idle_w"].where(cpu, rows["gpu_idle_w"]),
    )
    return rows[rows["joules"].notna()]


def _per_token(rows: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Joules per token of each group of `rows`: all joules over all tokens."""
    keys = ["run_id", *schema.CONFIGURATION, *keys]
    sums = rows.groupby(keys, as_index=False, dropna=False).agg(
        joules=("joules", "sum"),
        tokens=("output_tokens", "sum"),
        output_tokens_per_s=("output_tokens_per_s", "mean"),
        idle_w=("idle_w", "first"),
    )
    return sums.assign(joules_per_token=sums["joules"] / sums["tokens"], loop="")


def _batching(requests: pd.DataFrame) -> pd.DataFrame:
    """Uniform batches only: those of the most frequent prompt length, at its most new tokens."""
    rows = _read(requests, "batching")
    if rows.empty:
        return rows
    lengths = rows[["prompt_tokens", "max_new_tokens"]]
    same = (lengths == lengths[rows["batch_size"] == rows["batch_size"].max()].max()).all(axis=1)
    each = _per_token(rows[same], ["batch_size"]).drop(columns="output_tokens_per_s")
    whole = derived.batches(rows[same])[["run_id", "batch_size", "output_tokens_per_s"]]
    rates = whole.groupby(["run_id", "batch_size"], as_index=False).median()
    table = each.merge(rates, on=["run_id", "batch_size"])
    return table.assign(kind="batching", load=table["batch_size"]).drop(columns="batch_size")


def _serving(requests: pd.DataFrame) -> pd.DataFrame:
    rows = _read(requests, "serving")
    if rows.empty:
        return rows
    level = schema.LEVEL
    each = _per_token(rows, level).drop(columns="output_tokens_per_s")
    rates = levels_analysis.levels(rows)[["run_id", *level, "output_tokens_per_s"]]
    table = levels_analysis.loops(each.merge(rates, on=["run_id", *level]))
    return table.assign(kind="serving").drop(columns=level)
