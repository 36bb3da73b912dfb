"""Which configurations are faster than which: all pairs at once, and letters for what cannot be
distinguished.

The chance that any two equal configurations of one table are distinguished is held at 1 − confidence by
Holm's step-down method (*A Simple Sequentially Rejective Multiple Test Procedure*, Scand. J. Statist. 6,
1979), which needs nothing but p-values that hold: those of `comparison.Fit.pairs`.
"""

import itertools
import string
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from bench.analysis import comparison

RANK = ["mean", "low", "high", "runs", "sittings", "note"]
RANK += ["groups", "rank_from", "rank_to", "may_be_best", "rounds_to_settle", "reason"]
ONE_RUN, FAILED, NO_VALUE = comparison.ONE_RUN, "failed requests", "no value"
APART = "no sitting in common with the others"


def holm(p: Sequence[float]) -> np.ndarray:
    """The p-values `p` adjusted after Holm (1979), in their order."""
    values = np.asarray(p)
    order = np.argsort(values)
    adjusted = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    result = np.empty_like(values)
    result[order] = np.minimum(adjusted, 1)
    return result


def letters(count: int, different: Iterable[tuple[int, int]]) -> list[str]:
    """The letters of `count` configurations, best first, of which the pairs `different` are distinguished.

    Two configurations share a letter exactly where they cannot be distinguished (compact letter display by
    insert and absorb: Piepho, *An Algorithm for a Letter-Based Representation of All-Pairwise Comparisons*,
    J. Comput. Graph. Stat. 13(2), 2004).
    """
    groups = [frozenset(range(count))]
    for i, j in different:
        split = [group - {k} for group in groups if {i, j} <= group for k in (i, j)]
        groups = [group for group in groups if not {i, j} <= group] + split
        groups = [g for g in dict.fromkeys(groups) if not any(g < other for other in groups)]
    groups.sort(key=sorted)
    return ["".join(_letter(n) for n, group in enumerate(groups) if k in group) for k in range(count)]


def _letter(number: int) -> str:
    """a to z, A to Z, then the number in brackets."""
    return string.ascii_letters[number] if number < len(string.ascii_letters) else f"({number + 1})"


def beats(p: np.ndarray, count: int, confidence: float = comparison.CONFIDENCE) -> np.ndarray:
    """Whether the better of each pair, of two-sided `p`, keeps the other from being the best of `count`.

    The best is kept out only if one of the count − 1 others beats it by chance, so each comparison may err
    with (1 − confidence) / (count − 1): multiple comparisons with the best (Hsu, *Simultaneous Confidence
    Intervals for All Distances from the "Best"*, Ann. Statist. 9(5), 1981), with Bonferroni's bound. Hsu errs
    on one side only; both sides are counted here, so that two that are equal are distinguished no more often
    than `pairs` does, and a superlative never stands beside an interval of the ratio that holds 1.
    """
    return p * (count - 1) < 1 - confidence


def rank(
    runs: pd.DataFrame,
    keys: Sequence[str],
    metric: str,
    higher_is_better: bool = True,
    failed: str = "failed",
    confidence: float = comparison.CONFIDENCE,
    model: comparison.Fit | None = None,
) -> pd.DataFrame:
    """The configurations of `runs` (one row per run, of one machine) by their adjusted mean of `metric`.

    One row per configuration, best first, those that are not ranked last; columns `keys`, those of
    `comparison.Fit.means`, groups (letters: two configurations that share one cannot be distinguished),
    rank_from and rank_to (the places it may have, all at once with that confidence; Mogstad, Romano, Shaikh
    and Wilhelm, *Inference for Ranks*, Rev. Econ. Stud. 91(1), 2024), may_be_best (`leaders`),
    rounds_to_settle (more rounds that would part it from the first row, where they cannot be distinguished),
    reason (why it is not ranked: one run, failed requests, no value, no sitting in common with the others).
    An engine's version belongs in `keys`: two versions are compared, not pooled. `model`: that of more
    configurations than are ranked, so that their means are the same as among all; else that of `runs`.
    """
    keys = list(keys)
    model = model or comparison.fit(runs, keys, metric)
    means = model.means(confidence).assign(place=range(len(model.table)), chain=model.table["chain"])
    losses = runs[keys].assign(lost=runs.get(failed, 0))
    table = losses.groupby(keys, as_index=False, dropna=False).sum().merge(means, "left")
    table["runs"] = table["runs"].fillna(0).astype(int)
    table["reason"] = np.select(
        [table["lost"] > 0, table["runs"] == 0, table["runs"] == 1], [FAILED, NO_VALUE, ONE_RUN], default=""
    )
    ranked = table["reason"] == ""
    if ranked.any():
        main = table.loc[ranked, "chain"].mode().iloc[0]
        table.loc[ranked & (table["chain"] != main), "reason"] = APART
    up = [True, not higher_is_better, *(True for _ in keys)]
    table = table.assign(out=table["reason"] != "")
    table = table.sort_values(["out", "mean", *keys], ascending=up, ignore_index=True).assign(
        groups="", rank_from=np.nan, rank_to=np.nan, may_be_best=False, rounds_to_settle=np.nan
    )
    return _place(table, model, confidence)[[*keys, *RANK]]


