"""Figures: one function per figure, all requests in, a matplotlib Figure out; pages and `figure.ipynb` call
the same functions.

A figure is drawn for a page as narrow as a phone's: a row's label stands above its bar, inside the axes, so
that the bar has the whole width. What a figure compares shares one panel: a device, a model and its kind of
weights; another setting gets a panel of its own.
"""

import importlib
import os
import pkgutil
import tempfile
from pathlib import Path

from bench.paths import FIGURES
from bench.report import sheet, style

DRAWN = {}


def listed(draw):
    """Decorator: a styled figure that `names` lists and figure.ipynb can draw, from all requests at once."""
    DRAWN[draw.__name__] = style.styled(draw)
    return DRAWN[draw.__name__]


def of_machines(draw):
    """Decorator: a listed figure whose function draws one machine; every machine has a part of it."""
    DRAWN[draw.__name__] = sheet.of_machines(draw)
    return DRAWN[draw.__name__]


def parts(name, requests):
    """[(label, Figure)] of figure `name`: one per machine that it shows, or one without a label."""
    draw = DRAWN[name]
    return draw.parts(requests) if hasattr(draw, "parts") else [("", draw(requests))]


def names():
    """Names of the figures that are drawn from all requests."""
    return list(DRAWN)


def export(figure, name, command, folder=None):
    """Write `figure` to <folder>/<name>.svg and .png (default folder: figures/), each whole or not at all;
    returns both paths.

    The command that redraws it is in the files' metadata; the same data give the same bytes.
    """
    folder = Path(folder or FIGURES)
    folder.mkdir(parents=True, exist_ok=True)
    _save(figure, folder / f"{name}.svg", {"Title": name, "Description": command, "Date": None})
    _save(figure, folder / f"{name}.png", {"Title": name, "Description": command}, dpi=160)
    return folder / f"{name}.svg", folder / f"{name}.png"


def _save(figure, file, metadata, **options):
    """Through a temporary file in the same folder, renamed when complete."""
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=".", suffix=".tmp")
    os.close(handle)
    try:
        figure.savefig(temporary, format=file.suffix[1:], metadata=metadata, **options)
        os.chmod(temporary, 0o644)
        os.replace(temporary, file)
    except BaseException:
        os.unlink(temporary)
        raise


# A topic is a file of this folder; its figures join when it is imported.
for _topic in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_topic.name}")
