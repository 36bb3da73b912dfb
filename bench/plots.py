"""What pages draw: bars of a table's rows, and curves through them; dots, for a reader's own two columns.

    plots.bars(rows, "output_tokens_per_s", title="Output speed")         a bar per row, its label before it
    plots.curve(rows, "concurrency", "output_tokens_per_s", title="…")    a line per engine and option
    plots.points(rows, "ttft_s", "output_tokens_per_s", "backend")        a dot per row

All take rows of a table as they stand in data/tables/ and return a Matplotlib figure. A column
`<name>_interval` (half the width of a 95 % interval) is drawn as a whisker, `<name>_runs` (values of single
runs) as dots.
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.transforms import blended_transform_factory

from bench import html, style
from bench.observations import schema
from bench.style import BESIDE, FAINT, GREY, INK, MARKERS, TALLEST, WIDTH
from llm_measured.core import columns, naming
from llm_measured.core.definitions import Fields

ROW, PANEL, REST = 0.25, 0.6, 1.75  # inches: a row, what a panel has around its rows, title and small print
SHARED_HATCH = "//////"
THICK = 0.66  # how thick the bar of a row is
GREYS = FAINT, "0.58", GREY  # of published curves
LOWEST = 1.5  # inches: panels that would be lower stand in two columns
MOST_SETTINGS = 3  # models in one figure; the table has all
DASHES = "-", (0, (5, 1.5)), (0, (4, 1.5, 1, 1.5)), (0, (2, 1))
# How a point is drawn that is one of two kinds: of an open loop, a tail, a cache that is off.
HOLLOW = {"markerfacecolor": "white", "linewidth": 0.8}
CROSS = {"linestyle": "none", "marker": "x", "markersize": 7}
PREFIXES = (1e-12, "T"), (1e-9, "G"), (1e-6, "M"), (1, "")
MOST_ROWS = 18  # of one figure: what a screen shows; the table has the others


def bars(
    rows: pd.DataFrame,
    *names: str,
    title: str,
    caption: str = "",
    label: Sequence[str] = (),
) -> Figure:
    """Draw the columns `names` of `rows`, a panel each and a bar per row, in the order of the rows.

    `label` replaces engine and option before the bars.
    """
    with style.style():
        rows = rows.head(MOST_ROWS).reset_index(drop=True)
        if rows.empty:
            return style.nothing()
        drawn, panels = canvas([len(rows)], columns=len(names), squeeze=False, sharey=True)
        look = style.looks(rows)
        for place, (panel, name) in enumerate(zip(panels[0], names)):
            column = columns.column(name)
            words = list(label) or configurations(rows)
            rows_of(panel, words if place == 0 else [""] * len(rows), column.axis)
            spread, reach = rows.get(f"{name}_interval"), 0.0
            runs = rows.get(f"{name}_runs")
            if runs is not None:
                runs = runs.astype(str)  # a table of one run each has a number there
                reach = np.array([max(map(float, text.split()), default=0) for text in runs]) * column.factor
            if f"{name}_low" in rows:
                reach = rows[f"{name}_high"].to_numpy(dtype=float) * column.factor
            draw_bars(panel, rows, name, look, factor=column.factor, spread=spread, reach=reach)
            if f"{name}_low" in rows:
                _whiskers(panel, rows, name, column.factor)
            if runs is not None:
                for y, text in enumerate(runs):
                    values = pd.Series([float(word) * column.factor for word in text.split()])
                    small_dots(panel, values, pd.Series(float(y), values.index))
        return style.titled(drawn, title, caption)


def _whiskers(panel, rows, name, factor):
    """Draw the 95 % interval from <name>_low to <name>_high over the bar of each row."""
    values = rows[name] * factor
    beside = [values - rows[f"{name}_low"] * factor, rows[f"{name}_high"] * factor - values]
    look = {"fmt": "none", "ecolor": style.INK, "capsize": 2, "elinewidth": 1, "zorder": 4}
    panel.errorbar(values, values.index, xerr=beside, **look)


def curve(
    rows: pd.DataFrame,
    x: str,
    y: str,
    title: str,
    caption: str = "",
    log: bool = False,
    panel: str = "",
    hollow: str = "",
    cross: str = "",
    end: str = "",
    beside: pd.DataFrame | None = None,
) -> Figure:
    """Draw column `y` over `x` of `rows`, a line per engine and option, in the units that readers see.

    A line joins its rows in their order. Each value of the column `panel` has a panel, or each model where
    none is given. `hollow` and `cross` name columns that are true for rows to be drawn apart from the others:
    a line of its own with white marks, or crosses beside the line; their names stand in the legend. `end`
    names a column of words for the last mark of each line. `beside` has others' numbers, a grey line per
    value of its column `label`.
    """
    with style.style():
        rows = rows[rows[x].notna() & rows[y].notna()]
        if rows.empty:
            return style.nothing()
        marks, apart = styles(rows), [name for name in (hollow, cross) if name and rows[name].any()]
        looks = {hollow: HOLLOW, cross: CROSS}
        theirs = _greys(beside)
        key = plain_key(*((looks[name], name) for name in apart), *((look, name) for name, look in theirs))
        groups = list(rows.groupby(panel, sort=True)) if panel else sweep_blocks(rows)
        drawn, panels = canvas_of_panels(len(groups), 3.8, marks, also=key)
        for axes, (name, own) in zip(panels, groups):
            if beside is not None:
                _theirs(axes, beside, x, y, theirs)
            for configuration, line in each(own):
                for _, part in line.groupby(hollow) if hollow else [(False, line)]:
                    _line(axes, part, x, y, marks[configuration], hollow, cross)
            titles = columns.of(f"{x} {y}")
            axes.set(xlabel=titles[x].axis, ylabel=titles[y].axis, title=name)
            if log:
                fine_logs(axes)
                low, high = axes.get_xlim()
                axes.set_xlim(low, high * 1.25)
            else:
                axes.set(xlim=(0, None), ylim=(0, None))
            if end:
                _ends(axes, own, x, y, end, hollow)
        if (len(groups) == 1 or panel) and set(schema.SETTING) <= set(rows):
            caption = f"{setting(rows.iloc[0][schema.SETTING])}. {caption}"
        return style.titled(drawn, title, caption)


def _line(axes, rows, x, y, mark, hollow, cross):
    """One line with the whiskers of its intervals; what is drawn apart is crosses, joined by dots."""
    look = HOLLOW if hollow and rows[hollow].iloc[0] else {}
    factors = {name: column.factor for name, column in columns.of(f"{x} {y}").items()}
    apart = rows[cross].astype(bool) if cross else pd.Series(False, rows.index)
    curve_x, curve_y = rows.loc[~apart, x] * factors[x], rows.loc[~apart, y] * factors[y]
    joined(axes, curve_x, curve_y, mark, **look)
    if f"{y}_interval" in rows:
        half = rows.loc[~apart, f"{y}_interval"] * factors[y]
        axes.errorbar(curve_x, curve_y, half, fmt="none", ecolor=mark.colour, elinewidth=1, capsize=2)
    if apart.any():
        axes.plot(rows[x] * factors[x], rows[y] * factors[y], ":", color=mark.colour, linewidth=0.8, zorder=1)
        axes.plot(
            rows.loc[apart, x] * factors[x], rows.loc[apart, y] * factors[y], color=mark.colour, **CROSS
        )


def _greys(beside: pd.DataFrame | None) -> list[tuple[str, dict]]:
    """[(label, its look)] of others' lines: greys, and a marker each."""
    labels = [] if beside is None else sorted(set(beside["label"]))
    looks = zip(itertools.cycle(GREYS), itertools.cycle(style.MARKERS))
    return [
        (name, {"color": grey, "marker": marker, "markersize": 4, "linewidth": 1})
        for name, (grey, marker) in zip(labels, looks)
    ]


