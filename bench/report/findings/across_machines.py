"""Sentences of the topic across machines."""

import numpy as np
import pandas as pd

from bench.analysis import across_machines as across_analysis
from bench.report.findings import words

SHOWN = 3  # names in one sentence


def everywhere(requests: pd.DataFrame) -> str | None:
    """What is fastest on every machine, and of which options that is open; None where no two machines have
    two configurations."""
    table = across_analysis.against_leader(requests)
    if table.empty:
        return None
    run, count = across_analysis.compared(requests).iloc[0], int(table["machines"].max())
    leader = " ".join(table.iloc[0][across_analysis.THAN[:2]])
    slower = table["verdict"].str.startswith(across_analysis.SLOWER)
    everywhere = slower & table["verdict"].str.contains(across_analysis.EVERYWHERE)
    so_far = slower & table["verdict"].str.contains(across_analysis.SO_FAR)
    counts = [
        f"{everywhere.sum()} slower on every machine" if everywhere.any() else "",
        f"{so_far.sum()} slower so far on all machines that have both" if so_far.any() else "",
    ]
    found = words.listed(filter(None, counts)) or "none slower on all machines that have both"
    others = [
        f"; {words.listed(_named(rows), SHOWN)} {verdict}"
        for verdict, rows in _by_verdict(table[~everywhere & ~so_far])
    ]
    best = "has the best mean" if others else "is fastest"
    return (
        f"Over {count} machines, **{leader}** {best} for {run['model']} in output tokens/s: of "
        f"{words.plural(len(table), 'other option')}, {found}{''.join(others)}."
    )


def leads(requests: pd.DataFrame) -> bool:
    """Whether `everywhere` is the first of all findings: enough machines have enough rounds."""
    return len(across_analysis.machines_with_rounds(requests)) >= across_analysis.FEWEST_MACHINES


def pairs(requests: pd.DataFrame) -> str | None:
    """Of how many pairs of engines and options one is faster on every machine that has both; None without
    pairs."""
    table = across_analysis.every_pair(requests)
    if table.empty:
        return None
    verdict = table["verdict"]
    counts = {
        "one is faster on every machine": verdict.str.contains(across_analysis.EVERYWHERE),
        "one is faster so far on all that have both": verdict.str.contains(across_analysis.SO_FAR),
        "one is faster on average": verdict.str.contains(across_analysis.ON_AVERAGE),
        "it depends on the machine": verdict == across_analysis.DEPENDS,
        "the two cannot be distinguished": verdict.isin([across_analysis.OPEN, across_analysis.ONE_RUN_EACH]),
    }
    each = [f"{word} in {chosen.sum()}" for word, chosen in counts.items() if chosen.any()]
    have = (
        "several machines have"
        if table["machines"].nunique() > 1
        else f"{table['machines'].iloc[0]} machines have"
    )
    return f"Of {words.plural(len(table), 'pair')} of options that {have}, {words.listed(each)}."


def _by_verdict(rest: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """[(verdict as a sentence ends with it, rows)] of configurations that are not slower everywhere."""
    words_of = {
        across_analysis.OPEN: "cannot be distinguished from it",
        across_analysis.DEPENDS: "may be slower or not, which depends on the machine",
        across_analysis.ONE_RUN_EACH: "cannot be compared with one run each",
    }
    groups = rest.groupby("verdict", sort=False)
    return [(words_of.get(verdict, f"run {verdict}"), rows) for verdict, rows in groups]


def _named(rows: pd.DataFrame) -> list[str]:
    """`**a b** (0.9 times as fast, 0.8 to 1.1)` of each row."""
    return [
        f"**{row['backend']} {row['option']}** ({words.ratio(row)})"
        for _, row in rows.iterrows()
        if np.isfinite(row["ratio"])
    ]
