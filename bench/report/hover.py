"""A layer over a figure's picture that says on hover which point this is: the name and values of each mark.

It reads a drawn figure, so that no figure has to know of it: a mark is named by its artist's label, by the
row that it stands in, or by the legend's entry of its colour and shape; its values carry the axes' own words.
"""

import html
import os

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.markers import MarkerStyle
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation

from bench.html import number

POINTS = 72  # per inch: the unit of an SVG of Matplotlib
CAPS = {"|", "_", "None", "", " ", None}  # ends of whiskers, and no marks
REACH = 6.0  # smallest radius that a pointer finds, points


def layer(figure: Figure) -> str:
    """The marks of `figure`, which has been drawn, as an SVG without a picture: a <title> for each."""
    width, height = figure.get_size_inches() * POINTS
    marks = (mark for axes in figure.axes if axes.axison for mark in _marks(axes))
    found = [_shape(kind, box, words, height) for kind, box, words in marks]
    if not found:
        return ""
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" preserveAspectRatio="none" aria-hidden="true">'
        f"{''.join(found)}</svg>"
    )


def titles(figure: Figure) -> list[str]:
    """The words of every mark of `figure`, which has been drawn."""
    return [words for axes in figure.axes if axes.axison for _, _, words in _marks(axes)]


def _shape(kind: str, box: tuple[float, ...], words: str, height: float) -> str:
    """One mark as an element of SVG, whose y runs downwards."""
    title = f"<title>{html.escape(words)}</title>"
    if kind == "circle":
        x, y, r = box
        radius = "" if r == REACH else f' r="{r:.0f}"'  # the style sheet has the usual one
        return f'<circle cx="{x:.0f}" cy="{height - y:.0f}"{radius}>{title}</circle>'
    x, y, wide, tall = box
    place = f'x="{x:.1f}" y="{height - y - tall:.1f}" width="{wide:.1f}" height="{tall:.1f}"'
    return f"<rect {place}>{title}</rect>"


def _marks(axes):
    """(kind, box in points from the figure's lower left corner, words) of every mark of `axes`."""
    scale, legend = POINTS / axes.figure.dpi, _legend(axes.figure)
    for patch in axes.patches:
        # Bars, without what is drawn over the whole panel.
        if isinstance(patch, Rectangle) and patch.get_transform().contains_branch(axes.transData):
            (x0, y0), (x1, y1) = patch.get_window_extent().get_points() * scale
            value = patch.get_x() + patch.get_width(), patch.get_y() + patch.get_height() / 2
            if patch.get_width():
                yield "rect", (x0, y0, x1 - x0, y1 - y0), _words(axes, *value, _label(patch))
    for line in axes.lines:
        if line.get_marker() not in CAPS and line.get_transform().contains_branch(axes.transData):
            words = _label(line) or _named(legend, line.get_color(), line.get_marker())
            radius = line.get_markersize() / 2
            yield from _circles(axes, line.get_xydata(), words, radius, scale)
    for dots in axes.collections:
        if hasattr(dots, "get_sizes") and len(dots.get_offsets()) and len(dots.get_paths()) == 1:
            colours = dots.get_facecolor() if len(dots.get_facecolor()) else dots.get_edgecolor()
            words = _label(dots) or _named(legend, colours[0] if len(colours) else "k", dots.get_paths()[0])
            radius = np.sqrt(max(dots.get_sizes(), default=0)) / 2
            yield from _circles(axes, dots.get_offsets(), words, radius, scale)


def _circles(axes, places, words, radius, scale):
    """A circle for each of `places` (x, y) in data that is inside the axes."""
    inside = axes.bbox.padded(2)
    for x, y in np.ma.filled(np.ma.asarray(places, dtype=float), np.nan):
        at = axes.transData.transform((x, y))
        if np.isfinite(at).all() and inside.contains(*at):
            yield "circle", (*(at * scale), max(radius + 1, REACH)), _words(axes, x, y, words)


def _label(artist):
    """The artist's own label; Matplotlib's own ones begin with an underscore."""
    label = str(artist.get_label() or "")
    return "" if label.startswith("_") else label


def _path(marker):
    """The outline of a marker, whatever names it."""
    if hasattr(marker, "vertices"):
        return marker.vertices
    style = MarkerStyle(marker)
    return style.get_transform().transform_path(style.get_path()).vertices


def _legend(figure):
    """[(colour, outline, words)] of every entry with a marker in any legend of `figure`."""
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes if axes.get_legend())]
    return [
        (to_rgb(handle.get_color()), _path(handle.get_marker()), text.get_text())
        for legend in legends
        for handle, text in zip(legend.legend_handles, legend.get_texts())
        if hasattr(handle, "get_marker") and handle.get_marker() not in CAPS - {"|"}
    ]


def _named(legend, colour, marker):
    """The one entry of `legend` with this colour and marker, or with this marker in grey; else nothing."""
    outline, colour = _path(marker), to_rgb(colour[:3] if not isinstance(colour, str) else colour)
    same = [
        (entry, words)
        for entry, path, words in legend
        if path.shape == outline.shape and np.allclose(path, outline)
    ]
    exact = [words for entry, words in same if np.allclose(entry, colour)]
    if len(set(exact)) == 1:
        return exact[0]
    grey = {words for entry, words in same if np.ptp(entry) < 0.02}
    coloured = {words for entry, _, words in legend if np.allclose(entry, colour)}
    return ", ".join(words for found in (coloured, grey) if len(found) == 1 for words in found)


def _rows(axes):
    """[(y, label)] of a figure of rows: labels stand at the left edge, above their marks (`bars.rows`)."""
    for each in axes.get_shared_y_axes().get_siblings(axes):
        edge = each.get_yaxis_transform()
        noted = [t for t in each.texts if isinstance(t, Annotation) and t.xycoords == edge and t.xy[0] == 0]
        found = [(note.xy[1], note.get_text()) for note in noted if note.get_text()]
        if found and not len(each.get_yticks()):
            return found
    return []


def _words(axes, x, y, name):
    """What a mark is: its row or name, then its values with the axes' labels."""
    rows = _rows(axes)
    above = [(place, label) for place, label in rows if place <= y]
    parts = [max(above)[1]] if above else []
    parts += [name] if name else [] if above or not axes.get_title() else [axes.get_title()]
    return "\n".join(parts + _values(_axis(axes, "x"), x, "" if rows else _axis(axes, "y"), y))


def _values(of_x, x, of_y, y):
    """Lines for the values of a mark; one where the axes' labels begin alike (`TPOT, ms, measured`)."""
    same = os.path.commonprefix([of_x, of_y])
    if same.endswith(", "):
        return [f"{of_x}: {number(x)}, {of_y.removeprefix(same)}: {number(y)}"]
    return [f"{label}: {number(value)}" for label, value in ((of_x, x), (of_y, y)) if label]


def _axis(axes, which):
    """The label of an axis, from whichever panel that shares it has one, or from all that have one."""
    shared = getattr(axes, f"get_shared_{which}_axes")().get_siblings(axes)
    labels = [getattr(each, f"get_{which}label")() for each in (axes, *shared)]
    others = {getattr(each, f"get_{which}label")() for each in axes.figure.axes} - {""}
    title = axes.get_title() if which == "y" else ""
    return next(filter(None, labels), title or (others.pop() if len(others) == 1 else which))