def _theirs(axes, rows, x, y, looks):
    """Others' numbers: a grey line per label."""
    factors = {name: column.factor for name, column in columns.of(f"{x} {y}").items()}
    for name, look in looks:
        line = rows[(rows["label"] == name) & rows[x].notna() & rows[y].notna()]
        axes.plot(line[x] * factors[x], line[y] * factors[y], **look)


def _ends(axes, rows, x, y, end, hollow):
    """The words of the column `end` at the last mark of each line, unless other words stand there."""
    names = ["backend", "option", *([hollow] if hollow else [])]
    last = rows.drop_duplicates(names, keep="last")
    factors = {name: column.factor for name, column in columns.of(f"{x} {y}").items()}
    place, taken = axes.transScale + axes.transLimits, []
    for _, row in last.sort_values(x, ascending=False).iterrows():
        mark = row[x] * factors[x], row[y] * factors[y]
        where = place.transform(mark)
        if all(abs(where - other)[0] > 0.09 or abs(where - other)[1] > 0.045 for other in taken):
            axes.annotate(row[end], mark, (6, 0), **BESIDE | {"color": GREY})
        taken.append(where)


def points(rows: pd.DataFrame, x: str, y: str, hue: str = "backend", title: str = "") -> Figure:
    """Draw a dot per row of `rows` at the columns `x` and `y`, coloured by `hue`, in the units that readers
    see; ValueError that lists the columns for a name that is none of them."""
    for name in (x, y, hue):
        naming.choose("column", name, list(rows))
    across, upwards = columns.of(x)[x], columns.of(y)[y]
    rows = rows.dropna(subset=[x, y])
    with style.style():
        if rows.empty:
            return style.nothing()
        drawn = style.Figure(figsize=(style.WIDTH, 4.2), layout="constrained")
        panel = drawn.subplots()
        for value, own in rows.groupby(hue, sort=True):
            colour, _, marker = style.look(str(value))
            panel.plot(
                columns.shown(own, x)[across.head], columns.shown(own, y)[upwards.head],
                marker, color=colour, markersize=6, linestyle="", label=str(value),
            )  # fmt: skip
        panel.set(xlabel=across.axis, ylabel=upwards.axis)
        panel.legend(frameon=False)
        return style.titled(drawn, f"{upwards.title} and {across.title}", title)


