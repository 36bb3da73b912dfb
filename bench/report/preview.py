"""Plain HTML of the pages where Quarto is not installed.

    python -m bench.report.preview                 the pages that _quarto.yml lists, in _site/
    python -m bench.report.preview --out mysite    somewhere else

Reads the same _quarto.yml, pages and assets as Quarto does. jupytext reads the pages, nbclient runs their cells, nbconvert makes HTML
of them; what is here only puts those three together. Search, table of contents and themes are Quarto's alone.
"""

import argparse
import re
import shutil
import sys
import tempfile
from pathlib import Path

import yaml

from bench.paths import ROOT, SITE

CELL_S = 300
SKELETON = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{ page.title }} – {{ site.title }}</title>
{% if page.description %}<meta name="description" content="{{ page.description }}">
{% endif %}<link rel="icon" href="data:,">
<link rel="stylesheet" href="assets/preview.css">
{% for sheet in css %}<link rel="stylesheet" href="{{ sheet }}">
{% endfor %}</head>
<body>
<a class="skip" href="#content">Skip to the text</a>
<header><nav aria-label="Pages">
<a class="brand" href="index.html">{{ site.title }}</a>
{% for link in links %}<a href="{{ link.href }}"{% if link.href == page.href %} aria-current="page"{% endif %}>{{ link.text }}</a>
{% endfor %}</nav></header>
<main id="content">
<h1>{{ page.title }}</h1>
{% if page.subtitle %}<p class="subtitle">{{ page.subtitle }}</p>
{% endif %}{{ body }}
<p class="source"><a href="{{ page.source }}">Source of this page</a></p>
</main>
{{ after }}
</body>
</html>
"""


def settings(root=ROOT):
    """_quarto.yml as a dict."""
    return yaml.safe_load((root / "_quarto.yml").read_text(encoding="utf-8"))


def many(value):
    """A YAML value that may be absent, one thing or a list of things, as a list."""
    return value if isinstance(value, list) else [] if value is None else [value]


def read(page):
    """(front matter as a dict, notebook) of a .qmd file; only its text is read, so neither pandoc nor Quarto is needed."""
    import jupytext

    notebook = jupytext.reads(page.read_text(encoding="utf-8"), fmt="Rmd")
    front = {}
    if notebook.cells and notebook.cells[0].cell_type == "raw":
        front = yaml.safe_load(notebook.cells.pop(0).source.strip().strip("-")) or {}
    return front, notebook


def execute(notebook, name, root=ROOT):
    """Run every cell of `notebook` in place, in a fresh kernel that starts in `root`; SystemExit with page and traceback if one fails."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
    from nbconvert.filters import strip_ansi

    where, quiet = {"metadata": {"path": str(root)}}, ["--IPKernelApp.log_level=ERROR"]
    client = NotebookClient(
        notebook, timeout=CELL_S, kernel_name="python3", resources=where, extra_arguments=quiet
    )
    try:
        client.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        raise SystemExit(
            f"{name}: a cell failed, so no site was written.\n{strip_ansi(str(error))}"
        ) from None
    for cell in notebook.cells:
        if cell.cell_type == "code":  # Quarto's `warning: false` leaves standard error out
            cell.outputs = [o for o in cell.outputs if o.get("name") != "stderr"]


def body(notebook):
    """HTML of an executed notebook without its code; links from page to page end in .html."""
    from nbconvert import HTMLExporter

    exporter = HTMLExporter(
        template_name="basic", exclude_input=True, exclude_output_prompt=True, exclude_anchor_links=True
    )
    html, _ = exporter.from_notebook_node(notebook)
    return re.sub(r'(href="[\w./-]+)\.qmd(?=["#])', r"\1.html", html)


def links(website):
    """The navbar as dicts of href and text."""
    navbar = website.get("navbar", {})
    entries = [
        e for e in many(navbar.get("left")) + many(navbar.get("right")) if isinstance(e, dict) and "href" in e
    ]
    return [
        {"text": e.get("text", e["href"]), "href": re.sub(r"\.qmd$", ".html", e["href"])} for e in entries
    ]


def write(page, site, to, root=ROOT):
    """Execute one page and write its HTML into the folder `to`, its source beside it."""
    from jinja2 import Environment
    from markupsafe import Markup

    front, notebook = read(page)
    execute(notebook, page.name, root)
    html, format_html = f"{page.stem}.html", site["format"]["html"]
    after = "".join(
        (root / file).read_text(encoding="utf-8") for file in many(format_html.get("include-after-body"))
    )
    text = Environment(autoescape=True).from_string(SKELETON).render(
        page={"title": page.stem, **front, "href": html, "source": page.name}, site=site["website"], links=links(site["website"]),
        css=many(format_html.get("css")), body=Markup(body(notebook)), after=Markup(after),
    )  # fmt: skip
    (to / html).write_text(text, encoding="utf-8")
    shutil.copy(page, to)


def replace(out, new):
    """Put the folder `new` in the place of `out`; what was there goes only after `new` is complete."""
    if out.exists():
        out.rename(new.with_name("old"))
    new.rename(out)


def build(out, root=ROOT):
    """Write the site into the folder `out` and return the path of its first page; an earlier site there is replaced as a whole."""
    from tqdm import tqdm

    # Snakemake takes its target, index.html, away before it calls: any other page shows an earlier site as well.
    if out.exists() and any(out.iterdir()) and not any(out.glob("*.html")):
        raise SystemExit(
            f"{out} is neither empty nor an earlier site, so it is left alone. Choose another folder with --out."
        )
    site = settings(root)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".site-") as scratch:
        new = Path(scratch) / "new"
        new.mkdir()
        for folder in ("assets", "figures"):
            if (root / folder).is_dir():
                shutil.copytree(root / folder, new / folder)
        pages = site["project"]["render"]
        with tqdm(pages, unit="page", leave=False) as bar:
            for name in bar:
                bar.set_description(name)
                write(root / name, site, new, root)
        replace(out, new)
    return out / pages[0].replace(".qmd", ".html")


def main(arguments=None):
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.report.preview", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--out", type=Path, default=SITE, help="folder of the site (default: _site)")
    out = parser.parse_args(arguments).out.resolve()
    print(f"Preview of the site: {build(out)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
