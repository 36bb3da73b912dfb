"""Figures: one function per figure, all requests in, a matplotlib Figure out; pages and `figure.ipynb` call
the same functions.

What a figure compares shares one panel: a device, a model and its kind of weights; another setting gets a
panel of its own. No figure is taller than a screen (`style.TALLEST`), however many engines and machines there
are: the default machine is drawn, of many rows the best, and the tables have the rest.
"""

import importlib
import io
import pkgutil
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from bench import registry, style
from bench.paths import FIGURES
from bench.report import per_machine
from llm_measured.core import files, naming

DRAWN = registry.FIGURES


def listed(draw: Callable) -> Callable:
    """Decorator: a styled figure that `names` lists and figure.ipynb can draw, from all requests at once."""
    DRAWN[draw.__name__] = style.styled(draw)
    return DRAWN[draw.__name__]


def of_machines(draw: Callable, prepare: Callable = lambda rows: rows) -> Callable:
    """Decorator: a listed figure whose function draws one machine; the first machines have a part each.

    `prepare` may add rows before they are parted by machine (`bench.report.shared.added`).
    """
    DRAWN[draw.__name__] = per_machine.of_machines(draw, prepare)
    return DRAWN[draw.__name__]


def drawn(name: str) -> Callable:
    """The figure `name`: all requests in, a Figure out. ValueError that lists what exists."""
    return DRAWN[naming.choose("figure", name, names())]


def parts(name: str, requests: pd.DataFrame) -> list[tuple[str, Figure]]:
    """[(label, Figure)] of figure `name`: one per machine that it shows, or one without a label."""
    draw = drawn(name)
    return draw.parts(requests) if hasattr(draw, "parts") else [("", draw(requests))]


def names() -> list[str]:
    """Names of the figures that are drawn from all requests."""
    return list(DRAWN)


def export(figure: Figure, name: str, command: str, folder: Path | None = None) -> tuple[Path, Path]:
    """Write `figure` to <folder>/<name>.svg and .png (default folder: figures/), each whole or not at all;
    returns both paths.

    The command that redraws it is in the files' metadata; the same data give the same bytes.
    """
    folder = Path(folder or FIGURES)
    files.write_whole(folder / f"{name}.svg", svg(figure, name, command))
    metadata = {"Title": name, "Description": command}
    files.write_whole(folder / f"{name}.png", _saved(figure, format="png", metadata=metadata, dpi=160))
    return folder / f"{name}.svg", folder / f"{name}.png"


def svg(figure: Figure, name: str, command: str) -> str:
    """The text of the SVG file of `figure`, with the command that redraws it."""
    metadata = {"Title": name, "Description": command, "Date": None}
    drawn = _saved(figure, format="svg", metadata=metadata).decode()
    # Ids of clips and marks are counted instead of hashed: Matplotlib hashes places with all their digits, of
    # which the last differ between processors.
    ids = dict.fromkeys(re.findall(r'id="([a-z][0-9a-f]{10})"', drawn))
    numbers = {found: f"{found[0]}{k}" for k, found in enumerate(ids)}
    drawn = re.sub(r"\b[a-z][0-9a-f]{10}\b", lambda found: numbers.get(found[0], found[0]), drawn)
    # Places to a thousandth of a point: the millionths that Matplotlib writes differ where two processors
    # round differently. What a reader reads stands between the tags and stays.
    return re.sub("<[^>]*>", lambda tag: re.sub(r"-?\d+\.\d{4,}", _thousandths, tag[0]), drawn)


def _saved(figure, **options):
    """The bytes that `figure.savefig` writes."""
    out = io.BytesIO()
    figure.savefig(out, **options)
    return out.getvalue()


def _thousandths(found):
    return f"{float(found[0]):.3f}".rstrip("0").rstrip(".")


# A topic is a file of this folder or of `bench.report.published`; its figures join when it is imported.
for _topic in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_topic.name}")
importlib.import_module("bench.report.published.figures")
