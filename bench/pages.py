"""What the pages of the site show: figures, tables and computed sentences, each with the command that redraws it.

The pages are prose; they call these functions, and these call `plots`, `tables` and `findings`: nothing is drawn or counted here.
"""

import base64
import html
import inspect
import io

from IPython.display import HTML, Markdown, display

from bench import backends, findings, plots, results, tables

NOTHING = "*Nothing measured yet.* Measure the engines that run here with `make study`; this page then fills itself."


def requests():
    """All requests of all runs, as every page reads them."""
    return results.load()


def _called(function, rows):
    """`function` with the requests if it takes any."""
    return function(rows) if inspect.signature(function).parameters else function()


def show_figure(name, rows, alt):
    """Show figure `name` of bench/plots.py, its alternative text `alt`, and the command that redraws it; a sentence if there are no data."""
    function = getattr(plots, name)
    if rows.empty and inspect.signature(function).parameters:
        return display(Markdown(NOTHING))
    command = f"papermill notebooks/figure.ipynb figure.ipynb -p figure {name}"
    display(HTML(
        f'<figure class="plot"><div class="scroll" tabindex="0"><img alt="{html.escape(alt)}" src="{_svg(_called(function, rows))}"></div>'
        f"<figcaption>Redraw: <code>{command}</code></figcaption></figure>"
    ))  # fmt: skip


def _svg(figure):
    """A matplotlib figure as the address of an SVG image: as an image its ids and styles cannot touch those of the page."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="svg", bbox_inches="tight", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(drawn.getvalue()).decode()


def show_table(name, rows, caption):
    """Show table `name` of bench/tables.py, sortable, with its caption and the command that prints it; a sentence if there are no data."""
    table = _called(getattr(tables, name), rows)
    display(Markdown(NOTHING) if table.empty else HTML(tables.html(table, caption, f"python -m bench.tables {name}")))


def show_findings(rows):
    """Show the findings, computed from the requests, as a list."""
    said = [] if rows.empty else findings.findings(rows)
    display(Markdown("\n".join(f"- {sentence}" for sentence in said) or NOTHING))


def show_engines(rows):
    """Show the notes of every engine: its module's docstring as it stands, its options, and what has been measured of it."""
    for name in backends.names():
        display(Markdown(f"## {name}\n\n{engine(name, rows)}"))


def engine(name, rows):
    """The notes of one engine as Markdown; an adapter that cannot be imported shows its error instead."""
    try:
        module = backends.get(name)
        about = [inspect.getdoc(module) or "This adapter has no docstring, so there is nothing to say about it."]
        about.append("\n".join(f"- Options on {d}: {', '.join(f'`{o}`' for o in backends.options(module, d))}" for d in module.DEVICES))
    except Exception as error:  # whatever a contributed adapter does wrong, the other engines' notes stay readable
        return f"This adapter does not load: `{type(error).__name__}: {' '.join(str(error).split())}`"
    return "\n\n".join([*about, measured(name, rows)])


def measured(name, rows):
    """One sentence on what has been measured of engine `name`."""
    mine = rows[rows["backend"] == name]
    if mine.empty:
        return f"Not measured yet. Install it where it needs that, and measure it: `make study ENGINES={name}`"
    versions = ", ".join(sorted(mine["backend_version"].unique()))
    options = ", ".join(f"`{o}`" for o in sorted(mine["option"].unique()))
    return f"Measured: version {versions}; {options}; {mine['run_id'].nunique()} runs, {len(mine)} requests."
