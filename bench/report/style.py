"""The look of every figure."""

import functools
import io
import textwrap

import matplotlib
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import figure as _figure
from matplotlib import ticker
from matplotlib.lines import Line2D

from bench import backends, naming
from bench.analysis import latency as latency_analysis
from bench.analysis import machines
from bench.observations import schema
from bench.report import html

WIDTH = 5.8  # inches; what is 11 points here is still 9 on a phone
ROW = 0.46  # inches per row: its label and its bar
LABEL, BAR, THICK = -0.22, 0.17, 0.36  # where in a row its label and its bar stand, and how thick the bar is
INK, GREY, FAINT = "0.15", "0.45", "0.72"
BESIDE = {"textcoords": "offset points", "va": "center_baseline"}
ABOVE = {"textcoords": "offset points", "va": "bottom"}
HATCHES = "", "///", "...", "xxx", "\\\\\\"
PREFIXES = (1e-12, "T"), (1e-9, "G"), (1e-6, "M"), (1, "")
# Text stays text in an SVG, and the same data give the same file.
STYLE = {
    "font.size": 11, "axes.titlesize": 11, "axes.labelsize": 11, "xtick.labelsize": 10, "ytick.labelsize": 10, "legend.fontsize": 10,
    "figure.titlesize": 13, "figure.titleweight": "bold", "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"],
    "axes.spines.left": False, "axes.spines.right": False, "axes.spines.top": False, "axes.edgecolor": FAINT, "grid.color": "0.92",
    "text.color": INK, "axes.labelcolor": INK, "xtick.color": GREY, "ytick.color": GREY, "axes.titlelocation": "left",
    "hatch.linewidth": 0.6, "figure.facecolor": "white", "savefig.facecolor": "white",
    "svg.fonttype": "none", "svg.hashsalt": "llm-inference-measured",
}  # fmt: skip


def style():
    """Context manager with the study's look: seaborn's white grid, sizes that a phone can show, text kept as text."""
    return matplotlib.rc_context(sns.axes_style("whitegrid") | STYLE)


class Figure(_figure.Figure):
    """A figure that shows itself in a notebook (SVG for pages, PNG for viewers without it) and keeps its style wherever it is saved."""

    def savefig(self, *arguments, **keywords):
        with style():
            return super().savefig(*arguments, **keywords)

    def _repr_svg_(self):
        out = io.StringIO()
        self.savefig(out, format="svg", metadata={"Date": None})
        return out.getvalue()

    def _repr_png_(self):
        out, width, height = io.BytesIO(), *(int(side * 96) for side in self.get_size_inches())
        self.savefig(out, format="png", dpi=192)
        return out.getvalue(), {"width": width, "height": height}


def styled(draw):
    """Decorator: draw within the style; no rows, or none that the figure needs (None), give a figure that says so."""

    @functools.wraps(draw)
    def drawn(rows):
        with style():
            return (None if rows.empty else draw(rows)) or _nothing()

    return drawn


def _nothing():
    drawn = Figure(figsize=(WIDTH, 1.2))
    drawn.text(0.5, 0.5, html.EMPTY, ha="center", va="center", color=GREY)
    return drawn


