"""What pages and notebooks draw.

    plots.ranges(rows, "ratio", "least", "most", title="…", axis="times as fast", line=1)    a row per label
    plots.curve(rows, "concurrency", "output_tokens_per_s", title="…")    a line per engine and option
    plots.points(rows, "ttft_s", "output_tokens_per_s", "backend")        a dot per row
    plots.run(requests)                                                   one run, a dot per request

All take rows of a table as they stand in data/tables/ and return a Matplotlib figure whose text can be read
on a phone.
"""

import itertools
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.transforms import Transform, blended_transform_factory

from bench import style
from bench.observations import schema
from bench.style import FAINT, GREY, INK, MARKERS, TALLEST, Figure
from llm_measured.core import columns, naming

BLUE, ORANGE = "#0173b2", "#d55e00"
COLOURS = BLUE, ORANGE, "#029e73", "#cc78bc", "#56b4e9", "#5b5b5b"
GREYS = FAINT, "0.58", GREY  # of published curves
DASHES = "-", (0, (5, 1.5)), (0, (4, 1.5, 1, 1.5)), (0, (2, 1))
# How a point is drawn that is of another kind than its line's, and any in a legend.
HOLLOW: dict[str, Any] = {"markerfacecolor": "white", "linewidth": 0.8}
CROSS: dict[str, Any] = {"linestyle": "none", "marker": "x", "markersize": 7}
PLAIN: dict[str, Any] = {"color": INK, "marker": "o", "markersize": 6}
# Inches: a row of ranges, a line of a legend, what stands around rows and around panels; panels that would be
# lower stand in two columns, none is higher.
ROW, KEY, REST, AROUND = 0.3, 0.25, 1.15, 1.2
LOWEST, HIGHEST = 1.5, 3.8
MOST_SETTINGS = 3  # models in one figure; the table has all
LESS = "0.95"  # grey: the side of an axis on which something is slower
LONG = 24  # characters: a longer label leaves no room for its band


def ranges(
    rows: pd.DataFrame, value: str, least: str = "", most: str = "", title: str = "", axis: str = "",
    line: float | None = None, tick: str = "", colour: str = BLUE, by: str = "", caption: str = "",
) -> Figure:  # fmt: skip
    """Draw a row for each `label` of `rows`: a dot at `value`, a band from `least` to `most`, and the number
    at the right edge.

    Below `line` the background is grey; `tick` names a column whose value is marked with a bar, as what the
    bytes alone would give. Of the column `by` each value has a mark and a colour, named in a legend, and no
    number. Labels that would take half of a phone's width stand above their bands. The axis is logarithmic.
    """
    with style.style():
        rows = rows[rows[value].notna()]
        if rows.empty:
            return style.nothing()
        labels = list(dict.fromkeys(rows["label"]))
        rows = rows.assign(place=rows["label"].map(labels.index), line=rows[by] if by else "")
        above = max(map(len, labels)) > LONG
        looks = _looks(rows, by) if by else {"": {"color": colour, "marker": "o", "markersize": 7}}
        key = [Line2D([], [], **look | {"linestyle": ""}, label=name) for name, look in looks.items() if by]
        small = KEY * (len(style.wrapped(caption)) + style.key_rows(key))
        # Of many rows each is lower: a figure is no taller than a screen.
        row = min((1.8 if above else 1) * ROW, (1.15 * style.WIDTH - REST - small) / len(labels))
        drawn = style.figure(row * len(labels) + REST + small)
        axes = drawn.subplots()
        if least:
            axes.hlines(rows["place"], rows[least], rows[most], color=colour, alpha=0.3, linewidth=6)
        for name, look in looks.items():
            part = rows[rows["line"] == name]
            axes.plot(part[value], part["place"], **look | {"linestyle": ""})
        if tick:
            axes.plot(rows[tick], rows["place"], "|k", markersize=9, markeredgewidth=2)
        ends = rows[[name for name in (value, least, most, tick) if name]].to_numpy(float)
        ends = np.append(ends[~np.isnan(ends)], [] if line is None else line)
        low, high = ends.min(), ends.max()
        beside = max(1.04, (high / low) ** 0.06)
        style.log_axis(axes, "x", low / beside, high * beside)
        if line is not None:
            axes.axvspan(low / beside, line, color=LESS, linewidth=0, zorder=0)
        axes.set(ylim=(len(labels) - 0.5, -0.5 - 0.5 * above))
        axes.set_yticks(range(len(labels)), [""] * len(labels) if above else labels)
        at = blended_transform_factory(axes.transAxes, axes.transData)
        for place, label in enumerate(labels if above else ()):
            axes.annotate(label, (0, place), (3, 5), at, **style.ABOVE)
        # Numbers in a column of their own: beside its band each would stand on a line, or beside a bar.
        for place, number in () if by else zip(rows["place"], rows[value]):
            axes.annotate(_number(number), (1, place), (6, 0), at, **style.BESIDE)
        axes.grid(False, axis="y")
        axes.set_xlabel(axis, loc="right")
        return style.titled(drawn, title, caption, key)


