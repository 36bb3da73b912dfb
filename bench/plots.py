"""What pages draw: bars of a table's rows, and curves through them; dots, for a reader's own two columns.

    plots.bars(rows, "output_tokens_per_s", title="Output speed")         a bar per row, its label before it
    plots.curve(rows, "concurrency", "output_tokens_per_s", title="…")    a line per engine and option
    plots.points(rows, "ttft_s", "output_tokens_per_s", "backend")        a dot per row

All take rows of a table as they stand in data/tables/ and return a Matplotlib figure. A column
`<name>_interval` (half the width of a 95 % interval) is drawn as a whisker, `<name>_runs` (values of single
runs) as dots.
"""

import itertools
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench import style
from bench.observations import schema
from bench.report import bars as parts
from bench.report import captions, curves
from llm_measured.core import columns, naming

CROSS = {"linestyle": "none", "marker": "x", "markersize": 7}
MOST_ROWS = 18  # of one figure: what a screen shows; the table has the others


def bars(
    rows: pd.DataFrame,
    *names: str,
    title: str,
    caption: str = "",
    note: str = "",
    warn: str = "",
    label: Sequence[str] = (),
) -> Figure:
    """Draw the columns `names` of `rows`, a panel each and a bar per row, in the order of the rows.

    `note` names a column of words that stand at the right of the last panel, in red where the column `warn`
    is true; `label` replaces engine and option before the bars.
    """
    with style.style():
        rows = rows.head(MOST_ROWS).reset_index(drop=True)
        if rows.empty:
            return style.nothing()
        drawn, panels = parts.canvas([len(rows)], columns=len(names), squeeze=False, sharey=True)
        look = style.looks(rows)
        for place, (panel, name) in enumerate(zip(panels[0], names)):
            column = columns.column(name)
            words = list(label) or parts.configurations(rows)
            parts.rows(panel, words if place == 0 else [""] * len(rows), column.axis)
            spread, reach = rows.get(f"{name}_interval"), 0.0
            runs = rows.get(f"{name}_runs")
            if runs is not None:
                runs = runs.astype(str)  # a table of one run each has a number there
                reach = np.array([max(map(float, text.split()), default=0) for text in runs]) * column.factor
            if f"{name}_low" in rows:
                reach = rows[f"{name}_high"].to_numpy(dtype=float) * column.factor
            parts.draw(panel, rows, name, look, factor=column.factor, spread=spread, reach=reach)
            if f"{name}_low" in rows:
                _whiskers(panel, rows, name, column.factor)
            if runs is not None:
                for y, text in enumerate(runs):
                    values = pd.Series([float(word) * column.factor for word in text.split()])
                    parts.small_dots(panel, values, pd.Series(float(y), values.index))
        if note:
            _notes(panels[0][-1], rows[note], rows[warn] if warn else None)
        return style.titled(drawn, title, caption)


def _whiskers(panel, rows, name, factor):
    """Draw the 95 % interval from <name>_low to <name>_high over the bar of each row."""
    values = rows[name] * factor
    beside = [values - rows[f"{name}_low"] * factor, rows[f"{name}_high"] * factor - values]
    look = {"fmt": "none", "ecolor": style.INK, "capsize": 2, "elinewidth": 1, "zorder": 4}
    panel.errorbar(values, values.index, xerr=beside, **look)


def _notes(panel, words, warn):
    """Write `words` at the right edge of the rows of `panel`, in red where `warn` is true."""
    panel.set_xlim(0, panel.get_xlim()[1] * 1.75)
    for y, text in enumerate(words):
        bad = warn is not None and str(warn.iloc[y]) == "True"
        where = panel.get_yaxis_transform()
        colour = style.WORSE if bad else style.GREY
        panel.text(1, y, text, color=colour, transform=where, ha="right", va="center_baseline", fontsize=8)


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
        marks, apart = curves.styles(rows), [name for name in (hollow, cross) if name and rows[name].any()]
        looks = {hollow: curves.HOLLOW, cross: CROSS}
        theirs = _greys(beside)
        key = curves.plain_key(
            *((looks[name], name) for name in apart), *((look, name) for name, look in theirs)
        )
        groups = list(rows.groupby(panel, sort=True)) if panel else curves.sweep_blocks(rows)
        drawn, panels = curves.panels(len(groups), 3.8, marks, also=key)
        for axes, (name, own) in zip(panels, groups):
            if beside is not None:
                _theirs(axes, beside, x, y, theirs)
            for configuration, line in curves.each(own):
                for _, part in line.groupby(hollow) if hollow else [(False, line)]:
                    _line(axes, part, x, y, marks[configuration], hollow, cross)
            titles = columns.of(f"{x} {y}")
            axes.set(xlabel=titles[x].axis, ylabel=titles[y].axis, title=name)
            if log:
                curves.fine_logs(axes)
                low, high = axes.get_xlim()
                axes.set_xlim(low, high * 1.25)
            else:
                axes.set(xlim=(0, None), ylim=(0, None))
            if end:
                _ends(axes, own, x, y, end, hollow)
        if len(groups) == 1 or panel:
            caption = f"{captions.setting(rows.iloc[0][schema.SETTING])}. {caption}"
        return style.titled(drawn, title, caption)


def _line(axes, rows, x, y, mark, hollow, cross):
    """One line with the whiskers of its intervals; what is drawn apart is crosses, joined by dots."""
    look = curves.HOLLOW if hollow and rows[hollow].iloc[0] else {}
    factors = {name: column.factor for name, column in columns.of(f"{x} {y}").items()}
    apart = rows[cross].astype(bool) if cross else pd.Series(False, rows.index)
    curve_x, curve_y = rows.loc[~apart, x] * factors[x], rows.loc[~apart, y] * factors[y]
    curves.joined(axes, curve_x, curve_y, mark, **look)
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
    looks = zip(itertools.cycle(curves.GREYS), itertools.cycle(style.MARKERS))
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
            curves.note(axes, row[end], mark)
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
        panel.legend(frameon=False, fontsize=9)
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
    caption = f"{captions.setting(row[schema.SETTING])}. Line: median." + (
        f" {failed} failed." if failed else ""
    )
    return captions.titled(drawn, naming.label(row), caption)


def _dots(axes: Axes, requests: pd.DataFrame, name: str) -> None:
    """Draw a dot per request and the line of their median."""
    values = columns.values(requests, name)
    axes.plot(requests["request"], values, "o", color=style.colour(requests), markersize=7)
    axes.axhline(values.median(), color=style.FAINT, linewidth=1.2, zorder=1)
    axes.set(ylim=(0, (np.nan_to_num(values.max()) or 1) * 1.25), ylabel=columns.column(name).axis)
    if values.isna().all():
        axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", color=style.GREY)
    parts.ticks(axes.yaxis, 3)
    axes.grid(False, axis="x")