@style.styled
def run(requests: pd.DataFrame) -> Figure | None:
    """Draw one run for the notebook that measured it: output tokens/s and TTFT of each request."""
    drawn = style.Figure(figsize=(style.WIDTH, 3.6), layout="constrained")
    panels = drawn.subplots(2, 1, sharex=True)
    for panel, name in zip(panels, ("output_tokens_per_s", "ttft_s")):
        _dots(panel, requests, name)
    drawn.align_ylabels(panels)
    panels[1].set_xlabel("request")
    panels[1].xaxis.set_major_locator(ticker.MaxNLocator(9, integer=True))
    row, failed = naming.named(requests).iloc[0], int((requests["error"] != "").sum())
    caption = f"{setting(row[schema.SETTING])}. Line: median." + (f" {failed} failed." if failed else "")
    return style.titled(drawn, naming.label(row), caption)


def _dots(axes: Axes, requests: pd.DataFrame, name: str) -> None:
    """Draw a dot per request and the line of their median."""
    values = columns.values(requests, name)
    axes.plot(requests["request"], values, "o", color=style.colour(requests), markersize=7)
    axes.axhline(values.median(), color=style.FAINT, linewidth=1.2, zorder=1)
    axes.set(ylim=(0, (np.nan_to_num(values.max()) or 1) * 1.25), ylabel=columns.column(name).axis)
    if values.isna().all():
        axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", color=style.GREY)
    ticks(axes.yaxis, 3)
    axes.grid(False, axis="x")


