"""Tables of the topic evidence: how often the study's intervals hold, and how often equals are
distinguished."""

import pandas as pd

from bench import inputs
from bench.observations import store
from bench.report import tables
from llm_measured.core import columns
from llm_measured.core.columns import Column


@tables.listed
def coverage() -> pd.DataFrame:
    """Simulated studies of the committed design: one row per host, kind of pairs and scatter of sessions, for
    all configurations together and for the worst; how often the interval of a ratio holds the truth."""
    table = inputs.table("proof/coverage")
    every = table["configuration"] == "all"
    keys = ["host", "pairs", "sessions"]
    worst = table[~every].sort_values("share").drop_duplicates(keys)
    table = table[every].merge(worst[[*keys, "configuration", "share"]], on=keys, suffixes=("", "_worst"))
    return columns.shown(
        table.sort_values("share_worst", ignore_index=True),
        "host pairs sessions share_worst configuration_worst share half_width comparisons",
        sessions=Column("scatter of sessions"),
        pairs=Column("pairs"),
        share_worst=Column("worst configuration", "%", 100),
        configuration_worst=Column("which"),
        share=Column("all", "%", 100),
        half_width=Column("half width, median", "%", 100),
        comparisons=Column("comparisons"),
    )


@tables.listed
def equal_runs() -> pd.DataFrame:
    """A/A: the real runs of each configuration dealt into two halves at random; one row per host; the share
    of the halves that differ significantly (5 % is aimed at)."""
    return columns.shown(
        inputs.table("proof/equal_runs"),
        "host configurations comparisons differ",
        configurations=Column("configurations"),
        comparisons=Column("comparisons"),
        differ=Column("differ", "%", 100),
    )


@tables.listed
def compare_proof() -> pd.DataFrame:
    """`llm-measured compare` on pairs whose truth is known; one row per kind of pairs, runs a side and true
    difference; shares of the pairs."""
    table = inputs.table("proof/compare")
    return columns.shown(
        table[table["pairs_compared"] > 0],
        "pairs runs requests effect pairs_compared told wrong held said_by_5_percent",
        runs=Column("runs a side"),
        requests=Column("requests of a run"),
        effect=Column("B is so many times as fast"),
        pairs_compared=Column("pairs that can be tested"),
        told=Column("called different", "%", 100),
        wrong=Column("called slower", "%", 100),
        held=Column("intervals that hold the truth", "%", 100),
        said_by_5_percent=Column("“more than 5 %” says different", "%", 100),
    )


def judged(requests: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return `store.judged` of the folder that `requests` were read from."""
    return store.judged(folder=requests.attrs.get("folder"))


@tables.listed
def gates(requests: pd.DataFrame) -> pd.DataFrame:
    """Count, for each validity check, the runs that it could check, those that it concerns whose files do not
    hold what it needs, and those that it rejects."""
    counts, _ = judged(requests)
    return columns.shown(counts, "gate checked not_checked refused", checked="runs checked")
