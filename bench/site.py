"""What the cells of pages call: a table, a machine's rows of it, a number in a sentence, a table for readers.

    from bench import site
    rows = site.table("latency")                     # data/tables/latency.csv as a DataFrame, in stored units
    rows = site.one_model(site.machine(rows))        # of one machine and one model
    site.show(rows, "backend option output_tokens_per_s ttft_s", caption="…")

Where this checkout has measured, `tables/` (written by `make study`, ignored by git) is read instead of
data/tables/, and it says so.
"""

import contextlib
import functools
import glob
import numbers
import os
import re
import shlex
import string
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from IPython.display import Markdown, display

from bench import html, paths
from bench.topics import declared, machines
from llm_measured.core import columns, naming
from llm_measured.core.columns import Column
from llm_measured.core.definitions import Value

_READ: list[Path] = []  # folders that are read instead of the usual one, the last first


def table(name: str) -> pd.DataFrame:
    """Return the rows of the table `name`, times in seconds and sizes in bytes; ValueError that lists the
    tables.

    Of a folder of runs (BENCH_RESULTS) whose tables were not made there are none.
    """
    folder = _folder()
    known = sorted(file.stem for file in folder.glob("*.csv"))
    rows = declared.read(folder / f"{naming.choose('table', name, known)}.csv")
    if folder == paths.TABLES and not _READ and paths.RESULTS != paths.COMMITTED:
        return rows.iloc[:0].astype(object)  # as it is read from a file without rows
    return rows


def published(name: str) -> pd.DataFrame:
    """Return the rows of data/tables/published_`name`.csv, what others measured: on every machine
    the same."""
    return declared.read(paths.TABLES / f"published_{name}.csv")


@contextlib.contextmanager
def reading(folder: Path | None) -> Iterator[None]:
    """Context in which tables are read from `folder`; nothing changes with None."""
    if folder is None:
        yield
        return
    _READ.append(folder)
    try:
        yield
    finally:
        _READ.pop()


def _folder() -> Path:
    """The folder that tables are read from: this machine's own where it is."""
    if _READ:
        return _READ[-1]
    if paths.OWN_TABLES.is_dir():
        _say(f"Read from {paths.OWN_TABLES}: the tables of the runs in {paths.RESULTS}.")
        return paths.OWN_TABLES
    if paths.RESULTS != paths.COMMITTED:
        _say(f"No tables of {paths.RESULTS}: python -m bench.topics.tables own makes them.")
    return paths.TABLES


@functools.cache
def _say(sentence: str) -> None:
    """Print a sentence once, but not into a page, where Method says it (`source`)."""
    if not html.is_page():
        print(sentence)


def source() -> str:
    """Return the folder that tables are read from, as a page names it."""
    folder = _folder()
    return os.path.relpath(folder, paths.ROOT) if folder.is_relative_to(paths.ROOT) else str(folder)


def machine(rows: pd.DataFrame, name: str = "") -> pd.DataFrame:
    """Return the rows of one machine: `name`, or BENCH_FRONT, or the first; ValueError for an unknown one.

    Rows stand in the order of machines that the topic gave them: that with most runs first. Of a machine that
    measured other things only, the first one's are returned, and it says so.
    """
    wish = name or os.environ.get(machines.FRONT, "").strip()
    if rows.empty:
        return rows
    first = rows["machine"].iloc[0]
    if wish and _named(rows, wish).any():
        first = rows.loc[_named(rows, wish), "machine"].iloc[0]
    elif wish:
        every = table("machines")
        if wish != "here" and not _named(every, wish).any():
            known = ", ".join(dict.fromkeys(every["machine"]))
            raise ValueError(f"{wish} names no machine that has measured: {known}.")
        who = "This checkout" if wish == "here" else wish
        print(f"{who} has not measured this: shown is {first}.")
    return rows[rows["machine"] == first]


