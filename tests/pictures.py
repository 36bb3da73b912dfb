"""What a figure says and what a browser is given of it, and a page around one block of a site."""

import io
import shutil

from matplotlib.text import Text

from bench.paths import ROOT
from bench.report import figures


def texts(figure):
    """Every text of a figure, parts included."""
    return {text.get_text().strip() for text in figure.findobj(Text)}


def words(figure):
    """All text of a figure in one line."""
    return " ".join(" ".join(text.get_text() for text in figure.findobj(Text)).split())


def drawn(name, requests):
    """The figure `name`, whose marks have their places because it was saved once."""
    figure = figures.DRAWN[name](requests)
    figure.savefig(io.BytesIO(), format="svg")
    return figure


def svg(figure):
    return figures.svg(figure, "figure", "redraw")


def page(folder, name, block):
    """The file of a page that has nothing but `block`, with the site's assets beside it."""
    head = "<meta charset=utf-8><title>x</title><link rel=stylesheet href=assets/styles.css>"
    (folder / name).write_text(f"<!DOCTYPE html><html lang=en>{head}<main>{block}</main>")
    shutil.copytree(ROOT / "assets", folder / "assets")
    return folder / name
