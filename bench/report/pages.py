"""What the pages of others' numbers show: figures, tables and computed sentences by name, each with its
command. (The study's own pages have labelled cells, `bench.cells`.)

    python -m bench.report.pages published-sources      a table on the terminal

A cell of a page that shows a figure or a table runs in a notebook as it is: there it gives the same
matplotlib figure, or the same rows as a DataFrame.
"""

import functools
import html
import inspect
import sys
from collections.abc import Iterable, Sequence

import pandas as pd
from IPython.display import Markdown, display
from matplotlib.figure import Figure

from bench import html as html_report
from bench import memo, registry, site, style
from bench.machine import identity
from bench.observations import store
from bench.paths import DOWNLOADS, FIGURES
from bench.report import front_figure as front_figure  # these join the registry where they are defined
from bench.report import links
from bench.report.published import comparisons_figure as comparisons_figure
from bench.report.published import figures as figures
from bench.report.published import tables as tables
from bench.topics import commands
from llm_measured.core import files, naming

MOST_COLUMNS, MOST_ROWS = 12, 40  # what a page shows of a table; the CSV beside it has the rest


def requests() -> pd.DataFrame:
    """All requests of all runs (`bench.observations.store.load`), read once; from then on pages share what
    they compute."""
    share()
    return _requests()


@functools.cache
def _requests() -> pd.DataFrame:
    return memo.kept(("requests", store.digest()), store.load)


@functools.cache
def share() -> None:
    """From now on this process shares what it computes with others (`memo`), in the order in which this
    checkout sees machines."""
    memo.begin(identity.host())


def figure(name: str) -> Figure:
    """Return the figure `name` of others' numbers; ValueError that lists what exists."""
    return registry.FIGURES[naming.choose("figure", name, list(registry.FIGURES))](pd.DataFrame())


def table(name: str) -> pd.DataFrame:
    """Return the table `name` of others' numbers; ValueError that lists what exists."""
    return registry.TABLES[naming.choose("table", name, list(registry.TABLES))]()


def show_figure(name: str) -> None:
    """Show figure `name` and its command; in a notebook the figure alone.

    The first paragraph of its function's docstring is the alternative text.
    """
    drawn = figure(name)
    if not site.is_page():
        display(drawn)
        return
    alt = " ".join(inspect.getdoc(registry.FIGURES[name]).split("\n\n")[0].split())
    command = commands.papermill("figure", {"figure": name}, out="figure.ipynb")
    files.write_whole(FIGURES / "pages" / f"{name}.svg", style.svg(drawn, name, command))
    caption = (
        f'<figcaption class="command"><details><summary>Redraw</summary><code>{command}</code>'
        f"{links.under_figure(name)}</details></figcaption>"
    )
    picture = f'<img alt="{html.escape(alt)}" src="figures/pages/{name}.svg">'
    site.show_html(f'<figure class="plot">{picture}{caption}</figure>')


def show_table(name: str, caption: str) -> None:
    """Show table `name`, sortable, with its caption and the command that prints it.

    A page has its first MOST_COLUMNS columns and MOST_ROWS rows, or all where `attrs["whole"]` says why; a
    file has the rest. In a notebook the same rows stand there as a DataFrame.
    """
    rows = table(name)
    whole = rows.attrs.get("whole", "")
    part = _first(rows, None if whole else MOST_ROWS)
    if not site.is_page():
        display(part)
        return
    made = html_report.html(part, f"{caption} {whole}".strip())
    note = _whole_table(name, rows) if part.size < rows.size else ""
    command = f".venv/bin/python -m bench.report.pages {name}"
    fold = f'<details class="command"><summary>Redraw</summary><code>{command}</code></details>'
    site.show_html(f"{made}\n{note}{fold}")


def _first(rows: pd.DataFrame, most: int | None) -> pd.DataFrame:
    """The first columns and rows of a table, without columns that are empty in all of it."""
    filled = [name for name in rows if rows[name].notna().any() and (rows[name].astype(str) != "").any()]
    part = (rows[filled] if len(rows) else rows).iloc[:most, :MOST_COLUMNS].reset_index(drop=True)
    part.attrs = {}
    return part


def _whole_table(name: str, rows: pd.DataFrame) -> str:
    """The link to all rows and columns, which it writes beside the page as a file."""
    DOWNLOADS.mkdir(parents=True, exist_ok=True)
    files.write_whole(DOWNLOADS / f"table-{name}.csv", files.csv_text(rows))
    size = f"{html_report.number(len(rows))} rows, {len(rows.columns)} columns"
    address = f'<a href="downloads/table-{name}.csv" download>table-{name}.csv</a>'
    return f'<p class="whole-table">All of it: {address}, {size}.</p>\n'


def say(sentence: str, numbers: dict) -> None:
    """Show a sentence of Markdown with `numbers` in its braces; nothing where there are no numbers yet."""
    if numbers:
        display(Markdown(sentence.format(**numbers)))


def show_sentences(sentences: Iterable[str | None], otherwise: str = "") -> None:
    """Show computed sentences as a list, or the Markdown `otherwise` where there are none."""
    display(Markdown("\n".join(f"- {sentence}" for sentence in sentences if sentence) or otherwise))


def main(arguments: Sequence[str]) -> None:
    """Print the table that is named."""
    print(html_report.text(table(arguments[0] if arguments else "")))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except ValueError as error:  # a name that no table has
        sys.exit(str(error))
