"""The look of every figure."""

import contextlib
import hashlib
import io
import re
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib import figure as _figure
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

from bench import html

WIDTH = 5.3  # inches
TEXT = 13  # points, the smallest of a figure: on a phone of 390 pixels they are still 11
TALLEST = 6.2  # inches: less than 1,100 pixels where the width has 928
INK, GREY, FAINT = "0.15", "0.45", "0.72"
BESIDE: dict[str, Any] = {"textcoords": "offset points", "va": "center_baseline"}
ABOVE: dict[str, Any] = {"textcoords": "offset points", "va": "bottom"}
MARKERS = "o", "s", "^", "D", "v", "P", "*"
MANTISSAS = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)
MOST_TICKS, CLOSEST = 5, 0.15  # of a logarithmic axis; the least gap, as a share of the axis
PAIR, MANY = 38, 12  # of a legend: characters of two labels that fit beside each other; lines of one column
HUES, LIGHTNESSES = 12, (0.42, 0.56, 0.68)
# Of the first 60,000 salts the one with which the engines that were there lie farthest apart, also for eyes
# that see no green. Another salt recolours every figure.
SALT = 36660
# Text stays text in an SVG, and the same data give the same file.
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize", "legend.fontsize"), TEXT),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "figure.titlesize", "figure.labelsize"), TEXT),
    "figure.titleweight": "bold",
    "axes.titlelocation": "left",
    **dict.fromkeys(("axes.grid", "axes.axisbelow"), True),
    **dict.fromkeys(("xtick.bottom", "ytick.left"), False),
    "lines.solid_capstyle": "round",
    **dict.fromkeys(("axes.spines.left", "axes.spines.right", "axes.spines.top"), False),
    "axes.edgecolor": FAINT,
    "grid.color": "0.92",
    **dict.fromkeys(("text.color", "axes.labelcolor"), INK),
    **dict.fromkeys(("xtick.color", "ytick.color"), GREY),
    **dict.fromkeys(("figure.facecolor", "savefig.facecolor"), "white"),
    "svg.fonttype": "none",
    "svg.hashsalt": "llm-inference-measured",
}


def style() -> contextlib.AbstractContextManager:
    """Context manager with the study's look: a white grid, and sizes that a phone can show."""
    return matplotlib.rc_context(STYLE)


class Figure(_figure.Figure):
    """A figure that keeps its style wherever it is saved.

    A notebook shows it as SVG, and as PNG for viewers without it; a page as SVG alone.
    """

    def savefig(self, *arguments: Any, **keywords: Any) -> None:
        with style():
            return super().savefig(*arguments, **keywords)

    def _repr_svg_(self) -> str:
        out = io.StringIO()
        self.savefig(out, format="svg", metadata={"Date": None})
        return out.getvalue()

    def _repr_png_(self) -> tuple[bytes, dict[str, int]] | None:
        if html.is_page():
            return None
        out, width, height = io.BytesIO(), *(int(side * 96) for side in self.get_size_inches())
        self.savefig(out, format="png", dpi=192)
        return out.getvalue(), {"width": width, "height": height}


def figure(height: float) -> Figure:
    """Return an empty figure as wide as all others, `height` inches high."""
    return Figure(figsize=(WIDTH, height), layout=ConstrainedLayoutEngine(h_pad=0.05, w_pad=0.06))


def nothing() -> Figure:
    """The figure where there is nothing to draw."""
    drawn = Figure(figsize=(WIDTH, 1.2))
    drawn.text(0.5, 0.5, html.EMPTY, ha="center", va="center", color=GREY)
    return drawn


def titled(drawn: Figure, title: str, caption: str = "", key: Sequence[Line2D] = ()) -> Figure:
    """`drawn` with its title on top, the small print and the legend of the lines `key` below, all from the
    left edge."""
    drawn.suptitle(title, x=0.01, ha="left")
    small = "\n".join(wrapped(caption))
    if not key:
        drawn.supxlabel(small, x=0.01, ha="left", color=GREY, linespacing=1.25)
        return drawn
    across = -(-len(key) // key_rows(key))
    close: dict[str, Any] = {
        "borderpad": 0.1,
        "columnspacing": 0.8,
        "labelspacing": 0.3,
        "handlelength": 1.6,
        "handletextpad": 0.5,
    }
    legend = drawn.legend(
        handles=key, loc="outside lower left", ncols=across, title=small, frameon=False, **close
    )
    legend.set_alignment("left")
    legend.get_title().set(color=GREY, linespacing=1.25)
    return drawn


def key_rows(key: Sequence[Line2D]) -> int:
    """Return in how many rows the legend of `key` stands: in two columns where the labels of both fit beside
    each other, or where there are many."""
    half = -(-len(key) // 2)
    widest = [
        max((len(str(line.get_label())) for line in part), default=0) for part in (key[:half], key[half:])
    ]
    return half if sum(widest) <= PAIR or len(key) > MANY else len(key)


def wrapped(caption: str) -> list[str]:
    """The lines of a caption, none wider than a figure."""
    return textwrap.wrap(caption, 51, break_on_hyphens=False)


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


def log_axis(axes: Axes, letter: str, low: float | None = None, high: float | None = None) -> None:
    """Make the axis `letter` logarithmic, from `low` to `high` where they are given, with at most MOST_TICKS
    plain numbers that do not touch; one without a value above zero stays linear."""
    axis = axes.xaxis if letter == "x" else axes.yaxis
    if not np.isfinite(axis.get_minpos()):
        return
    axes.set(**{f"{letter}scale": "log"})
    if low is not None:
        axes.set(**{f"{letter}lim": (low, high)})
    low, high = axis.get_view_interval()
    for mantissas in MANTISSAS:
        ticks = [digit * 10.0**power for power in range(-4, 8) for digit in mantissas]
        ticks = [tick for tick in ticks if low <= tick <= high]
        gaps = np.diff(np.log(ticks)) / np.log(high / low)
        if len(ticks) <= MOST_TICKS and (gaps > CLOSEST).all():
            break
    axis.set_major_locator(ticker.FixedLocator(ticks))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: html.number(float(f"{value:.3g}"))))
    axis.set_minor_locator(ticker.NullLocator())


def ticks(axis: Axis, most: int) -> None:
    """At most `most` intervals between round numbers, written as in the tables."""
    axis.set_major_locator(ticker.MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: html.number(value)))


class Look(NamedTuple):
    """What an engine is drawn with: its colour, and the marker of its first option's line."""

    colour: tuple
    marker: str


def look(name: str) -> Look:
    """The Look of the engine `name`, which follows from its name alone: no other engine changes it.

    The hash of the name picks one of 36 colours (HUSL: 12 hues evenly apart, three lightnesses) and one of
    seven markers. Two names may share a colour; both they share once in 252.
    """
    import seaborn  # takes a second: only where an engine is drawn

    digest = hashlib.sha256(f"{SALT}:{name}".encode()).digest()
    lightness, hue = divmod(int.from_bytes(digest[:4], "big") % (len(LIGHTNESSES) * HUES), HUES)
    colour = seaborn.husl_palette(HUES, h=0.03, s=0.85, l=LIGHTNESSES[lightness])[hue]
    return Look(colour, MARKERS[digest[5] % len(MARKERS)])
