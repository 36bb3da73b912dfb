"""What the cells of pages call: a table, a machine's rows of it, a number in a sentence, a table for readers.

    from bench import site
    rows = site.table("latency")                     # data/tables/latency.csv as a DataFrame, in stored units
    rows = site.machine(rows)                        # of one machine
    site.show(rows, "backend option output_tokens_per_s ttft_s", caption="…")

Where this checkout has measured, `tables/` (written by `make study`, ignored by git) is read instead of
data/tables/,
and it says so.
"""

import functools
import os
import re

import pandas as pd
from IPython.display import Markdown, display

from bench import html, paths
from bench.topics import tables
from llm_measured.core import columns, naming
from llm_measured.core.columns import Column

MACHINE = "BENCH_FRONT"  # names the machine that stands first: a label, a device, a host, or `here`


def table(name: str) -> pd.DataFrame:
    """Return the rows of the table `name`, times in seconds and sizes in bytes; ValueError that lists the
    tables."""
    folder = _folder()
    known = sorted(file.stem for file in folder.glob("*.csv"))
    return tables.read(folder / f"{naming.choose('table', name, known)}.csv")


@functools.cache
def _folder():
    """The folder that tables are read from: this machine's own where it is, said once."""
    if not paths.OWN_TABLES.is_dir():
        return paths.TABLES
    print(f"Read from {paths.OWN_TABLES}: the committed runs and those of this checkout.")
    return paths.OWN_TABLES


def machine(rows: pd.DataFrame, name: str = "") -> pd.DataFrame:
    """Return the rows of one machine: `name`, or BENCH_FRONT, or the first that has rows; ValueError for an
    unknown one.

    Rows stand in the order of machines that the topic gave them: that with most runs first.
    """
    wish = name or os.environ.get(MACHINE, "").strip()
    known = list(dict.fromkeys(rows["machine"]))
    if not wish:
        return rows[rows["machine"] == known[0]] if known else rows
    if wish == "here":
        return rows[rows["own"]] if rows["own"].any() else rows[rows["machine"] == known[0]]
    chosen = rows[(rows["machine"] == wish) | (rows["gpu"] == wish) | (rows["host"] == wish)]
    if chosen.empty and len(rows):
        raise ValueError(f"{wish} names no machine of these rows: {', '.join(known)}.")
    return chosen


def number(value: float, factor: float = 1) -> str:
    """Return a number as a reader wants it: three significant digits, no exponent; empty where it is
    missing."""
    return html.number(value * factor)


def metric(rows: pd.DataFrame, name: str) -> pd.Series:
    """Return the column `name` of `rows` in the unit that readers see."""
    return columns.values(rows, name)


def show(rows: pd.DataFrame, names: str, caption: str = "", **own: Column | str) -> pd.DataFrame | None:
    """Show the columns `names` (words of one string) of `rows`, each with its title and unit.

    On a page it is a table that can be sorted; in a notebook the same DataFrame is returned. A title of
    `own` replaces
    that of a column.
    """
    shown = columns.shown(rows, names, **own)
    filled = [name for name in shown if shown[name].notna().any() and (shown[name].astype(str) != "").any()]
    shown = shown[filled] if len(shown) else shown
    if not os.environ.get("SHOWN_ON_A_PAGE"):
        return shown.reset_index(drop=True)
    shown.attrs["machines"] = []
    show_html(html.html(shown.reset_index(drop=True), caption))
    return None


def show_html(text: str) -> None:
    """Show HTML as a raw block of Markdown: for an output of type text/html Quarto loads scripts from
    elsewhere."""
    up = os.path.relpath(paths.ROOT, os.environ.get("QUARTO_DOCUMENT_PATH") or paths.ROOT)
    if up != ".":
        text = re.sub(r'\b(href|src)="(?=(?:assets|downloads|figures|pages)/)', rf'\1="{up}/', text)
    display(Markdown(f"```{{=html}}\n{text.rstrip()}\n```\n"))
