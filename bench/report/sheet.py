"""A figure of several machines: one part each, above one another, that of the machine in front on top.

A figure's function draws one machine. `of_machines` calls it for each one; what it draws on is then a part of
the whole sheet, and its title names the machine. With one machine there is nothing around what it draws.
"""

import contextlib
import contextvars
import functools
from dataclasses import dataclass, replace

from bench.analysis import machines
from bench.report import style


@dataclass(frozen=True)
class Part:
    """What is drawn now of several machines: the label of its machine, whether it is the first, the words
    about machines without a part, and the SubFigure, None for a figure of its own."""

    label: str = ""
    first: bool = True
    missing: str = ""
    slot: object = None


_PART = contextvars.ContextVar("part", default=Part())


def part():
    """The Part that is drawn now."""
    return _PART.get()


def new(width, height, **more):
    """An empty figure of so many inches: a Figure, or the place of this part on its sheet."""
    return part().slot or style.Figure(figsize=(width, height), layout="constrained", **more)


@contextlib.contextmanager
def _drawing(which):
    token = _PART.set(which)
    try:
        yield
    finally:
        _PART.reset(token)


def of_machines(draw):
    """Decorator: `draw` (rows of one machine in, a Figure or None out) for rows of any number of machines;
    its attribute `parts` gives the same as a figure for each machine."""

    @functools.wraps(draw)
    def drawn(rows):
        with style.style():
            parts = _parts(draw, rows)
            shown = [(which, own, figure) for which, own, figure in parts if figure]
            if len(parts) < 2 or not shown:
                return (shown[0][2] if shown else None) or style.nothing()
            return _sheet(draw, shown)

    def each(rows):
        """[(label, Figure)] of every machine that has measured what is drawn; a label is empty where there is
        one machine only."""
        with style.style():
            found = [(which.label, figure) for which, _, figure in _parts(draw, rows) if figure]
            return found or [("", style.nothing())]

    drawn.parts = each
    return drawn


def _parts(draw, rows):
    """[(Part, its rows, Figure or None)] of every machine in `rows`; the last one that has a figure says who
    has none."""
    every = machines.labelled(rows, strict="run_id" in rows)
    if len(every) < 2:
        return [(Part(), rows, None if rows.empty and "run_id" in rows else draw(rows))]
    parts, known = [], []
    for label, own in every:
        which = Part(label, first=not known)
        parts.append((which, own, _try(draw, which, own)))
        known += [len(parts) - 1] if parts[-1][2] else []
    missing = [which.label for which, _, figure in parts if figure is None]
    if known and missing:
        which, own, _ = parts[known[-1]]
        which = replace(which, missing=f"Not measured on {', '.join(missing)}.")
        parts[known[-1]] = which, own, _try(draw, which, own)
    return parts


def _try(draw, which, rows):
    with _drawing(which):
        return draw(rows)


def _sheet(draw, shown):
    """One figure with the parts `shown` above one another, each as tall as it is alone."""
    heights = [figure.get_figheight() for *_, figure in shown]
    sheet = style.Figure(figsize=(style.WIDTH, sum(heights)), layout="constrained")
    slots = sheet.subfigures(len(shown), 1, squeeze=False, height_ratios=heights)[:, 0]
    for slot, (which, rows, _) in zip(slots, shown):
        _try(draw, replace(which, slot=slot), rows)
    return sheet
