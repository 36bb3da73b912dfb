"""What the pages of the site show: figures, tables and computed sentences, each with its command.

The pages are prose; they call these functions, and these call `figures`, `tables` and `headlines`, so pages
and notebooks cannot disagree. A cell of a page that shows a figure or a table runs in a notebook as it is:
there it gives the same matplotlib figure, or the same rows as a DataFrame.
"""

import functools
import html
import inspect
import os
import re
from collections.abc import Iterable

import pandas as pd
from IPython.display import Markdown, display
from matplotlib.figure import Figure

from bench import html as html_report
from bench import inputs, memo
from bench.machine import identity
from bench.observations import store
from bench.paths import DOWNLOADS, FIGURES, ROOT
from bench.report import client_accuracy, figures, links, per_machine, tables
from bench.report.words import plural
from bench.topics import commands, machines
from bench.topics import latency as latency_analysis
from llm_measured.core import columns, files, naming

SITE_FOLDERS = "(?:assets|downloads|figures|pages)/"


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


def _is_page() -> bool:
    """Whether a page of the site is being made; the file _environment, which Quarto reads, says so."""
    return bool(os.environ.get("SHOWN_ON_A_PAGE"))


def show_figure(
    name: str, rows: pd.DataFrame, data: pd.DataFrame | None = None, otherwise: str | None = None
) -> None:
    """Show figure `name` and its command, in a notebook the `data` that it is drawn from, too; where they are
    empty, the Markdown `otherwise`, if it is given.

    The docstring of the figure's function is the alternative text. In a notebook the same figure stands there
    as Matplotlib draws it.
    """
    if otherwise is not None and data is not None and data.empty:
        display(Markdown(otherwise))
        return
    parts = figures.parts(name, rows)
    if not _is_page():
        if data is not None:
            display(data)
        display(*(figure for _, figure in parts))
        return
    alt = _description(name)
    shown = [_picture(name, alt, label, figure, place > 0) for place, (label, figure) in enumerate(parts)]
    _show_plot(name, "".join(shown) + _left_out(parts, rows))


def _left_out(parts: list[tuple[str, Figure]], rows: pd.DataFrame) -> str:
    """Which machines have no part of a figure because it has as many as a page shows."""
    if len(parts) < per_machine.MOST_MACHINES:
        return ""
    labels = [label for label, _ in machines.labelled(rows)]
    left = labels[labels.index(parts[-1][0]) + 1 :]
    if not left:
        return ""
    named = ", ".join(f"<code>{html.escape(label)}</code>" for label in left)
    ways = (
        '<a href="pages/explore.html">the Explorer</a>, or redraw it with <code>-p front</code> and the name'
    )
    return f'<p class="whole-table">Not drawn here: {named}. They are in {ways}.</p>'


def show_file(name: str) -> None:
    """Show figure `name` as its committed file: for a page whose own picture is another."""
    _show_plot(name, f'<img alt="{html.escape(_description(name))}" src="figures/{name}.svg">')


def _description(name):
    """The first paragraph of a figure's docstring: its alternative text."""
    return " ".join(inspect.getdoc(figures.drawn(name)).split("\n\n")[0].split())


def _show_plot(name, picture):
    command = commands.papermill("figure", {"figure": name}, out="figure.ipynb")
    caption = (
        f'<figcaption class="command"><details><summary>Redraw</summary><code>{command}</code>'
        f"{links.under_figure(name)}</details></figcaption>"
    )
    show_html(f'<figure class="plot">{picture}{caption}</figure>')


def _picture(name, alt, label, figure, folded=False):
    """The image of one machine's part of a figure; a label is empty where there is one machine only. Of
    several machines each part can be folded, and all but the first are."""
    alt = f"{alt} On {label}." if label else alt
    picture = f'<img alt="{html.escape(alt)}" src="{_written(name, label, figure)}">'
    if not label:
        return picture
    start = f'<details class="device" data-device="{html.escape(label)}"{"" if folded else " open"}>'
    return f"{start}<summary>{html.escape(label)}</summary>{picture}</details>"


def from_page(text: str) -> str:
    """Return the HTML `text` with its addresses in the site (`src="figures/…"`, from the root) turned for the
    page that is being made: Quarto leaves addresses in raw HTML alone.

    Quarto names the page's folder in QUARTO_DOCUMENT_PATH, and so does `prerender`.
    """
    up = os.path.relpath(ROOT, os.environ.get("QUARTO_DOCUMENT_PATH") or ROOT)
    return text if up == "." else re.sub(rf'\b(href|src)="(?={SITE_FOLDERS})', rf'\1="{up}/', text)


