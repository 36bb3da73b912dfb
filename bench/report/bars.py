"""Figures of rows: a bar per configuration, its label above it, its value behind it."""

import numpy as np
import pandas as pd
from matplotlib import ticker
from matplotlib.lines import Line2D

from bench import naming
from bench.analysis import latency as latency_analysis
from bench.analysis import machines
from bench.report import captions, html, sheet
from bench.report.style import BESIDE, GREY, INK, WIDTH

ROW = 0.46  # inches per row: its label and its bar
LABEL, BAR, THICK = -0.22, 0.17, 0.36  # where in a row its label and its bar stand, and how thick the bar is


def blocks(requests, experiment="latency"):
    """What a figure of bars compares: (requests of the machine in front, [(title, requests, summary)]).

    One block per setting; the title is empty if there is one setting only.
    """
    chosen = machines.here(requests, experiment)
    settings = latency_analysis.settings(chosen)
    return chosen, [
        (captions.setting(key) if len(settings) > 1 else "", rows, latency_analysis.summary(rows))
        for key, rows in settings
    ]


def configurations(summary):
    """Labels of the rows of `summary`: engine, option, and how many requests failed."""
    failures = summary.get("failed", pd.Series(0, summary.index))
    return [
        naming.label(row) + (f" · {n} requests failed" if n else "")
        for (_, row), n in zip(summary.iterrows(), failures)
    ]


def canvas(rows, columns=1, extra=1.3, **shared):
    """Figure and 2-D array of axes: one row of panels per entry of `rows`, as tall as so many bars need."""
    drawn = sheet.new(WIDTH, ROW * sum(rows) + 0.75 * len(rows) + extra)
    drawn.get_layout_engine().set(h_pad=0.06, w_pad=0.08)
    return drawn, drawn.subplots(
        len(rows), columns, squeeze=False, gridspec_kw={"height_ratios": [n + 0.4 for n in rows]}, **shared
    )


def rows(axes, labels, unit=""):
    """Prepare `axes` for one row per label, the first on top; a label stands above its bar, at the left."""
    for y, name in enumerate(labels):
        axes.text(0, y + LABEL, name, transform=axes.get_yaxis_transform(), va="center", ha="left", zorder=5)
    axes.set(ylim=(len(labels) - 0.45, -0.55), yticks=[], xlabel=unit)
    axes.grid(False, axis="y")


def draw(axes, table, column, look, factor=1.0, spread=None, reach=0.0, most=np.inf):
    """Draw one bar per row of `table`: its value in `column` times `factor`, and the value written behind it.

    Behind means behind the whisker of half width `spread`, and behind `reach`, where marks beside it end.
    No whisker goes on past `most`, the largest value that there can be.
    """
    values = (table[column] * factor).to_numpy(dtype=float)
    half = np.zeros(len(table)) if spread is None else spread.fillna(0).to_numpy() * factor
    above = np.minimum(half, most - values)
    ends = np.fmax(np.nan_to_num(values + above), reach)
    for y, (backend, value, end) in enumerate(zip(table["backend"], values, ends)):
        colour, hatch = look[backend]
        axes.barh(
            y + BAR, np.nan_to_num(value), THICK, color=colour, hatch=hatch, edgecolor="white", linewidth=0
        )
        if half[y]:
            whisker = [[half[y]], [above[y]]]
            axes.errorbar(
                value, y + BAR, xerr=whisker, color=INK, capsize=3, elinewidth=1.2, capthick=1.2, zorder=4
            )
        axes.annotate(html.number(value) or "not measured", (end, y + BAR), (5, 0), **BESIDE)
    axes.set_xlim(0, (max(ends) or 1) * 1.2)
    ticks(axes.xaxis, 4)


def ticks(axis, most):
    """At most `most` intervals between round numbers, written as in the tables."""
    axis.set_major_locator(ticker.MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: html.number(value)))


def fraction(axes):
    """The axis of a share between 0 and 1, with room for a value behind a whisker that ends at 1."""
    axes.set(xlim=(0, 1.2), xticks=(0, 0.25, 0.5, 0.75, 1), xticklabels=("0", "0.25", "0.5", "0.75", "1"))


def small_dots(axes, x, y):
    """Draw one dot per measurement at (x, y), over the bars."""
    axes.scatter(x, y, s=16, color="white", edgecolor=INK, linewidth=0.9, zorder=6)


def legend(drawn, marks):
    """Grey marks with their names, beside the title."""
    shape = {"color": GREY, "markersize": 7, "markeredgewidth": 2, "linestyle": ""}
    handles = [Line2D([], [], marker=marker, label=name, **shape) for name, marker in marks]
    drawn.legend(
        handles=handles,
        loc="outside upper right",
        ncols=len(marks),
        frameon=False,
        borderpad=0,
        handletextpad=0.2,
    )