def processors(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of one machine of each processor type, that with most runs; the default machine's
    first."""
    if rows.empty:
        return rows
    types = dict.fromkeys([*machine(rows)["gpu"], *rows["gpu"]])
    return pd.concat([machine(rows, name) for name in types])


def _named(rows: pd.DataFrame, wish: str) -> pd.Series:
    """Which rows are of the machine `wish`: its label, device, host or both, or `here`."""
    if wish == "here":
        return rows["own"].astype(bool)
    both = rows["gpu"] + "-" + rows["host"]
    return (rows["machine"] == wish) | (rows["gpu"] == wish) | (rows["host"] == wish) | (both == wish)


def one_model(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the model that has most of them, real weights before random ones: a ranking is of
    one model."""
    if rows.empty:
        return rows
    settings = list(rows.groupby(["model", "weights"], sort=False))
    return max(settings, key=lambda setting: (setting[0][1] == "real", len(setting[1])))[1]


def where(rows: pd.DataFrame) -> str:
    """Return what `rows` were measured with: `smollm2-135m (real weights) on epyc-zen5-2c, 1 to 23 runs
    each.`"""
    if rows.empty:
        return ""
    first, low, high = rows.iloc[0], rows["runs"].min(), rows["runs"].max()
    count = f"{low:.0f}" if low == high else f"{low:.0f} to {high:.0f}"
    runs = f"{count} run" if high == 1 else f"{count} runs"
    return f"{first['model']} ({first['weights']} weights) on {first['machine']}, {runs} each."


def compared(rows: pd.DataFrame) -> list[str]:
    """Return for each row why it was not compared, `may be best`, or nothing where another one is better."""
    best = zip(rows["reason"], rows["may_be_best"])
    return [reason or ("may be best" if str(may_be) == "True" else "") for reason, may_be in best]


def or_not_measured(values: pd.Series) -> list[str]:
    """Return each value in words, `not measured` where there is none: a blank never means it."""
    words = values.map(lambda value: value if isinstance(value, str) else number(value))
    return words.replace("", "not measured").tolist()


def number(value: float, factor: float = 1) -> str:
    """Return a number as a reader wants it: three significant digits, no exponent; empty where it is
    missing."""
    return html.number(value * factor)


def say(sentence: str, **values: Value) -> None:
    """Show a typed sentence of Markdown with `values` in its braces, numbers with three significant
    digits."""
    display(Markdown(_Numbers().format(sentence, **values)))


class _Numbers(string.Formatter):
    """Numbers with three significant digits where a sentence does not say how they are written."""

    def format_field(self, value: Any, format_spec: str) -> str:  # noqa: ANN401  # whatever a sentence has
        if not format_spec and isinstance(value, numbers.Real):
            return html.number(value)
        return re.sub(" ?%", "\N{NO-BREAK SPACE}%", super().format_field(value, format_spec))


def printed(command: str) -> None:
    """Show a command of llm-measured, with patterns of files, and what it prints in the repository's root."""
    words = [sys.executable, "-m", "llm_measured"]
    for word in shlex.split(command)[1:]:
        words += sorted(glob.glob(word, root_dir=paths.ROOT)) or [word]
    done = subprocess.run(words, cwd=paths.ROOT, capture_output=True, text=True, check=False)
    if done.stderr:
        raise RuntimeError(done.stderr)
    display(Markdown(f"```{{.text tabindex=0}}\n$ {command}\n{done.stdout.rstrip()}\n```"))


def show(
    rows: pd.DataFrame, names: str, caption: str = "", by: str = "", **own: Column | str
) -> pd.DataFrame | None:
    """Show the columns `names` (words of one string) of `rows`, each with its title and unit, empty ones
    left out.

    On a page it is a table that can be sorted; in a notebook the same DataFrame is returned. A title of
    `own` replaces that of a column. Of the column `by` a page's reader chooses one value, the first row's
    until then; in a notebook it is the last column.
    """
    shown = columns.shown(rows, names, **own).reset_index(drop=True)
    filled = [name for name in shown if shown[name].notna().any() and (shown[name].astype(str) != "").any()]
    shown = shown[filled] if len(shown) else shown
    if not html.is_page():
        return shown.assign(**{by: rows[by].to_numpy()}) if by else shown
    shown.attrs = {}
    show_html(html.html(shown, caption, groups=rows[by].tolist() if by else ()))
    return None


def show_html(text: str) -> None:
    """Show HTML as a raw block of Markdown: for an output of type text/html Quarto loads scripts from
    elsewhere."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    display(Markdown(f"{fence}{{=html}}\n{text.rstrip()}\n{fence}\n"))