def _written(name: str, label: str, figure: Figure) -> str:
    """Write `figure` as an SVG file for the site; returns its address from a page."""
    file = f"{name}-{naming.safe(label).strip('-')}" if label else name
    command = commands.papermill("figure", {"figure": name}, out="figure.ipynb")
    files.write_whole(FIGURES / "pages" / f"{file}.svg", figures.svg(figure, name, command))
    return f"figures/pages/{file}.svg"


def show_html(text: str) -> None:
    """Show HTML as a raw block of Markdown, its addresses as in `from_page`.

    For an output of type text/html Quarto would load jQuery and RequireJS from a CDN.
    """
    text = from_page(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    fence = max(fence, "```", key=len)
    display(Markdown(f"{fence}{{=html}}\n{text.rstrip()}\n{fence}\n"))


# What a page shows of a table: numbers that decide stand first, and the CSV has the rest.
MOST_COLUMNS, MOST_ROWS, MOST_PARTS = 12, 40, 8
# Columns of which each value has a table of its own: one model per ranking, one machine at a time.
APART = [tables.DEVICE, columns.column("model").head, columns.column("weights").head]


def show_table(name: str, rows: pd.DataFrame, caption: str, otherwise: str | None = None) -> None:
    """Show table `name` of bench/report/tables/, sortable, with its caption and the command that prints it;
    of a table without rows the Markdown `otherwise`, if it is given.

    A page has its first MOST_COLUMNS columns and MOST_ROWS rows, of a table of machines for each machine and
    model, all but the first folded; a file has the rest. In a notebook the same rows stand there as
    DataFrames.
    """
    table = tables.TABLES[naming.choose("table", name, tables.names())](rows)
    if otherwise is not None and table.empty:
        display(Markdown(otherwise))
        return
    parts = table_parts(table)
    if not _is_page():
        for label, part in parts:
            display(part.rename_axis(label or None, axis="columns"))
        return
    cut = len(parts) > MOST_PARTS or sum(part.size for _, part in parts) < table.size
    caption = f"{caption} {table.attrs.get('whole', '')}".strip()
    several = len(parts) > 1
    shown = [
        _part_of_table(part, f"{caption} {label}." if label else caption, label, several, place > 0)
        for place, (label, part) in enumerate(parts[:MOST_PARTS])
    ]
    text = "\n".join(shown)
    if several:
        text = f'<div class="devices">\n{text}\n</div>'
    notes = _missing(table) + (_whole_table(name, table, len(parts) - MOST_PARTS) if cut else "")
    command = f".venv/bin/python -m bench.report.tables {name}"
    show_html(
        f'{text}\n{notes}<details class="command"><summary>Redraw</summary><code>{command}</code></details>'
    )


def table_parts(table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """[(label, part)] of a table as a page shows it; where `attrs["whole"]` says why, with all rows.

    A table of machines (`tables.of_machines`) is parted by device, model and weights, whose columns then
    stand in the label; any other one is one part without a label.
    """
    most = None if table.attrs.get("whole") else MOST_ROWS
    apart = [name for name in APART if name in table] if table.attrs.get("of_machines") else []
    if not apart:
        return [("", _first(table, most))]
    groups = table.groupby(apart, sort=False, dropna=False)
    return [
        (_setting(dict(zip(apart, key))), _first(part.drop(columns=apart), most)) for key, part in groups
    ] or [("", _first(table, most))]


def _first(table: pd.DataFrame, most: int | None) -> pd.DataFrame:
    """The first columns and rows of a part, without columns that are empty in all of it."""
    filled = [name for name in table if table[name].notna().any() and (table[name].astype(str) != "").any()]
    part = (table[filled] if len(table) else table).iloc[:most, :MOST_COLUMNS].reset_index(drop=True)
    part.attrs = {}
    return part


def _setting(key: dict[str, str]) -> str:
    """`smollm2-135m (real weights) on epyc-zen5-2c`, with as much of it as a table has."""
    device, model, weights = (key.get(name, "") for name in APART)
    words = f"{model} ({weights} weights)" if weights else model
    return " on ".join(str(word) for word in (words, device) if word)


def _part_of_table(part: pd.DataFrame, caption: str, label: str, several: bool, folded: bool) -> str:
    made = html_report.html(part, caption)
    if not several:
        return made
    start = f'<details class="device" data-device="{html.escape(label.rpartition(" on ")[2])}"'
    return f"{start}{'' if folded else ' open'}><summary>{html.escape(label)}</summary>{made}</details>"


def _missing(table: pd.DataFrame) -> str:
    missing = table.attrs.get("missing")
    return f'<p class="missing">No row of {", ".join(missing)}: not measured there.</p>\n' if missing else ""


def _whole_table(name: str, table: pd.DataFrame, left: int) -> str:
    """The link to all rows and columns, which it writes beside the page as a file."""
    DOWNLOADS.mkdir(parents=True, exist_ok=True)
    files.write_whole(DOWNLOADS / f"table-{name}.csv", files.csv_text(table))
    size = f"{html_report.number(len(table))} rows, {len(table.columns)} columns"
    more = f" ({left} more machines or models there)" if left > 0 else ""
    address = f'<a href="downloads/table-{name}.csv" download>table-{name}.csv</a>'
    words = f'All of it: {address}, {size}{more}. Or <a href="pages/explore.html">explore</a> the runs.'
    return f'<p class="whole-table">{words}</p>\n'


def measured(rows: pd.DataFrame) -> dict[str, str]:
    """What `rows` were measured with, as parts of a sentence: runs, models (with their parameters and how
    many runs each has), machines, devices; empty without runs."""
    if rows.empty:
        return {}
    size = inputs.table("models").set_index("model")["parameters_b"].dropna()
    models = []
    for (model, weights), own in rows.groupby(["model", "weights"]):
        shape = model.removeprefix("shape:")
        about = [f"{size[shape]:.2g} billion parameters"] if shape in size else []
        about += ["random weights"] if weights != "real" else []
        runs = own["run_id"].nunique()
        models.append((runs, f"`{model}` ({', '.join([*about, plural(runs, 'run')])})"))
    hosts = rows[["gpu", "host"]].drop_duplicates()["gpu"].value_counts()
    return {
        "runs": plural(rows["run_id"].nunique(), "run"),
        "models": naming.listed(text for _, text in sorted(models, reverse=True)),
        "machines": plural(hosts.sum(), "machine"),
        "devices": naming.listed(
            f"{count} × `{gpu}`" if count > 1 else f"`{gpu}`" for gpu, count in hosts.items()
        ),
    }


def say(sentence: str, numbers: dict) -> None:
    """Show a sentence of Markdown with `numbers` in its braces; nothing where there are no numbers yet."""
    if numbers:
        display(Markdown(sentence.format(**numbers)))


def show_sentences(sentences: Iterable[str | None], otherwise: str = "") -> None:
    """Show computed sentences as a list, or the Markdown `otherwise` where there are none."""
    display(Markdown("\n".join(f"- {sentence}" for sentence in sentences if sentence) or otherwise))


def show_clients(rows: pd.DataFrame) -> None:
    """Show how far load clients were off, computed, as a list."""
    command = commands.papermill("client-accuracy")
    show_sentences(client_accuracy.client_findings(rows), f"*Nothing measured here yet: `{command}`.*")


def protocol(rows: pd.DataFrame) -> dict:
    """Parameters of the latency runs, as numbers for method.qmd; empty without data."""
    rows = machines.on_default_machine(rows, "latency")
    if rows.empty:
        return {}
    count = {
        "output": rows["max_new_tokens"],
        "prompts": rows.groupby("run_id")["prompt"].nunique(),
        "threads": rows["threads"],
        "shortest": [rows["prompt_tokens"].min()],
        "longest": [rows["prompt_tokens"].max()],
    }
    return {
        name: " or ".join(html_report.number(v) for v in sorted(set(value))) for name, value in count.items()
    }


def probes(rows: pd.DataFrame) -> dict:
    """The bandwidth probes of the latency runs as numbers for method.qmd; empty without data."""
    found = latency_analysis.runs(rows[(rows["experiment"] == "latency") & (rows["error"] == "")])
    if found.empty:
        return {}
    peaks = found["bandwidth_bytes_per_s"].dropna() / 1e9
    several = found.groupby(latency_analysis.VERSIONED).filter(lambda runs: len(runs) > 2)
    scatter = {
        column: several.groupby(latency_analysis.VERSIONED)[column].agg(lambda v: v.std() / v.mean())
        for column in ("mbu", "output_tokens_per_s")
    }
    return {
        "slowest": html_report.number(peaks.min()),
        "fastest": html_report.number(peaks.max()),
        "without": int(found["mbu"].isna().sum()),
        "simple": latency_analysis.probed_one_way(found),
        "runs": len(found),
        "mbu": f"{scatter['mbu'].median():.1%}",
        "rate": f"{scatter['output_tokens_per_s'].median():.1%}",
    }
