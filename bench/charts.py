"""What pages of others' numbers draw: a row per source with its range, and a line per model.

    charts.ranges(rows, "ratio", "least", "most", title="…", axis="times as fast", one=1)
    charts.lines(rows, "ratio", "percent", by="model", title="…", words="format")

Both take rows of data/tables/published_*.csv, `ranges` with a column `label`, and return a Matplotlib figure
whose text can be read on a phone.
"""

import itertools

import numpy as np
import pandas as pd
from matplotlib import ticker
from matplotlib.axes import Axes

from bench import html, style

TEXT = 13  # points: what is 13 here is still 11 pixels on a phone of 390
ROW, REST = 0.3, 1.15  # inches: a row, and what stands around the rows
BLUE, ORANGE, GREEN, PINK = "#0173b2", "#d55e00", "#029e73", "#cc78bc"
COLOURS = BLUE, ORANGE, GREEN, PINK
MARKS = "o", "s", "^", "D"
MANTISSAS = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)
MOST_TICKS = 4


def ranges(
    rows: pd.DataFrame,
    value: str,
    least: str = "",
    most: str = "",
    title: str = "",
    axis: str = "",
    line: float | None = None,
    tick: str = "",
    also: str = "",
    colour: str = BLUE,
) -> style.Figure:
    """Draw a row for each of `rows`: its `label`, a dot at `value`, the number, a band from `least` to
    `most`.

    A vertical line stands at `line`; `tick` names a column whose value is marked with a bar, as what the
    bytes alone would give; `also` one with a second dot, where the number is a range. The axis is
    logarithmic.
    """
    with style.style(), _readable():
        rows = rows[rows[value].notna()].reset_index(drop=True)
        if rows.empty:
            return style.nothing()
        drawn = style.Figure(figsize=(style.WIDTH, ROW * len(rows) + REST), layout="constrained")
        axes = drawn.subplots()
        ends = [rows[name] for name in (value, least, most, tick, also) if name]
        for place, row in rows.iterrows():
            if least:
                axes.plot([row[least], row[most]], [place, place], color=colour, alpha=0.3, linewidth=6)
            axes.plot(row[value], place, "o", color=colour, markersize=7)
            number = _number(row[value])
            if also and row[also] != row[value]:
                axes.plot(row[also], place, "o", color=colour, markersize=7)
                number = f"{number} to {_number(row[also])}"
            if tick and row[tick] == row[tick]:
                axes.plot(row[tick], place, "|", color="black", markersize=13, markeredgewidth=2)
            end = np.nanmax([row[name] for name in (value, most, tick, also) if name])
            axes.annotate(number, (end, place), (7, 0), **style.BESIDE)
        if line is not None:
            axes.axvline(line, color="black", linewidth=1)
            ends.append(pd.Series([line]))
        low, high = min(end.min() for end in ends), max(end.max() for end in ends)
        _log(axes, "x", low / 1.15, high * (high / low) ** 0.18 * 1.25)
        axes.set(ylim=(len(rows) - 0.4, -0.6))
        drawn.supxlabel(axis, x=0.99, ha="right")
        axes.set_yticks(range(len(rows)), rows["label"])
        axes.grid(False, axis="y")
        drawn.suptitle(title, x=0.01, ha="left")
        return drawn


def lines(
    rows: pd.DataFrame, x: str, y: str, by: str, title: str, axes_titles: tuple[str, str], words: str = "",
    log: str = "",
) -> style.Figure:  # fmt: skip
    """Draw `y` over `x` of `rows`, a line for each value of the column `by`, named in a legend.

    `words` names a column that stands beside the marks of the first line; `log` names the logarithmic axes.
    """
    with style.style(), _readable():
        rows = rows[rows[x].notna() & rows[y].notna()]
        if rows.empty:
            return style.nothing()
        drawn = style.Figure(figsize=(style.WIDTH, 4.4), layout="constrained")
        axes = drawn.subplots()
        looks = zip(itertools.cycle(COLOURS), itertools.cycle(MARKS))
        for (name, line), (colour, mark) in zip(rows.groupby(by, sort=False), looks):
            axes.plot(line[x], line[y], color=colour, marker=mark, markersize=7, label=name)
            if words:
                for _, row in line.iterrows():
                    axes.annotate(row[words], (row[x], row[y]), (-7, 4), ha="right", **style.ABOVE)
                words = ""
        for letter in log:
            limits = axes.get_xlim() if letter == "x" else axes.get_ylim()
            values = rows[x if letter == "x" else y]
            _log(axes, letter, values[values > 0].min() / 1.3, max(limits[1], values.max() * 1.4))
        axes.set(xlabel=axes_titles[0], ylabel=axes_titles[1])
        columns = 2 if rows[by].astype(str).str.len().max() < 20 else 1
        drawn.legend(loc="outside lower left", ncols=columns, frameon=False)
        drawn.suptitle(title, x=0.01, ha="left")
        return drawn


def _readable():
    """Context in which all text of a figure has TEXT points."""
    import matplotlib

    sizes = ("font.size", "axes.titlesize", "axes.labelsize", "xtick.labelsize", "ytick.labelsize")
    return matplotlib.rc_context(dict.fromkeys((*sizes, "legend.fontsize", "figure.titlesize"), TEXT))


def _log(axes: Axes, letter: str, low: float, high: float) -> None:
    """Make an axis logarithmic from `low` to `high`, with at most MOST_TICKS plain numbers."""
    for mantissas in MANTISSAS:
        ticks = [digit * 10.0**power for power in range(-3, 5) for digit in mantissas]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= MOST_TICKS:
            break
    scale = {f"{letter}scale": "log", f"{letter}lim": (low, high)}
    axes.set(**scale)
    of = axes.xaxis if letter == "x" else axes.yaxis
    of.set_major_locator(ticker.FixedLocator(ticks))
    of.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    of.set_minor_locator(ticker.NullLocator())


def _number(value: float) -> str:
    return html.number(float(f"{value:.2g}")) if value < 10 else f"{value:,.0f}"
