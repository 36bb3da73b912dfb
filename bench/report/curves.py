"""Lines, markers and axes that several figures share."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pandas as pd
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

from bench import style
from bench.observations import schema
from bench.report import captions
from bench.style import FAINT, GREY, INK, MARKERS, TALLEST, WIDTH, log_axes, plain_logs
from llm_measured.core import naming
from llm_measured.core.definitions import Fields

GREYS = FAINT, "0.58", GREY  # of published curves
SMALL_FROM = 6  # lines of a legend from which on it is written smaller
LOWEST = 1.5  # inches: panels that would be lower stand in two columns
MOST_SETTINGS = 3  # models in one figure; the table has all
DASHES = "-", (0, (5, 1.5)), (0, (4, 1.5, 1, 1.5)), (0, (2, 1))


# How a point is drawn that is one of two kinds: of an open loop, a tail, a cache that is off.
HOLLOW = {"markerfacecolor": "white", "linewidth": 0.8}


class Mark(NamedTuple):
    """What one curve is drawn with."""

    label: str
    colour: object
    marker: str
    dash: object = "-"


def styles(table: pd.DataFrame) -> dict:
    """{(backend, option): Mark} of `table`: colour and first marker are the engine's own (`style.look`), each
    further option of it has the next marker and another dash."""
    styles = {}
    for backend, rows in table.groupby("backend", sort=True):
        colour, _, marker = style.look(backend)
        first = MARKERS.index(marker)
        for k, (_, row) in enumerate(rows.drop_duplicates("option").sort_values("option").iterrows()):
            own = MARKERS[(first + k) % len(MARKERS)], DASHES[k % len(DASHES)]
            styles[backend, row["option"]] = Mark(naming.label(row), colour, *own)
    return styles


def each(table: pd.DataFrame) -> Iterable[tuple[tuple[str, str], pd.DataFrame]]:
    """((backend, option), its rows) of a table of sweeps, one per curve."""
    return table.groupby(["backend", "option"], sort=True)


def sweep_blocks(chosen: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """[(title, rows)] of a table of sweeps, one per setting, those with most rows; the title is empty if
    there is one only."""
    groups = list(chosen.groupby(schema.SETTING, sort=True))
    groups = sorted(groups, key=lambda group: -len(group[1]))[:MOST_SETTINGS]
    return [(captions.setting(key) if len(groups) > 1 else "", rows) for key, rows in groups]


def panels(
    count: int, height: float, styles: dict, extra: float = 1.2, also: Sequence = ()
) -> tuple[Figure, list[Axes]]:
    """Figure and list of axes: `count` panels and below them the legend, on one screen at most.

    The legend has the marks of `styles` and the Line2D of `also`; heights are in inches. Panels stand one
    above the other where that fits, else in two columns.
    """
    handles = [
        Line2D(
            [], [], color=mark.colour, marker=mark.marker, linestyle=mark.dash, markersize=6, label=mark.label
        )
        for mark in styles.values()
    ] + list(also)
    ncols = 2 if len(handles) <= 2 * SMALL_FROM else 3
    lines = -(-len(handles) // ncols)
    key = min((0.24 if lines <= SMALL_FROM else 0.165) * lines, TALLEST / 3)
    columns = 1 if count * LOWEST + key + extra <= TALLEST or count == 1 else 2
    rows = -(-count // columns)
    each = min(height, (TALLEST - key - extra) / rows)
    layout = ConstrainedLayoutEngine(h_pad=0.05, w_pad=0.06)
    drawn = style.Figure(figsize=(WIDTH, rows * each + key + extra), layout=layout)
    grid = drawn.add_gridspec(rows + 1, columns, height_ratios=[each] * rows + [key])
    shown = [drawn.add_subplot(grid[k // columns, k % columns]) for k in range(count)]
    axes = drawn.add_subplot(grid[rows, :])
    # One legend for all panels in axes of its own.
    size = 10 if lines <= SMALL_FROM else 8
    axes.legend(
        handles=handles, loc="upper left", ncols=ncols, frameon=False, borderpad=0, borderaxespad=0,
        columnspacing=1.2, fontsize=size, labelspacing=0.3 if size < 10 else 0.5,
    )  # fmt: skip
    axes.axis("off")
    return drawn, shown


def plain_key(*entries: tuple[dict[str, Any], str]) -> list[Line2D]:
    """Line2D without an engine's colour for a legend: (look, word) each."""
    usual: dict[str, Any] = {"color": INK, "marker": "o", "markersize": 6}
    return [Line2D([], [], label=word, **usual | look) for look, word in entries]


def joined(axes: Axes, x: pd.Series, y: pd.Series, mark: Fields, **more: Any) -> None:
    """Draw the curve through (x, y) with the Mark of its engine and option."""
    look = {"markersize": 6, "linewidth": 1.4, "linestyle": mark.dash, "label": mark.label} | more
    axes.plot(x, y, marker=mark.marker, color=mark.colour, **look)


def fine_logs(axes: Axes) -> None:
    """Two log axes; an axis that spans little has more ticks."""
    plain_logs(axes)
    for axis, (low, high) in log_axes(axes):
        if high / low < 6:
            axis.set_major_locator(ticker.LogLocator(subs=(1, 1.5, 2, 3, 4, 6, 8)))


def note(
    axes: Axes, text: str, place: tuple[float, float], offset: tuple[float, float] = (6, 0), **more: Any
) -> None:
    """Write a small grey `text` beside `place` (x, y), `offset` points away."""
    axes.annotate(text, place, offset, **style.BESIDE | {"fontsize": 9, "color": GREY} | more)
