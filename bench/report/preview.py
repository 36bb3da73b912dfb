"""The pages as Quarto would show them, where Quarto is not installed.

    python -m bench.report.preview                 the pages that _quarto.yml lists, in _site/
    python -m bench.report.preview --out mysite    somewhere else

Reads the same _quarto.yml, pages and assets as Quarto. jupytext reads the pages, nbclient runs their cells,
`outputs` writes what they show as Markdown just as Quarto does, and pandoc, Quarto's own parser, makes HTML
of the whole. So what breaks a page there breaks it here: two displays of an `output: asis` cell without an
empty line between them are one paragraph. Search and themes are Quarto's alone.
"""

import argparse
import re
import shutil
import sys
import tempfile
from pathlib import Path

import yaml

from bench.paths import ROOT, SITE
from bench.report import links as repository

CELL_S = 300
SKELETON = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>$title$ – $site$</title>
$if(description)$
<meta name="description" content="$description$">
$endif$
<link rel="icon" href="data:,">
<link rel="stylesheet" href="assets/preview.css">
$for(css)$
<link rel="stylesheet" href="$css$">
$endfor$
</head>
<body>
<a class="skip" href="#content">Skip to the text</a>
<header><nav aria-label="Pages">
<a class="brand" href="index.html">$site$</a>
$for(links)$
<a href="$links.href$"$if(links.current)$ aria-current="page"$endif$>$links.text$</a>
$endfor$
</nav></header>
<main id="content">
<h1>$title$</h1>
$if(subtitle)$
<p class="subtitle">$subtitle$</p>
$endif$
$if(toc)$
<nav id="TOC" aria-labelledby="toc-title">
<h2 id="toc-title">On this page</h2>
$table-of-contents$
</nav>
$endif$
$body$
<p class="source"><a href="$source$">Source of this page</a>
$if(issue)$
· <a href="$issue$">Report an issue</a>
$endif$
</p>
</main>
$for(include-after)$
$include-after$
$endfor$
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
    """(front matter as a dict, notebook) of a .qmd file; cells in Python, all else as it stands."""
    import jupytext

    notebook = jupytext.reads(page.read_text(encoding="utf-8"), fmt="Rmd")
    front = {}
    if notebook.cells and notebook.cells[0].cell_type == "raw":
        front = yaml.safe_load(notebook.cells.pop(0).source.strip().strip("-")) or {}
    return front, notebook


def execute(notebook, name, root=ROOT):
    """Run every cell of `notebook` in place, in a kernel of its own that starts in `root`.

    SystemExit with page and traceback if a cell fails.
    """
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


def markdown(notebook, name):
    """Markdown of an executed notebook without its code, as Quarto hands it to pandoc."""
    cells = [cell.source if cell.cell_type == "markdown" else outputs(cell, name) for cell in notebook.cells]
    return "\n\n".join(cells) + "\n"


def outputs(cell, name):
    """Markdown of what one cell shows.

    Quarto puts each output into a fenced div, but writes those of a cell with `output: asis` one after the
    other, each ending with one newline and no more. Standard error is left out (`warning: false`).
    """
    shown = [_output(output, name) for output in cell.outputs if output.get("name") != "stderr"]
    if re.search(r"^#\|\s*output:\s*asis\s*$", cell.source, flags=re.MULTILINE):
        return "".join(shown)
    return "".join(f"::: {{.cell-output}}\n{text}:::\n\n" for text in shown)


def _output(output, name):
    """Markdown of one output; SystemExit for HTML, with which Quarto loads scripts from elsewhere."""
    if output.output_type == "stream":
        return f"```\n{output.text.rstrip()}\n```\n"
    if "text/html" in output.data:
        raise SystemExit(
            f"{name}: a cell shows text/html, for which Quarto loads jQuery and RequireJS from a CDN. "
            "Display Markdown with a raw block instead (`pages.show_html`)."
        )
    if "text/markdown" in output.data:
        return output.data["text/markdown"] + "\n"
    return f"```\n{output.data['text/plain'].rstrip()}\n```\n"


def links(website, current):
    """The navbar as dicts of text, href and whether it is that of the page `current`."""
    navbar = website.get("navbar", {})
    entries = [
        e for e in many(navbar.get("left")) + many(navbar.get("right")) if isinstance(e, dict) and "href" in e
    ]
    return [
        {"text": e.get("text", e["href"]), "href": page(e["href"]), "current": page(e["href"]) == current}
        for e in entries
    ]


def page(source):
    """Address of the page that `source` becomes: latency.qmd -> latency.html."""
    return re.sub(r"\.qmd$", ".html", source)


def convert(text, variables, options, root=ROOT):
    """A whole page of HTML from Markdown, through pandoc; `options` are those of the format html in
    _quarto.yml."""
    import pypandoc

    defaults = {
        "standalone": True,
        "wrap": "none",
        "section-divs": True,
        "syntax-highlighting": "none",
        "toc": bool(options.get("toc")),
        "toc-depth": options.get("toc-depth", 3),
        "variables": {**variables, "css": many(options.get("css"))},
        "metadata": {"title": variables["title"]},
        "include-after-body": [str(root / file) for file in many(options.get("include-after-body"))],
    }
    with tempfile.TemporaryDirectory() as scratch:
        template, settings = Path(scratch) / "template.html", Path(scratch) / "defaults.yaml"
        template.write_text(SKELETON, encoding="utf-8")
        settings.write_text(
            yaml.safe_dump(defaults | {"template": str(template)}, allow_unicode=True), encoding="utf-8"
        )
        html = pypandoc.convert_text(text, "html5", "markdown", extra_args=["--defaults", str(settings)])
    return re.sub(r'(href="[\w./-]+)\.qmd(?=["#])', r"\1.html", html)


def write(source, site, to, root=ROOT):
    """Execute the page `source` and write its HTML into the folder `to`, its source beside it."""
    front, notebook = read(source)
    execute(notebook, source.name, root)
    html, website = page(source.name), site["website"]
    variables = {
        "title": source.stem,
        **front,
        "site": website["title"],
        "links": links(website, html),
        "source": repository.source(source.name, root),
        "issue": repository.issue(root),
    }
    text = convert(markdown(notebook, source.name), variables, site["format"]["html"], root)
    (to / html).write_text(text, encoding="utf-8")
    shutil.copy(source, to)


def replace(out, new):
    """Put the folder `new` in the place of `out`; what was there goes only after `new` is complete."""
    if out.exists():
        out.rename(new.with_name("old"))
    new.rename(out)


def build(out, root=ROOT):
    """Write the site into the folder `out`, in the place of an earlier one; return the path of its first
    page."""
    from tqdm import tqdm

    # Snakemake takes its target, index.html, away before it calls: any other page shows an earlier site as
    # well.
    if out.exists() and any(out.iterdir()) and not any(out.glob("*.html")):
        raise SystemExit(
            f"{out} is neither empty nor an earlier site, so it is left alone. "
            "Choose another folder with --out."
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
    return out / page(pages[0])


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