def _place(table: pd.DataFrame, model: comparison.Fit, confidence: float) -> pd.DataFrame:
    """`table`, sorted, with groups and places of its ranked rows."""
    places = table.loc[table["reason"] == "", "place"].astype(int).tolist()
    order = list(itertools.combinations(range(len(places)), 2))
    p = model.pairs([(places[i], places[j]) for i, j in order])["p"].to_numpy()
    different = [pair for pair, adjusted in zip(order, holm(p)) if adjusted < 1 - confidence]
    names = letters(len(places), different)
    beaten = {j for (_, j), wins in zip(order, beats(p, len(places), confidence)) if wins}
    # What is not beaten by the first row alone may still be open once all are asked at once.
    unit = np.eye(len(model.effects))
    middle, error, _ = model.contrasts(unit[places[:1]] - unit[places])
    for place in range(len(places)):
        table.loc[place, "groups"] = names[place]
        # Sorted best first, so of two that are distinguished the one with the smaller place is better.
        table.loc[place, "rank_from"] = 1 + sum(j == place for _, j in different)
        table.loc[place, "rank_to"] = len(places) - sum(i == place for i, _ in different)
        table.loc[place, "may_be_best"] = place not in beaten
        if place and place not in beaten:
            rounds = model.rounds_to_settle(float(middle[place]), float(error[place]), len(places) - 1)
            table.loc[place, "rounds_to_settle"] = rounds
    return table


def leaders(ranked: pd.DataFrame) -> pd.DataFrame:
    """The rows of `rank` among which the best is, with the confidence of the ranking: a superlative takes one
    row.

    A narrower question than who beats whom, so fewer comparisons bear on it (`beats`), and a row with
    `rank_from` 1 may be missing.
    """
    return ranked[ranked["may_be_best"]]


def upgrades(
    runs: pd.DataFrame,
    keys: Sequence[str],
    metric: str,
    version: str = "backend_version",
    higher_is_better: bool = True,
) -> pd.DataFrame:
    """What an upgrade changed: each version of a configuration against the one measured before it.

    One row per configuration and version after its first, by when each was first measured; columns `keys`,
    before, after, and `comparison.RATIO` (after over before).
    """
    keys, rows = list(keys), []
    known = runs[runs[metric].notna()]
    model = comparison.fit(known, [*keys, version], metric)
    for key, group in known.sort_values(["started", version]).groupby(keys, dropna=False):
        for before, after in itertools.pairwise(group[version].unique()):
            found = model.compare((*key, after), (*key, before), higher_is_better)
            rows.append(dict(zip(keys, key)) | {"before": before, "after": after} | found)
    return pd.DataFrame(rows, columns=[*keys, "before", "after", *comparison.RATIO])


def distinguished_at_once(rows: list[dict]) -> None:
    """Set the verdict of those of `rows` (dicts with p, verdict) to cannot-be-distinguished that Holm's
    method does not part, all of them at once."""
    tested = [row for row in rows if not np.isnan(row["p"])]
    for row, p in zip(tested, holm([row["p"] for row in tested])):
        if p >= 1 - comparison.CONFIDENCE:
            row["verdict"] = comparison.EQUAL
