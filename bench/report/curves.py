"""Lines, markers and axes that several figures share."""

from typing import NamedTuple

import numpy as np
from matplotlib import ticker
from matplotlib.lines import Line2D

from bench import naming
from bench.observations import schema
from bench.report import captions, html, sheet, style
from bench.report.style import FAINT, GREY, MARKERS, WIDTH

GREYS = FAINT, "0.58", GREY  # of published curves
DASHES = "-", (0, (5, 1.5)), (0, (4, 1.5, 1, 1.5)), (0, (2, 1))


class Mark(NamedTuple):
    """What one curve is drawn with."""

    label: str
    colour: object
    marker: str
    dash: object = "-"


def styles(table, requests):
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


def _key(axes, styles, also=()):
    """One legend for all panels in axes of its own: the marks of `styles`, then the Line2D of `also`."""
    handles = [
        Line2D(
            [], [], color=mark.colour, marker=mark.marker, linestyle=mark.dash, markersize=6, label=mark.label
        )
        for mark in styles.values()
    ] + list(also)
    axes.legend(
        handles=handles,
        loc="upper left",
        ncols=2,
        frameon=False,
        borderpad=0,
        borderaxespad=0,
        columnspacing=1.2,
    )
    axes.axis("off")


def each(table):
    """((backend, option), its rows) of a table of sweeps, one per curve."""
    return table.groupby(["backend", "option"], sort=True)


def sweep_blocks(chosen):
    """[(title, rows)] of a table of sweeps, one per setting; the title is empty if there is one only."""
    groups = list(chosen.groupby(schema.SETTING, sort=True))
    return [(captions.setting(key) if len(groups) > 1 else "", rows) for key, rows in groups]


def panels(count, height, styles, extra=1.2, also=()):
    """Figure and list of axes: `count` panels, one above the other, and below them the legend.

    The legend has the marks of `styles` and the Line2D of `also`; heights are in inches.
    """
    key = 0.24 * np.ceil((len(styles) + len(also)) / 2)
    drawn = sheet.new(WIDTH, count * height + key + extra)
    drawn.get_layout_engine().set(h_pad=0.08, w_pad=0.08)
    *panels, last = drawn.subplots(count + 1, 1, gridspec_kw={"height_ratios": [height] * count + [key]})
    _key(last, styles, also)
    return drawn, panels


def joined(axes, x, y, mark, **more):
    """Draw the curve through (x, y) with the Mark of its engine and option."""
    look = {"markersize": 6, "linewidth": 1.4, "linestyle": mark.dash, "label": mark.label} | more
    axes.plot(x, y, marker=mark.marker, color=mark.colour, **look)


def _log_axes(axes):
    """Set both axes to log scales, but for one without a value above zero, which cannot be drawn so; returns
    [(axis, its limits)] of those set."""
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        # Set once: it brings the scale's own ticks back, and their 6 × 10¹ instead of 60.
        if np.isfinite(axis.get_minpos()) and axis.get_scale() != "log":
            axes.set(**{f"{name}scale": "log"})
    return [(a, a.get_view_interval()) for a in (axes.xaxis, axes.yaxis) if a.get_scale() == "log"]


def plain_logs(axes):
    """Two log axes with plain numbers at 1, 2 and 5 of each power of ten, fewer where there is much to
    span."""
    for axis, (low, high) in _log_axes(axes):
        axis.set_major_locator(
            ticker.LogLocator(subs=(1, 2, 5) if high / low < 100 else (1, 3) if high / low < 1000 else (1,))
        )
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: html.number(value)))
        axis.set_minor_locator(ticker.NullLocator())


def fine_logs(axes):
    """Two log axes; an axis that spans little has more ticks."""
    plain_logs(axes)
    for axis, (low, high) in _log_axes(axes):
        if high / low < 6:
            axis.set_major_locator(ticker.LogLocator(subs=(1, 1.5, 2, 3, 4, 6, 8)))


def note(axes, text, place, offset=(6, 0), **more):
    """Write a small grey `text` beside `place` (x, y), `offset` points away."""
    axes.annotate(text, place, offset, **style.BESIDE | {"fontsize": 9, "color": style.GREY} | more)
