"""What a figure says and what a browser is given of it, a cell of made-up runs, and a page around one block of a
site."""

import shutil

from matplotlib.text import Text

from bench import cells, site, style
from bench.paths import ROOT
from bench.topics import tables
from llm_measured.core import tables as core_tables
from llm_measured.core.files import write_whole


def texts(figure):
    """Every text of a figure, parts included."""
    return {text.get_text().strip() for text in figure.findobj(Text)}


def words(figure):
    """All text of a figure in one line."""
    return " ".join(" ".join(text.get_text() for text in figure.findobj(Text)).split())


def svg(figure):
    return style.svg(figure, "figure", "redraw")


def shown(label, requests, folder):
    """What the cell `label` of the page Latency gives of `requests`, whose table is written into `folder`."""
    rows = tables.of_each_machine(requests, tables.latency).assign(own=False)
    write_whole(folder / "latency.csv", core_tables.csv_text(rows))
    write_whole(folder / "machines.csv", core_tables.csv_text(rows[["gpu", "host", "machine", "own"]]))
    with site.reading(folder):
        return cells.run(label)


def page(folder, name, block):
    """The file of a page that has nothing but `block`, with the site's assets beside it."""
    head = "<meta charset=utf-8><title>x</title><link rel=stylesheet href=assets/styles.css>"
    (folder / name).write_text(f"<!DOCTYPE html><html lang=en>{head}<main>{block}</main>")
    shutil.copytree(ROOT / "assets", folder / "assets")
    return folder / name
