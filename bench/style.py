"""The look of every figure."""

import contextlib
import functools
import hashlib
import io
import re
import textwrap
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import matplotlib
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import figure as _figure
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.axis import Axis

from bench import html

WIDTH = 5.3  # inches
TEXT = 13  # points, the smallest of a figure: on a phone of 390 pixels they are still 11
TALLEST = 6.2  # inches: less than 1,100 pixels where the width has 928
INK, GREY, FAINT = "0.15", "0.45", "0.72"
BESIDE: dict[str, Any] = {"textcoords": "offset points", "va": "center_baseline"}
ABOVE: dict[str, Any] = {"textcoords": "offset points", "va": "bottom"}
# What keeps a label readable over marks. (A stroke around its letters would make them paths in an SVG.)
OVER_MARKS = {"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.5}
HATCHES = "", "///", "||", "xxx", "\\\\\\"
MARKERS = "o", "s", "^", "D", "v", "P", "*"
HUES, LIGHTNESSES = 12, (0.42, 0.56, 0.68)
# Of the first 60,000 salts the one with which the engines that were there lie farthest apart, also for eyes
# that see no green. Another salt recolours every figure.
SALT = 36660
# Text stays text in an SVG, and the same data give the same file.
STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize", "legend.fontsize"), TEXT),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "figure.titlesize", "figure.labelsize"), TEXT),
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


def style() -> contextlib.AbstractContextManager:
    """Context manager with the study's look: seaborn's white grid, and sizes that a phone can show."""
    return matplotlib.rc_context(sns.axes_style("whitegrid") | STYLE)


class Figure(_figure.Figure):
    """A figure that keeps its style wherever it is saved.

    A notebook shows it as SVG for pages and as PNG for viewers without it.
    """

    def savefig(self, *arguments: Any, **keywords: Any) -> None:
        with style():
            return super().savefig(*arguments, **keywords)

    def _repr_svg_(self) -> str:
        out = io.StringIO()
        self.savefig(out, format="svg", metadata={"Date": None})
        return out.getvalue()

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        out, width, height = io.BytesIO(), *(int(side * 96) for side in self.get_size_inches())
        self.savefig(out, format="png", dpi=192)
        return out.getvalue(), {"width": width, "height": height}


def styled(draw: Callable[[pd.DataFrame], _figure.Figure | None]) -> Callable[[pd.DataFrame], _figure.Figure]:
    """Decorator: `draw` within the style; a figure without content where there are no rows, or where `draw`
    returns None because it needs others."""

    @functools.wraps(draw)
    def drawn(rows: pd.DataFrame) -> _figure.Figure:
        with style():
            return (None if rows.empty else draw(rows)) or nothing()

    return drawn


def nothing() -> Figure:
    """The figure where there is nothing to draw."""
    drawn = Figure(figsize=(WIDTH, 1.2))
    drawn.text(0.5, 0.5, html.EMPTY, ha="center", va="center", color=GREY)
    return drawn


Drawn = TypeVar("Drawn", bound=_figure.FigureBase)


def titled(drawn: Drawn, title: str, caption: str) -> Drawn:
    """`drawn` with its title on top and the small print below, both from the left edge."""
    drawn.suptitle(title, x=0.01, ha="left")
    drawn.supxlabel("\n".join(textwrap.wrap(caption, 51)), x=0.01, ha="left", color=GREY, linespacing=1.25)
    return drawn


def svg(figure: _figure.Figure, name: str, command: str) -> str:
    """Return the text of the SVG file of `figure`, with the command that redraws it in its metadata."""
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Title": name, "Description": command, "Date": None})
    drawn = out.getvalue()
    # Ids of clips and marks are counted instead of hashed: Matplotlib hashes places with all their digits, of
    # which the last differ between processors.
    ids = dict.fromkeys(re.findall(r'id="([a-z][0-9a-f]{10})"', drawn))
    numbers = {found: f"{found[0]}{k}" for k, found in enumerate(ids)}
    drawn = re.sub(r"\b[a-z][0-9a-f]{10}\b", lambda found: numbers.get(found[0], found[0]), drawn)
    # Places to a thousandth of a point: the millionths that Matplotlib writes differ where two processors
    # round differently. What a reader reads stands between the tags and stays.
    return re.sub("<[^>]*>", lambda tag: re.sub(r"-?\d+\.\d{4,}", _thousandths, tag[0]), drawn)


def _thousandths(found: re.Match) -> str:
    return f"{float(found[0]):.3f}".rstrip("0").rstrip(".")


def log_axes(axes: Axes) -> list[tuple[Axis, tuple[float, float]]]:
    """Set both axes to log scales, but for one without a value above zero, which cannot be drawn so; returns
    [(axis, its limits)] of those set."""
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        # Set once: it brings the scale's own ticks back, and their 6 × 10¹ instead of 60.
        if np.isfinite(axis.get_minpos()) and axis.get_scale() != "log":
            axes.set(**{f"{name}scale": "log"})
    return [(a, a.get_view_interval()) for a in (axes.xaxis, axes.yaxis) if a.get_scale() == "log"]


def plain_logs(axes: Axes) -> None:
    """Two log axes with plain numbers at 1, 2 and 5 of each power of ten, fewer where there is much to
    span."""
    for axis, (low, high) in log_axes(axes):
        axis.set_major_locator(
            ticker.LogLocator(subs=(1, 2, 5) if high / low < 30 else (1, 3) if high / low < 1000 else (1,))
        )
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: html.number(value)))
        axis.set_minor_locator(ticker.NullLocator())


class Look(NamedTuple):
    """What an engine is drawn with: colour, hatch of its bars, marker of its first option's line."""

    colour: tuple
    hatch: str
    marker: str


@functools.cache
def look(name: str) -> Look:
    """The Look of the engine `name`, which follows from its name alone: no other engine changes it.

    The hash of the name picks one of 36 colours (HUSL: 12 hues evenly apart, three lightnesses), one of five
    hatches and one of seven markers. Two names may share a colour; all three they share once in 1,260.
    """
    digest = hashlib.sha256(f"{SALT}:{name}".encode()).digest()
    lightness, hue = divmod(int.from_bytes(digest[:4], "big") % (len(LIGHTNESSES) * HUES), HUES)
    colour = sns.husl_palette(HUES, h=0.03, s=0.85, l=LIGHTNESSES[lightness])[hue]
    return Look(colour, HATCHES[digest[4] % len(HATCHES)], MARKERS[digest[5] % len(MARKERS)])


def looks(requests: pd.DataFrame) -> dict[str, tuple]:
    """{backend: (colour, hatch)} of every engine in `requests`."""
    return {name: look(name)[:2] for name in sorted(set(requests["backend"]))}


def colour(requests: pd.DataFrame) -> tuple:
    """Colour of the engine of one run."""
    return look(requests["backend"].iloc[0]).colour
