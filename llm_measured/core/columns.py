"""Columns of tables for readers: one declaration per column, metrics from llm_measured/core/metrics.py."""

import re
from dataclasses import replace

import pandas as pd

from llm_measured.core.definitions import Column as Column
from llm_measured.core.metrics import METRICS

# Columns that are no metrics and are called by other words than their own in more than one table, or that an
# axis or a filter names; a table declares its own ones where it is made.
COLUMNS = {
    "backend": Column("engine"),
    "backend_version": Column("version"),
    "model": Column("model"),
    "weights": Column("weights"),
    "gpu": Column("device"),
    "data_parallel": Column("replicas"),
    "loop": Column("loop"),
    "concurrency": Column("concurrency"),
    "request_rate": Column("request rate", "1/s"),
    "batch_size": Column("batch size"),
    "turn": Column("turn of the conversation"),
    "session_rate": Column("conversations", "1/s"),
    "cache_capacity_tokens": Column("cache", "tokens"),
    "by_tokens": Column("hit rate by tokens", "%", 100),
    "met": Column("within objectives", "%", 100),
    "session_goodput_per_s": Column("goodput", "conversations/s"),
    "prompt_tokens": Column("prompt tokens"),
    "max_new_tokens": Column("new tokens"),
    "pass_at_1": Column("pass@1", "%", 100),
    "streams": Column("streams"),
    "ttft_off_ms": Column("TTFT error", "ms"),
    "ttft_error_ms": Column("TTFT error, mean", "ms"),
    "ttft_error_connected_ms": Column("without the first of each stream", "ms"),
    "itl_p99_excess_ms": Column("ITL p99 above the server's", "ms"),
    "cpu_us_per_token": Column("CPU per token", "µs"),
    "differing_tokens": Column("tokens that differ from the reference's answers", "%", 100),
    "per_device": Column("output tokens/s per device"),
    "faster": Column("times the throughput"),
    "kept": Column("share of the pace kept"),
    "pace": Column("times as fast"),
}
ENGINE = "backend option"
LOAD = "loop concurrency request_rate"
WHERE = "gpu model weights"


def column(name: str) -> Column:
    """The declaration of the column `name`; `ttft_p90_s` is a percentile, `ttft_s_inside` a variant of one.

    KeyError for a name that neither llm_measured/core/metrics.py nor this module declares.
    """
    if name in METRICS:
        return METRICS[name]
    if name in COLUMNS:
        return COLUMNS[name]
    percentile = re.fullmatch(r"([a-z0-9]+)_(p\d+)_s", name)
    if percentile:
        of = column(f"{percentile[1]}_s")
        return replace(of, title=f"{of.title} {percentile[2]}")
    variant = re.fullmatch(r"(.+)_(inside|plain|fewest)", name)
    if variant:
        return column(variant[1])
    raise KeyError(
        f"No column {name!r} is declared: add it to METRICS in core/metrics.py or to COLUMNS here."
    )


def of(names: str, /, **own: Column | str) -> dict[str, Column]:
    """{name: Column} of `names` (words of one string), in their order; one that is declared nowhere is titled
    by its own words.

    `own` replaces a declaration in this table: by a Column, or by another title for the same values.
    """
    unused = own.keys() - set(names.split())
    if unused:
        raise KeyError(f"The table has no column {', '.join(sorted(unused))}: name it among its columns.")
    found: dict[str, Column] = {}
    for name in names.split():
        declared = own.get(name, "")
        if isinstance(declared, str):
            try:
                usual = column(name)
            except KeyError:
                usual = Column(name.replace("_", " "))
            declared = replace(usual, title=declared or usual.title)
        found[name] = declared
    return found


def values(table: pd.DataFrame, name: str) -> pd.Series:
    """The column `name` of `table` in the unit that readers see."""
    return table[name] * column(name).factor


def renamed(table: pd.DataFrame, columns: dict[str, Column]) -> pd.DataFrame:
    """`table` reduced to `columns` ({name: Column}): one column per entry, its head as name, in its unit."""
    return pd.DataFrame(
        {
            column.head: table[name] if column.factor == 1 else table[name] * column.factor
            for name, column in columns.items()
        }
    )


def shown(table: pd.DataFrame, names: str, /, **own: Column | str) -> pd.DataFrame:
    """`table` for readers: reduced to `names`, each with its head and in its unit (see `of`). KeyError for a
    name that the table does not have."""
    return renamed(table, of(names, **own))


def known(table: pd.DataFrame, names: str) -> str:
    """Those of `names` (words of one string) of which `table` has a value anywhere, as words of one
    string."""
    return " ".join(name for name in names.split() if name in table and table[name].notna().any())


def replicas(table: pd.DataFrame) -> str:
    """Name of the column of replicas behind one address; empty where there are several of them nowhere."""
    return "data_parallel" if (table["data_parallel"] > 1).any() else ""


def apart(table: pd.DataFrame) -> pd.DataFrame:
    """`table` of levels with the load in a column of its own for each loop: concurrency, request_rate."""
    return table.assign(
        concurrency=table["load"].where(table["loop"] == "closed"),
        request_rate=table["load"].where(table["loop"] == "open"),
    )
