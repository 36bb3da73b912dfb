"""A against B: the rows of data/tables/published_verdicts.csv that a section of a page shows, and their
sentence.

rows = verdicts.of("device", "RTX 4090", "RTX 3090", "RTX 5090")
verdicts.say(rows)
"""

import pandas as pd

from bench import site
from bench.report import cards
from bench.words import plural, two


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
        load = f", at {part['users'].iloc[0]} users" if part["users"].iloc[0] else ""
        return (
            f"**{other} was {row['direction']} than {first}** {source} "
            f"({plural(row['settings'], 'setting')}): {span}{load}."
        )
    return f"**{other} or {first}: cannot be told.** {span} in {counted}."


def _span(ratios: pd.Series) -> str:
    low, high = two(ratios.min()), two(ratios.max())
    return low if low == high else f"{low} to {high}"


def kept(what: str, *levels: str) -> pd.DataFrame:
    """Return a row per source, level and kind of machine of data/tables/published_costs.csv: kept (the median
    of its settings), least, most, settings and a label; of the `levels` in this order, or of all."""
    table = site.published("costs")
    table = table[table["what"] == what]
    table = table[table["level"].isin(levels)] if levels else table
    table = table.assign(kind=table["device"].map(cards.group))
    keys = ["level", "kind", "source", "engine"]
    rows = table.groupby(keys).agg(
        kept=("kept", "median"), least=("least", "min"), most=("most", "max"), settings=("settings", "sum"),
        devices=("device", _first_of),
    )  # fmt: skip
    rows = rows.reset_index()
    order = rows["level"].map({level: place for place, level in enumerate(levels)})
    rows = rows.assign(order=order).sort_values(["order", "kind", "kept"], ignore_index=True)
    label = rows["devices"] + ", " + rows["source"]
    twice = label.groupby([rows["level"], label]).transform("size") > 1
    return rows.assign(label=label.mask(twice, label + ", " + rows["engine"]))


def _first_of(devices: pd.Series) -> str:
    """The one device, or how many there are."""
    names = sorted(set(devices))
    return names[0] if len(names) == 1 else f"{len(names)} devices"


def span(rows: pd.DataFrame, column: str = "kept", factor: float = 1.0) -> str:
    """Return the smallest and the largest value of a column in words: `0.8 to 1.2`."""
    return _span(rows[column] * factor)