def _number(value: float) -> str:
    """Return a number with two digits, `1.0` too; from 10 on without any after the point."""
    return f"{value:#.2g}" if value < 9.95 else f"{value:,.0f}"


def curve(
    rows: pd.DataFrame, x: str, y: str, title: str, caption: str = "", by: str = "", log: bool = False,
    panel: str = "", hollow: str = "", cross: str = "", words: str = "", beside: pd.DataFrame | None = None,
    joined: bool = True, **own: columns.Column | str,
) -> Figure:  # fmt: skip
    """Draw column `y` over `x` of `rows`, a line per engine and option, in the units that readers see; a
    title of `own`, or a column of it, replaces that of a column.

    A line joins its rows in their order; where `by` names a column there is one for each of its values, and
    marks that are not `joined` stand alone. Each value of the column `panel` has a panel, or each model where
    none is given. `hollow` and `cross` name columns that are true for rows to be drawn apart from their line,
    with white marks, or as crosses; their names stand in the legend. `words` names a column that stands
    beside the marks. `beside` has others' numbers, a grey line per value of its column `label`. A column
    `<y>_interval` (half the width of a 95 % interval) is drawn as a whisker.
    """
    titles = columns.of(f"{x} {y}", **own)
    rows = _shown(rows, titles)
    if rows.empty:
        return style.nothing()
    rows["line"] = rows[by].astype(str) if by else rows.apply(naming.label, axis=1)
    rows["kind"] = ""
    kinds: dict[str, dict[str, Any]] = {}
    greys: dict[str, dict[str, Any]] = {}
    for name, look in ((hollow, HOLLOW), (cross, CROSS)):
        if name and rows[name].any():
            rows.loc[rows[name].astype(bool), "kind"] = name
            kinds[name] = look
    looks = _looks(rows, by)
    for look in () if joined else looks.values():
        look["linestyle"] = ""
    if beside is not None:
        beside = _shown(beside, titles)
        for name, grey, marker in zip(
            sorted(set(beside["label"])), itertools.cycle(GREYS), itertools.cycle(MARKERS)
        ):
            greys[name] = {"color": grey, "marker": marker, "markersize": 4, "linewidth": 1}
    key = [Line2D([], [], **look, label=name) for name, look in looks.items()]
    key += [Line2D([], [], **PLAIN | look, label=name) for name, look in kinds.items()]
    key += [Line2D([], [], **look, label=name) for name, look in greys.items()]
    with style.style():
        panels = _panels(rows, panel, by)
        drawn, every_axes = _canvas(len(panels), KEY * style.key_rows(key))
        for axes, (name, part) in zip(every_axes, panels):
            for label, look in greys.items():
                others = beside[beside["label"] == label]
                axes.plot(others[x], others[y], **look)
            for (line, kind), marks in part.groupby(["line", "kind"], sort=False):
                look = looks[line] | kinds.get(kind, {})
                axes.plot(marks[x], marks[y], **look)
                if f"{y}_interval" in marks and (not kind or kind == hollow):
                    half = marks[f"{y}_interval"]
                    axes.errorbar(
                        marks[x], marks[y], half, fmt="none", ecolor=look["color"], elinewidth=1, capsize=2
                    )
            axes.set(xlabel=titles[x].axis, ylabel=titles[y].axis, title=name)
            if log:
                axes.margins(0.08, 0.1 if words else 0.05)
                style.log_axis(axes, "x")
                style.log_axis(axes, "y")
            else:
                axes.set(xlim=(0, None), ylim=(0, None))
                style.ticks(axes.xaxis, 5)
                style.ticks(axes.yaxis, 5)
            if words:
                _write(axes, part, x, y, words)
        if not by and (len(panels) == 1 or panel) and set(schema.SETTING) <= set(rows):
            caption = f"{setting(rows.iloc[0])}. {caption}"
        return style.titled(drawn, title, caption, key)


def _shown(rows: pd.DataFrame, titles: dict[str, columns.Column]) -> pd.DataFrame:
    """The rows that have a value of both columns, in the units that readers see."""
    found = rows.dropna(subset=list(titles)).copy()
    for name, column in titles.items():
        for each in {name, f"{name}_interval"} & set(found):
            found[each] = found[each] * column.factor
    return found


def _looks(rows: pd.DataFrame, by: str) -> dict[str, dict[str, Any]]:
    """{line: how it is drawn}. Of the column `by` each value has the next colour; else colour and first
    marker are the engine's own (`style.look`), each further option has the next marker and another dash."""
    looks: dict[str, dict[str, Any]] = {}
    if by:
        for line, colour, marker in zip(
            rows["line"].unique(), itertools.cycle(COLOURS), itertools.cycle(MARKERS)
        ):
            looks[line] = {"color": colour, "marker": marker, "markersize": 7}
        return looks
    for backend, own in rows.groupby("backend"):
        colour, marker = style.look(backend)
        first = MARKERS.index(marker)
        for k, line in enumerate(sorted(own["line"].unique())):
            marker, dash = MARKERS[(first + k) % len(MARKERS)], DASHES[k % len(DASHES)]
            looks[line] = {
                "color": colour,
                "marker": marker,
                "linestyle": dash,
                "markersize": 6,
                "linewidth": 1.4,
            }
    return looks


