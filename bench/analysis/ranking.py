"""Which configurations are faster than which: all pairs at once, and letters for what cannot be told apart.

The chance that any two equal configurations of one table are told apart is held at 1 − confidence by Holm's
step-down method (*A Simple Sequentially Rejective Multiple Test Procedure*, Scand. J. Statist. 6, 1979). It
needs nothing but p-values that hold, and `statistics.log_ratio` gives them; Tukey and Kramer's supposes that
all configurations scatter alike, which these do not, and Games and Howell's knows no correlation between
runs.
"""

import itertools
import string

import numpy as np
import pandas as pd

from bench.analysis import statistics

RANK = "mean low high runs groups rank_from rank_to may_be_best reason".split()
ONE_RUN, FAILED, NO_VALUE = "one run", "failed requests", "no value"


def holm(p):
    """The p-values `p` adjusted after Holm (1979), in their order."""
    p = np.asarray(p, dtype=float)
    order = np.argsort(p, kind="stable")
    adjusted = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    result = np.empty_like(p)
    result[order] = np.minimum(adjusted, 1)
    return result


def pairs(values):
    """Every two of the configurations `values` (one array per configuration, of at least two runs).

    One row per pair; columns first, second (places in `values`), ratio, p and p_adjusted (`holm`).
    """
    rows = []
    for i, j in itertools.combinations(range(len(values)), 2):
        found = statistics.ratio(values[i], values[j])
        rows.append((i, j, found["ratio"], found["p"]))
    table = pd.DataFrame(rows, columns=["first", "second", "ratio", "p"])
    return table.assign(p_adjusted=holm(table["p"]))


def letters(count, different):
    """The letters of `count` configurations, best first, of which the pairs `different` are told apart.

    Two configurations share a letter exactly where they cannot be told apart (compact letter display by
    insert and absorb: Piepho, *An Algorithm for a Letter-Based Representation of All-Pairwise Comparisons*,
    J. Comput. Graph. Stat. 13(2), 2004).
    """
    groups = [frozenset(range(count))] if count else []
    for i, j in different:
        split = [group - {k} for group in groups if {i, j} <= group for k in (i, j)]
        groups = [group for group in groups if not {i, j} <= group] + split
        groups = [g for g in dict.fromkeys(groups) if not any(g < other for other in groups)]
    groups.sort(key=sorted)
    return ["".join(_letter(n) for n, group in enumerate(groups) if k in group) for k in range(count)]


def _letter(number):
    """a to z, A to Z, then the number in brackets."""
    return string.ascii_letters[number] if number < len(string.ascii_letters) else f"({number + 1})"


def beats(p, count, confidence=statistics.CONFIDENCE):
    """Whether the better of each pair, of two-sided `p`, keeps the other from being the best of `count`.

    The best is kept out only if one of the count − 1 others beats it by chance, so each comparison may err
    with (1 − confidence) / (count − 1): multiple comparisons with the best (Hsu, *Simultaneous Confidence
    Intervals for All Distances from the "Best"*, Ann. Statist. 9(5), 1981), with Bonferroni's bound. Hsu errs
    on one side only; both sides are counted here, so that two that are equal are told apart no more often
    than `pairs` does, and a superlative never stands beside an interval of the ratio that holds 1.
    """
    return p * (count - 1) < 1 - confidence


def _reason(values, rows, failed):
    """Why a configuration is not ranked; empty where it is."""
    if failed in rows and (rows[failed] > 0).any():
        return FAILED
    if len(values) < 2:
        return ONE_RUN if len(values) else NO_VALUE
    return ""