def looks(requests):
    """Backend -> (colour, hatch), by its place in the sorted list of all backends; after ten colours the hatch changes.

    A line has no hatch: of the measured ones, a backend whose colour another has already takes one that none has, as long as there is one.
    """
    every, measured = sorted({*backends.names(), *requests["backend"]}), sorted(set(requests["backend"]))
    colours = sns.color_palette("colorblind")
    look = {
        name: (colours[i % len(colours)], HATCHES[i // len(colours) % len(HATCHES)])
        for i, name in enumerate(every)
    }
    free = [colour for colour in colours if colour not in [look[name][0] for name in measured]]
    for k, name in enumerate(measured):
        if free and look[name][0] in [look[other][0] for other in measured[:k]]:
            look[name] = free.pop(0), ""
    return look


def canvas(rows, columns=1, extra=1.3, **shared):
    """Figure with one panel row per entry of `rows` (numbers of bars), each as tall as its bars need; axes as a 2-D array."""
    drawn = Figure(figsize=(WIDTH, ROW * sum(rows) + 0.75 * len(rows) + extra), layout="constrained")
    drawn.get_layout_engine().set(h_pad=0.06, w_pad=0.08)
    return drawn, drawn.subplots(
        len(rows), columns, squeeze=False, gridspec_kw={"height_ratios": [n + 0.4 for n in rows]}, **shared
    )


def words(drawn, title, caption):
    """Title on top and the small print below, both from the left edge."""
    drawn.suptitle(title, x=0.01, ha="left")
    drawn.supxlabel(
        "\n".join(textwrap.wrap(caption, 74)), x=0.01, ha="left", fontsize=10, color=GREY, linespacing=1.35
    )
    return drawn


def rows(axes, labels, unit=""):
    """Prepare `axes` for one row per label, the first on top; labels stand above their bars, at the left edge."""
    for y, name in enumerate(labels):
        axes.text(0, y + LABEL, name, transform=axes.get_yaxis_transform(), va="center", ha="left", zorder=5)
    axes.set(ylim=(len(labels) - 0.45, -0.55), yticks=[], xlabel=unit)
    axes.grid(False, axis="y")


def bars(axes, table, column, look, factor=1.0, spread=None, reach=0.0):
    """One bar per row of `table`, its value behind it: behind the whisker of half width `spread` and whatever else ends at `reach`."""
    values = (table[column] * factor).to_numpy(dtype=float)
    half = np.zeros(len(table)) if spread is None else spread.fillna(0).to_numpy() * factor
    ends = np.fmax(np.nan_to_num(values + half), reach)
    for y, (backend, value, margin, end) in enumerate(zip(table["backend"], values, half, ends)):
        colour, hatch = look[backend]
        axes.barh(
            y + BAR, np.nan_to_num(value), THICK, color=colour, hatch=hatch, edgecolor="white", linewidth=0
        )
        if margin:
            axes.errorbar(
                value, y + BAR, xerr=margin, color=INK, capsize=3, elinewidth=1.2, capthick=1.2, zorder=4
            )
        axes.annotate(html.number(value) or "not measured", (end, y + BAR), (5, 0), **BESIDE)
    axes.set_xlim(0, (max(ends) or 1) * 1.2)
    ticks(axes.xaxis, 4)


def ticks(axis, most):
    """At most `most` intervals between round numbers, written as in the tables."""
    axis.set_major_locator(ticker.MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: html.number(value)))


def _spell(values):
    """Distinct `values` as words, few of them: `1`, `1 to 3`."""
    low, high = min(values), max(values)
    return html.number(low) if low == high else f"{html.number(low)} to {html.number(high)}"


def plural(values, word):
    return f"{_spell(values)} {word}" + ("" if max(values) == min(values) == 1 else "s")


def setting(key):
    """`model (synthetic weights) on gpu` for one (gpu, model, weights)."""
    gpu, model, weights = key
    return f"{model} ({weights} weights) on {gpu}"


def caption(requests, *more):
    """The small print: what ran where and how often, then what the marks mean."""
    settings = latency_analysis.settings(requests)
    where = f"{setting(settings[0][0])}: batch" if len(settings) == 1 else "Batch"
    counts = latency_analysis.runs(requests).groupby(schema.CONFIGURATION).size()
    good = requests[requests["error"] == ""]
    words = f"{where} {_spell(good['batch_size'])}, {_spell(good['max_new_tokens'])} output tokens, {plural(good['threads'], 'thread')}"
    return " ".join([f"{words}, {plural(counts, 'run')} each.", *more])


def blocks(requests, experiment="latency"):
    """(requests of the machine in focus, [(title, requests, summary)]), one block per setting; the title is empty if there is one only."""
    chosen = machines.here(requests, experiment)
    settings = latency_analysis.settings(chosen)
    return chosen, [
        (setting(key) if len(settings) > 1 else "", rows, latency_analysis.summary(rows))
        for key, rows in settings
    ]


def configurations(summary):
    failures = summary.get("failed", pd.Series(0, summary.index))
    return [
        naming.label(row) + (f" · {n} requests failed" if n else "")
        for (_, row), n in zip(summary.iterrows(), failures)
    ]


def small_dots(axes, x, y):
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


def turn_inwards(axes, beyond=0.86):
    """Values of bars that end near the right edge move into the bar."""
    for note in axes.texts:
        if isinstance(note, matplotlib.text.Annotation) and note.xy[0] > beyond:
            note.set(ha="right", x=-5)
