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
    behind = everywhere | slower & table["verdict"].str.contains(across_analysis.SO_FAR)
    proven = (
        f" ({everywhere.sum()} of them in three runs on three machines or more)" if everywhere.any() else ""
    )
    slowest = f"{behind.sum() or 'none'} of the {words.plural(len(table), 'other option')}"
    verb = "are" if behind.sum() > 1 else "is"
    found = f"{slowest} {verb} slower on every machine that has both{proven}"
    others = [f"; {verdict.format(_named(rows))}" for verdict, rows in _by_verdict(table[~behind])]
    leads = "has the highest mean output tokens/s" if others else "is fastest in output tokens/s"
    return f"Over {count} machines, **{leader}** {leads} with {run['model']}: {found}{''.join(others)}."


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
    """[(a clause about the configurations named at its braces, rows)] of those that are not slower
    everywhere."""
    clauses = {
        across_analysis.OPEN: "{} cannot be distinguished from it",
        across_analysis.DEPENDS: "whether {} is slower depends on the machine",
        across_analysis.ONE_RUN_EACH: "{} has one run on each, too few to compare",
    }
    groups = rest.groupby("verdict", sort=False)
    return [(clauses.get(verdict, f"{{}} runs {verdict}"), rows) for verdict, rows in groups]


def _named(rows: pd.DataFrame) -> str:
    """`**a b** (at 0.9 times its rate, 0.8 to 1.1)` of each row, as a list."""
    names = []
    for _, row in rows[np.isfinite(rows["ratio"])].iterrows():
        interval = "" if np.isnan(row["low"]) else f", {words.two(row['low'])} to {words.two(row['high'])}"
        names.append(f"**{row['backend']} {row['option']}** ({words.times(row['ratio'])} its rate{interval})")
    return words.listed(names, SHOWN)
