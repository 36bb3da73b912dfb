"""Figures of rows: a bar per configuration, its label before it, its value behind it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

from bench import html, style
from bench.observations import schema
from bench.style import BESIDE, GREY, INK, TALLEST, WIDTH
from bench.topics import latency as latency_analysis
from bench.topics import machines
from llm_measured.core import naming

ROW, PANEL, REST = 0.235, 0.6, 1.75  # inches: a row, what a panel has around its rows, title and small print
SHARED_HATCH = "//////"
LABEL, THICK = -0.3, 0.66  # where in a row its label begins, and how thick its bar is


def block(requests: pd.DataFrame, above: int = 0) -> tuple[str, pd.DataFrame, pd.DataFrame] | None:
    """What a figure of bars compares: (title, requests, summary) of one model on the default machine, the
    first of `latency_analysis.settings`; None where nothing was measured.

    A summary (`latency_analysis.summary`) has the best rows by output tokens/s, as many as fit on a screen
    below `above` other rows; the title says so where it leaves any out.
    """
    rate = latency_analysis.RATE
    each = [rows for _, rows in latency_analysis.settings(machines.on_default_machine(requests, "latency"))]
    every = latency_analysis.summary(machines.every(requests, "latency"))
    keys = [*schema.SETTING, "host", "option"]
    found = [
        (pd.concat(latency_analysis.apart(rows)), every.merge(rows[keys].drop_duplicates())[list(every)])
        for rows in each
    ]
    found = [(rows, summary) for rows, summary in found if len(summary) and summary[rate].notna().any()]
    if not found:
        return None
    rows, summary = found[0]
    shown = summary.sort_values(rate, ascending=False, kind="stable")
    shown = shown.head(max(1, most_rows(1 + bool(above)) - above)).reset_index(drop=True)
    left, models = len(summary) - len(shown), len(found) - 1
    more = [f"{left} more options"] * bool(left) + [f"{models} more model{'s' * (models > 1)}"] * bool(models)
    return f"{' and '.join(more)} in the table" if more else "", rows, shown


def most_rows(panels: int = 1) -> int:
    """How many rows fit on a screen in so many panels."""
    return int((TALLEST - REST - PANEL * panels) / ROW)


def configurations(summary: pd.DataFrame) -> list[str]:
    """Labels of the rows of `summary`: engine, option, how many requests failed, and whether the runs shared
    their machine."""
    failures = summary.get("failed", pd.Series(0, summary.index))
    return [
        naming.label(row)
        + (f" · {n} requests failed" if n else "")
        + (" · shared" if row.get("shared_by") else "")
        for (_, row), n in zip(summary.iterrows(), failures)
    ]


def canvas(
    rows: Sequence[float], columns: int = 1, squeeze: bool = True, **shared: Any
) -> tuple[Figure, Any]:
    """Figure and its axes (`Figure.subplots`): one row of panels per entry of `rows`, as tall as so many bars
    need."""
    height = min(ROW * sum(rows) + PANEL * len(rows) + REST, TALLEST)
    layout = ConstrainedLayoutEngine(h_pad=0.06, w_pad=0.08)
    drawn = style.Figure(figsize=(WIDTH, height), layout=layout)
    return drawn, drawn.subplots(
        len(rows), columns, squeeze=squeeze, gridspec_kw={"height_ratios": [n + 0.4 for n in rows]}, **shared
    )


def rows(axes: Axes, labels: list[str], unit: str = "") -> None:
    """Prepare `axes` for one row per label, the first on top; a label stands before its bar."""
    look: dict[str, Any] = {"va": "top", "ha": "right", "fontsize": 10}
    for y, name in enumerate(labels):
        # Set off by an offset: a browser drops the spaces at a label's end.
        at, offset = axes.get_yaxis_transform(), (-6, 0)
        axes.annotate(name, (0, y + LABEL), offset, xycoords=at, textcoords="offset points", **look)
    axes.set(ylim=(len(labels) - 0.4, -0.6), yticks=[], xlabel=unit)
    axes.grid(False, axis="y")


def draw(
    axes: Axes,
    table: pd.DataFrame,
    column: str,
    look: dict[str, tuple],
    factor: float = 1.0,
    spread: pd.Series | None = None,
    reach: float = 0.0,
    most: float = np.inf,
) -> None:
    """Draw one bar per row of `table`: its value in `column` times `factor`, and the value written behind it.

    Behind means behind the whisker of half width `spread`, and behind `reach`, where marks beside it end.
    No whisker goes on past `most`, the largest value that there can be. A row of runs that shared their
    machine (column shared_by) is hatched on white.
    """
    values = (table[column] * factor).to_numpy(dtype=float)
    half = np.zeros(len(table)) if spread is None else spread.fillna(0).to_numpy() * factor
    above = np.minimum(half, most - values)
    ends = np.fmax(np.nan_to_num(values + above), reach)
    shared = table.get("shared_by", pd.Series("", table.index))
    for y, (backend, value, end, beside) in enumerate(zip(table["backend"], values, ends, shared)):
        colour, hatch = look[backend]
        fill: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0}
        if beside:
            fill = {"facecolor": "white", "edgecolor": colour, "hatch": SHARED_HATCH, "linewidth": 0.8}
        axes.barh(y, np.nan_to_num(value), THICK, **fill)
        if half[y]:
            whisker = [[half[y]], [above[y]]]
            axes.errorbar(value, y, xerr=whisker, color=INK, capsize=2, elinewidth=1, capthick=1, zorder=4)
        axes.annotate(html.number(value) or "not measured", (end, y), (4, 0), fontsize=9, **BESIDE)
    axes.set_xlim(0, (max(ends) or 1) * 1.2)
    ticks(axes.xaxis, 4)


def ticks(axis: Axis, most: int) -> None:
    """At most `most` intervals between round numbers, written as in the tables."""
    axis.set_major_locator(ticker.MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: html.number(value)))


def log_ticks(axis: Axis, subs: Sequence[float]) -> None:
    """Plain numbers at `subs` times each power of ten of a log axis, and nothing between."""
    axis.set_major_locator(ticker.LogLocator(subs=subs))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: html.number(value)))
    axis.set_minor_locator(ticker.NullLocator())


def fraction(axes: Axes) -> None:
    """The axis of a share between 0 and 1, with space for a value behind a whisker that ends at 1."""
    axes.set(xlim=(0, 1.2), xticks=(0, 0.5, 1), xticklabels=("0", "0.5", "1"))


def small_dots(axes: Axes, x: pd.Series, y: pd.Series) -> None:
    """Draw one dot per measurement at (x, y), over the bars."""
    axes.scatter(x, y, s=12, color="white", edgecolor=INK, linewidth=0.9, zorder=6)


def legend(drawn: Figure, marks: list[tuple[str, str]]) -> None:
    """Grey marks with their names, beside the title."""
    shape: dict[str, Any] = {"color": GREY, "markersize": 7, "markeredgewidth": 2, "linestyle": ""}
    handles = [Line2D([], [], marker=marker, label=name, **shape) for name, marker in marks]
    drawn.legend(
        handles=handles,
        loc="outside upper right",
        ncols=len(marks),
        frameon=False,
        borderpad=0,
        handletextpad=0.2,
    )