@style.styled
def peaks(measured: pd.DataFrame) -> Figure:
    """Draw the peaks of a machine (columns roof, threads, value, unit) for the notebook that measured them: a
    bar per peak and number of threads, a panel per unit, a dot per measurement."""
    keys = ["unit", "roof", "threads"]
    best = measured.groupby(keys, as_index=False, sort=False, dropna=False)["value"].max()
    blocks = [block.reset_index(drop=True) for _, block in best.groupby("unit", sort=False)]
    drawn, axes = canvas([len(block) for block in blocks], squeeze=False)
    look = {"": (style.look("peaks").colour, "")}
    for panel, block in zip(axes[:, 0], blocks):
        labels = []
        for roof, threads in zip(block["roof"].str.replace("_", " "), block["threads"]):
            several = "" if threads == 1 else "s"
            labels.append(roof if pd.isna(threads) else f"{roof} · {threads:.0f} thread{several}")
        factor, prefix = next((f, p) for f, p in PREFIXES if block["value"].max() * f >= 1 or f == 1)
        rows_of(panel, labels, prefix + block["unit"].iloc[0].replace("bytes", "B"))
        draw_bars(panel, block.assign(backend=""), "value", look, factor=factor)
        each = block.reset_index()[["index", *keys]].merge(measured, on=keys)
        small_dots(panel, each["value"] * factor, each["index"])
    caption = "Bar: the best measurement, which no engine can beat; dot: one measurement."
    return style.titled(drawn, "Measured peaks", caption)


# --- bars ------------------------------------------------------------------------------------------


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


def rows_of(axes: Axes, labels: list[str], unit: str = "") -> None:
    """Prepare `axes` for one row per label, the first on top; a label stands before its bar."""
    look: dict[str, Any] = {"va": "center_baseline", "ha": "right"}
    for y, name in enumerate(labels):
        # Set off by an offset: a browser drops the spaces at a label's end.
        at, offset = axes.get_yaxis_transform(), (-6, 0)
        axes.annotate(name, (0, y), offset, xycoords=at, textcoords="offset points", **look)
    axes.set(ylim=(len(labels) - 0.4, -0.6), yticks=[], xlabel=unit)
    axes.grid(False, axis="y")


def draw_bars(
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
        axes.annotate(html.number(value) or "not measured", (end, y), (4, 0), **BESIDE)
    axes.set_xlim(0, (max(ends) or 1) * 1.2)
    ticks(axes.xaxis, 4)


def ticks(axis: Axis, most: int) -> None:
    """At most `most` intervals between round numbers, written as in the tables."""
    axis.set_major_locator(ticker.MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: html.number(value)))


def small_dots(axes: Axes, x: pd.Series, y: pd.Series) -> None:
    """Draw one dot per measurement at (x, y), over the bars."""
    axes.scatter(x, y, s=12, color="white", edgecolor=INK, linewidth=0.9, zorder=6)


# --- curves ----------------------------------------------------------------------------------------


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
    return [(setting(key) if len(groups) > 1 else "", rows) for key, rows in groups]


def canvas_of_panels(
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
    ncols = 2
    lines = -(-len(handles) // ncols)
    key = min(0.25 * lines, TALLEST / 2)
    columns = 1 if count * LOWEST + key + extra <= TALLEST or count == 1 else 2
    rows = -(-count // columns)
    each = min(height, (TALLEST - key - extra) / rows)
    layout = ConstrainedLayoutEngine(h_pad=0.05, w_pad=0.06)
    drawn = style.Figure(figsize=(WIDTH, rows * each + key + extra), layout=layout)
    grid = drawn.add_gridspec(rows + 1, columns, height_ratios=[each] * rows + [key])
    shown = [drawn.add_subplot(grid[k // columns, k % columns]) for k in range(count)]
    axes = drawn.add_subplot(grid[rows, :])
    # One legend for all panels in axes of its own.
    # It begins at the figure's edge, not at the axis: two columns of names need the whole width.
    at = blended_transform_factory(drawn.transFigure, axes.transAxes)
    key_of_lines = axes.legend(
        handles=handles, loc="upper left", ncols=ncols, frameon=False, borderpad=0, borderaxespad=0,
        columnspacing=0.8, labelspacing=0.3, handlelength=1.6, handletextpad=0.5, bbox_to_anchor=(0.01, 1),
        bbox_transform=at,
    )  # fmt: skip
    key_of_lines.set_in_layout(False)
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
    style.plain_logs(axes)
    for axis, (low, high) in style.log_axes(axes):
        if high / low < 6:
            axis.set_major_locator(ticker.LogLocator(subs=(1, 1.5, 2, 3, 4, 6, 8)))


def setting(key: Sequence[str]) -> str:
    """`model (synthetic weights) on gpu` for one (gpu, model, weights)."""
    gpu, model, weights = key
    return f"{model} ({weights} weights) on {gpu}"