def _panels(rows: pd.DataFrame, panel: str, by: str) -> list[tuple[Any, pd.DataFrame]]:
    """[(title, rows)] of each value of `panel`, else of each setting, those with most rows."""
    if panel:
        return list(rows.groupby(panel))
    if by or not set(schema.SETTING) <= set(rows):
        return [("", rows)]
    groups = sorted((part for _, part in rows.groupby(schema.SETTING)), key=len, reverse=True)[:MOST_SETTINGS]
    return [(setting(part.iloc[0]) if len(groups) > 1 else "", part) for part in groups]


def _canvas(count: int, key: float) -> tuple[Figure, list[Axes]]:
    """Figure and axes of `count` panels, one above the other where that fits on a screen, else in two
    columns; below them is room for `key` inches of legend."""
    across = 1 if count == 1 or count * LOWEST + key + AROUND <= TALLEST else 2
    rows = -(-count // across)
    height = min(HIGHEST, (TALLEST - key - AROUND) / rows)
    drawn = style.figure(rows * height + key + AROUND)
    axes = drawn.subplots(rows, across, squeeze=False).ravel()
    for unused in axes[count:]:
        unused.remove()
    return drawn, list(axes[:count])


def _write(axes: Axes, rows: pd.DataFrame, x: str, y: str, words: str) -> None:
    """Write the words of a column beside their marks, from the right, unless other words stand there: below
    a mark, or above it where fewer lines pass."""
    place, taken = axes.transScale + axes.transLimits, []
    passed = np.concatenate([_along(line, place) for line in axes.lines])
    for _, row in rows[rows[words] != ""].sort_values(x, ascending=False).iterrows():
        where = place.transform((row[x], row[y]))
        if all(abs(where - other)[0] > 0.09 or abs(where - other)[1] > 0.045 for other in taken):
            right, up = (passed - where).T
            above, below = (
                ((right > 0.01) & (right < 0.09) & (side > 0.01) & (side < 0.06)).sum() for side in (up, -up)
            )
            offset, side = (3, "bottom") if above < below else (-3, "top")
            look = style.BESIDE | {"color": GREY, "va": side}
            axes.annotate(row[words], (row[x], row[y]), (5, offset), **look)
        taken.append(where)


def _along(line: Line2D, place: Transform) -> np.ndarray:
    """Points on a line as it is drawn, its marks alone where nothing joins them, where `place` puts them."""
    marks = place.transform(line.get_xydata().astype(float))
    if line.get_linestyle() == "None" or len(marks) < 2:
        return marks
    return np.concatenate([np.linspace(one, other, 30) for one, other in itertools.pairwise(marks)])


def points(rows: pd.DataFrame, x: str, y: str, hue: str = "backend", title: str = "") -> Figure:
    """Draw a dot per row of `rows` at the columns `x` and `y`, coloured by `hue`, in the units that readers
    see; ValueError that lists the columns for a name that is none of them."""
    for name in (x, y, hue):
        naming.choose("column", name, list(rows))
    titles = columns.of(f"{x} {y}")
    return curve(rows, x, y, f"{titles[y].title} and {titles[x].title}", title, by=hue, joined=False)


def run(requests: pd.DataFrame) -> Figure:
    """Draw one run for the notebook that measured it: output tokens/s and TTFT of each request."""
    if requests.empty:
        return style.nothing()
    row, failed = naming.named(requests).iloc[0], int((requests["error"] != "").sum())
    with style.style():
        drawn = style.figure(3.6)
        panels = drawn.subplots(2, 1, sharex=True)
        for panel, name in zip(panels, ("output_tokens_per_s", "ttft_s")):
            values = columns.values(requests, name)
            panel.plot(
                requests["request"], values, "o", color=style.look(row["backend"]).colour, markersize=7
            )
            panel.axhline(values.median(), color=FAINT, linewidth=1.2, zorder=1)
            panel.set(ylim=(0, None), ylabel=columns.column(name).axis)
            if values.isna().all():
                panel.text(0.5, 0.5, "not measured", transform=panel.transAxes, ha="center", color=GREY)
            style.ticks(panel.yaxis, 3)
            panel.grid(False, axis="x")
        drawn.align_ylabels(panels)
        panels[1].set_xlabel("request")
        panels[1].xaxis.set_major_locator(ticker.MaxNLocator(9, integer=True))
        caption = f"{setting(row)}. Line: median." + (f" {failed} failed." if failed else "")
        return style.titled(drawn, naming.label(row), caption)


def setting(row: pd.Series) -> str:
    """Return `model (synthetic weights) on gpu` of a row."""
    return f"{row['model']} ({row['weights']} weights) on {row['gpu']}"
