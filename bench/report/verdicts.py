"""A against B: the rows of data/tables/published_verdicts.csv that a section of a page shows, and their
sentence.

rows = verdicts.of("device", "RTX 4090", "RTX 3090", "RTX 5090")
verdicts.say(rows)
"""

import re

import pandas as pd

from bench import site
from bench.html import plural, two
from bench.report import cards

MOST_CARDS = 4  # that a sentence names


def of(kind: str, first: str, *others: str) -> pd.DataFrame:
    """Return the rows of the comparisons of `first` with each of `others`, in this order, with the column
    label: the other (where there are several), the source and its settings."""
    table = site.published("verdicts")
    table = table[(table["of"] == kind) & (table["first"] == first)]
    parts = [table[table["other"] == other] for other in others]
    rows = pd.concat(parts, ignore_index=True)
    several = (rows["other"].str.removesuffix(".0") + ", ") if len(others) > 1 else ""
    settings = rows["source_settings"].map(lambda count: f"{count:.0f}" if count == count else "")
    return rows.assign(label=several + rows["source"] + " (" + settings + ")")


def say(rows: pd.DataFrame, names: dict[str, str] | None = None) -> None:
    """Show the verdict of each comparison in `rows`, a sentence each; `names` has words for its sides."""
    names = names or {}
    for (first, other), part in rows.groupby(["first", "other"], sort=False):
        site.say(sentence(part, names.get(first, first), names.get(other, other)))


def sentence(part: pd.DataFrame, first: str, other: str) -> str:
    """Return the verdict of one comparison, as its grade says it."""
    row = part.iloc[0]
    if not row["sources"]:
        return f"**{other} or {first}: cannot be told.** No source measured both in one setting."
    counted = f"{plural(row['sources'], 'source')}, {plural(row['settings'], 'setting')}"
    span = _span(part["ratio"]) + " times"
    if part["by_bytes"].notna().any():
        span += f" (by bandwidth and bytes alone {_span(part['by_bytes'].dropna())})"
    if row["grade"] == "is":
        agree = int((part["says"] == row["direction"]).sum())
        middle = part["ratio"].quantile([0.25, 0.75], interpolation="nearest")
        return (
            f"**{other} is {row['direction']} than {first}** in {agree} of {counted} (p = {two(row['p'])}): "
            f"{_span(middle)} times in the middle half of the sources."
        )
    if row["grade"] == "was":
        source = "in the one source" if row["sources"] == 1 else f"in each of {row['sources']:.0f} sources"
        users = [int(number) for text in part["users"].dropna() for number in re.findall(r"\d+", str(text))]
        load = f", at {min(users)} to {max(users):,} users" if users else ""
        return (
            f"**{other} was {row['direction']} than {first}** {source} "
            f"({plural(row['settings'], 'setting')}{_cards(part)}): {span}{load}."
        )
    return f"**{other} or {first}: cannot be told.** {span} in {counted}{_cards(part)}."


def _cards(part: pd.DataFrame) -> str:
    """On which cards engines, formats or models were compared, at most MOST_CARDS of them by name."""
    names = sorted({name for names in part["devices"] for name in names.split(", ") if name})
    more = f" and {len(names) - MOST_CARDS} more" if len(names) > MOST_CARDS else ""
    return f", on {', '.join(names[:MOST_CARDS])}{more}" if names else ""


def _span(ratios: pd.Series) -> str:
    low, high = two(ratios.min()), two(ratios.max())
    return low if low == high else f"{low} to {high}"


def kept(what: str, *levels: str) -> pd.DataFrame:
    """Return a row per level and kind of machine of data/tables/published_costs.csv: kept, least and most
    (median and quartiles of its n cards and models, each measured), the median in words, and a label; of the
    `levels` in this order."""
    table = site.published("costs")
    table = table[(table["what"] == what) & table["level"].isin(levels)]
    by_kind = table.groupby(["level", table["device"].map(cards.group).rename("kind")])
    rows = by_kind["kept"].quantile([0.25, 0.5, 0.75]).unstack()
    rows = rows.set_axis(["least", "kept", "most"], axis=1).assign(n=by_kind.size()).reset_index()
    rows["order"] = rows["level"].map(levels.index)
    rows = rows.sort_values(["order", "kind"], ignore_index=True)
    level = (rows["level"] + ", ") if len(levels) > 1 else ""
    rows["label"] = level + rows["kind"] + " (" + rows["n"].astype(str) + ")"
    rows["said"] = rows["kind"] + " " + rows["kept"].map(two) + rows["n"].map(" (n = {})".format)
    return rows
