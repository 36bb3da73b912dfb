"""A figure of several machines: a part of each, none taller than a screen.

A figure's function draws one machine. `of_machines` makes of it a figure of the default machine, whose
height no other machine changes, and a list of parts, of which a page unfolds one at a time: of the first
machines only, so that a page does not grow with them. The Explorer has them all.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pandas as pd
from matplotlib.figure import Figure

from bench import style
from bench.topics import machines

Draw = Callable[[pd.DataFrame], Figure | None]
MOST_MACHINES = 3  # machines of which a figure has a part


@dataclass(frozen=True)
class Part:
    """What is drawn now of several machines: the label of its machine, whether it is the first, and the words
    about the other machines."""

    label: str = ""
    first: bool = True
    others: str = ""


_PART: contextvars.ContextVar[Part] = contextvars.ContextVar("part", default=Part())


def part() -> Part:
    """The Part that is drawn now."""
    return _PART.get()


@contextlib.contextmanager
def _drawing(which: Part) -> Iterator[None]:
    token = _PART.set(which)
    try:
        yield
    finally:
        _PART.reset(token)


def of_machines(draw: Draw, prepare: Callable[[pd.DataFrame], pd.DataFrame] = lambda rows: rows) -> Draw:
    """Decorator: `draw` (rows of one machine in, a Figure or None out) for rows of any number of machines,
    which `prepare` may add to.

    It then draws the default machine, or the next one that has measured what is drawn; the attribute `parts`
    gives a list of (label, Figure), one for each of the first MOST_MACHINES machines that have measured it.
    """

    @functools.wraps(draw)
    def drawn(rows: pd.DataFrame) -> Figure:
        with style.style():
            several = _several(prepare(rows))
            for place, (label, own) in enumerate(several, start=1):
                figure = _try(draw, Part(label), own)
                if figure is None:
                    continue
                drawable = [
                    rest for rest in several[place:] if _try(draw, Part(rest[0], first=False), rest[1])
                ]
                again = Part(label, others=_others(len(drawable)))
                return (_try(draw, again, own) if drawable else None) or figure
            return style.nothing()

    def each(rows: pd.DataFrame) -> list[tuple[str, Figure]]:
        """A label is empty where there is one machine only; the last part says who has none."""
        with style.style():
            shown: list[tuple[Part, pd.DataFrame, Figure]] = []
            missing: list[str] = []
            for label, own in _several(prepare(rows)):
                if len(shown) == MOST_MACHINES:
                    break
                which = Part(label, first=not shown)
                figure = _try(draw, which, own)
                shown += [(which, own, figure)] if figure else []
                missing += [] if figure else [label]
            if shown and missing:
                which, own, figure = shown[-1]
                which = replace(which, others=f"Not measured on {', '.join(missing)}.")
                shown[-1] = which, own, _try(draw, which, own) or figure
            return [(which.label, figure) for which, _, figure in shown] or [("", style.nothing())]

    setattr(drawn, "parts", each)
    return drawn


def _several(rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """[(label, rows)] of every machine in `rows`; one without a label where there are not several."""
    every = machines.labelled(rows, strict="run_id" in rows)
    if len(every) < 2:
        return [] if rows.empty and "run_id" in rows else [("", rows)]
    return every


def _others(count: int) -> str:
    """How many other machines have a figure that is left out."""
    if not count:
        return ""
    return f"{count} other machine{'s' if count > 1 else ''}: the same figure with -p front and its name."


def _try(draw: Draw, which: Part, rows: pd.DataFrame) -> Figure | None:
    with _drawing(which):
        return draw(rows)
