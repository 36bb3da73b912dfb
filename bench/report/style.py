"""The look of every figure."""

import functools
import io

import matplotlib
import seaborn as sns
from matplotlib import figure as _figure

from bench import backends
from bench.report import html

WIDTH = 5.8  # inches; what is 11 points here is still 9 on a phone
INK, GREY, FAINT = "0.15", "0.45", "0.72"
BESIDE = {"textcoords": "offset points", "va": "center_baseline"}
ABOVE = {"textcoords": "offset points", "va": "bottom"}
HATCHES = "", "///", "...", "xxx", "\\\\\\"
# Text stays text in an SVG, and the same data give the same file.
STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 11,
    "axes.titlesize": 11,
    "axes.labelsize": 11,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "legend.fontsize": 10,
    "figure.titlesize": 13,
    "figure.titleweight": "bold",
    "axes.titlelocation": "left",
    **dict.fromkeys(("axes.spines.left", "axes.spines.right", "axes.spines.top"), False),
    "axes.edgecolor": FAINT,
    "grid.color": "0.92",
    **dict.fromkeys(("text.color", "axes.labelcolor"), INK),
    **dict.fromkeys(("xtick.color", "ytick.color"), GREY),
    **dict.fromkeys(("figure.facecolor", "savefig.facecolor"), "white"),
    "hatch.linewidth": 0.6,
    "svg.fonttype": "none",
    "svg.hashsalt": "llm-inference-measured",
}


def style():
    """Context manager with the study's look: seaborn's white grid, and sizes that a phone can show."""
    return matplotlib.rc_context(sns.axes_style("whitegrid") | STYLE)


class Figure(_figure.Figure):
    """A figure that keeps its style wherever it is saved.

    A notebook shows it as SVG for pages and as PNG for viewers without it.
    """

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
    """Decorator: `draw` within the style; a figure without content where there are no rows, or where `draw`
    returns None because it needs others."""

    @functools.wraps(draw)
    def drawn(rows):
        with style():
            return (None if rows.empty else draw(rows)) or _nothing()

    return drawn


def _nothing():
    """The figure where there is nothing to draw."""
    drawn = Figure(figsize=(WIDTH, 1.2))
    drawn.text(0.5, 0.5, html.EMPTY, ha="center", va="center", color=GREY)
    return drawn


def looks(requests):
    """{backend: (colour, hatch)}, by the backend's place in the sorted list of all backends.

    After ten colours the hatch changes. A line has no hatch, so a measured backend whose colour another
    measured one has takes a colour that none has, as long as there is one.
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


def colour(requests):
    """Colour of the engine of one run."""
    return looks(requests)[requests["backend"].iloc[0]][0]