def rank(
    runs,
    keys,
    metric,
    higher_is_better=True,
    order="started",
    failed="failed",
    confidence=statistics.CONFIDENCE,
):
    """The configurations of `runs` (one row per run) by their mean of `metric`, in groups.

    One row per configuration, best first, those that are not ranked last; columns `keys`, mean, low, high
    (unit of `metric`; the interval of this one configuration), runs, groups (letters: two configurations that
    share one cannot be told apart), rank_from and rank_to (the places it may have, all at once with that
    confidence; Mogstad, Romano, Shaikh and Wilhelm, *Inference for Ranks*, Rev. Econ. Stud. 91(1), 2024),
    may_be_best (`leaders`), reason (why it is not ranked: one run, failed requests, no value). An engine's
    version belongs in `keys`: two versions are compared, not pooled.
    """
    rows, ranked = [], []
    for key, values, group in statistics.series(runs, keys, metric, order):
        reason = _reason(values, group, failed)
        rows.append(
            (
                *key,
                *statistics.mean_interval(values, confidence),
                len(values),
                "",
                np.nan,
                np.nan,
                False,
                reason,
            )
        )
        ranked.append(None if reason else values)
    table = pd.DataFrame(rows, columns=[*keys, *RANK]).assign(values=ranked)
    table = table.assign(out=table["reason"] != "", score=table["mean"] * (-1 if higher_is_better else 1))
    table = table.sort_values(["out", "score"], kind="stable", ignore_index=True).drop(
        columns=["out", "score"]
    )
    return _place(table, confidence).drop(columns="values")


def _place(table, confidence):
    """`table`, sorted, with groups and places of its ranked rows."""
    chosen = [k for k in table.index if not table["reason"][k]]
    compared = pairs([table["values"][k] for k in chosen])
    apart = compared[compared["p_adjusted"] < 1 - confidence]
    different = list(zip(apart["first"], apart["second"]))
    names = letters(len(chosen), different)
    beaten = set(compared["second"][beats(compared["p"], len(chosen), confidence)])
    for place, k in enumerate(chosen):
        table.loc[k, "groups"] = names[place]
        # Sorted best first, so of two that are told apart the one with the smaller place is better.
        table.loc[k, "rank_from"] = 1 + sum(j == place for _, j in different)
        table.loc[k, "rank_to"] = len(chosen) - sum(i == place for i, _ in different)
        table.loc[k, "may_be_best"] = place not in beaten
    return table


def leaders(ranked):
    """The rows of `rank` among which the best is, with the confidence of the ranking: a superlative takes one
    row.

    A narrower question than who beats whom, so fewer comparisons bear on it (`beats`), and a row with
    `rank_from` 1 may be missing.
    """
    return ranked[ranked["may_be_best"]]


def compare(
    runs, keys, metric, baseline, higher_is_better=True, order="started", confidence=statistics.CONFIDENCE
):
    """Every configuration of `runs` against the configuration `baseline` (a tuple of its `keys`).

    One row per other configuration; columns `keys` and those of `statistics.RATIO`; each interval holds for
    itself, not all at once. ValueError where there is no such baseline.
    """
    each = {key: values for key, values, _ in statistics.series(runs, keys, metric, order)}
    if baseline not in each:
        raise ValueError(f"No run of {baseline}: take one of {', '.join(map(str, each))}.")
    rows = [
        dict(zip(keys, key)) | statistics.ratio(values, each[baseline], higher_is_better, confidence)
        for key, values in each.items() if key != baseline
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=[*keys, *statistics.RATIO])


def upgrades(runs, keys, metric, version="backend_version", higher_is_better=True, order="started"):
    """What an upgrade changed: each version of a configuration against the one measured before it.

    One row per configuration and version after its first, by when each was first measured; columns `keys`,
    before, after, and those of `statistics.RATIO` (after over before).
    """
    rows = []
    for key, group in runs.sort_values(order, kind="stable").groupby(list(keys), sort=True, dropna=False):
        versions = [(v, part[metric]) for v, part in group.groupby(version, sort=False)]
        for (before, old), (after, new) in itertools.pairwise(versions):
            found = statistics.ratio(new, old, higher_is_better)
            rows.append(dict(zip(keys, key)) | {"before": before, "after": after} | found)
    return pd.DataFrame(rows, columns=[*keys, "before", "after", *statistics.RATIO])
