"""A preview of the pages, where Quarto is not installed.

    python -m bench.report.preview                 the pages that _quarto.yml lists, in _site/
    python -m bench.report.preview --out mysite    somewhere else

Pandoc, Quarto's own parser, makes HTML of text, tables and figures. Each page says what it lacks.
"""

import argparse
import os
import re
import shutil
import sys
import tempfile
from concurrent.futures import as_completed
from pathlib import Path

import nbformat
import yaml

from bench.paths import ROOT, SITE
from bench.report import expect_tables, postrender, prerender

LACKS = (
    "a preview without Quarto: no search, themes, menus, contents at the side, copy buttons or source links"
)
TEMPLATE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title$ – $site$</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="$root$assets/preview.css">
<link rel="stylesheet" href="$root$assets/styles.css">
</head>
<body>
<header><nav aria-label="Pages">
$for(links)$<a href="$root$$links.href$">$links.text$</a> $endfor$
</nav><p>This is $lacks$.</p></header>
<main id="content">
<h1>$title$</h1>
<p class="subtitle">$description$</p>
$body$
</main>
$for(include-after)$
$include-after$
$endfor$
</body>
</html>
"""


def markdown(notebook: nbformat.NotebookNode, name: str) -> str:
    """Return an executed notebook as Markdown; code of cells with `echo: true` only."""
    cells = [cell.source if cell.cell_type == "markdown" else _cell(cell, name) for cell in notebook.cells]
    return "\n\n".join(cells) + "\n"


def _cell(cell, name):
    """Return the code of a cell, folded, where it says `echo: true`, and what it shows."""
    lines = cell.source.splitlines()
    options = yaml.safe_load("\n".join(line[2:] for line in lines if line.startswith("#|"))) or {}
    shown = [_output(output, name, options) for output in cell.outputs]
    if options.get("echo"):
        text = "\n".join(line for line in lines if not line.startswith("#|")).strip()
        shown.insert(0, f"<details>\n<summary>Code</summary>\n\n```python\n{text}\n```\n\n</details>\n")
    if not options.get("label", "").startswith(("fig-", "tbl-")):
        return "\n".join(shown)
    return f"::: {{#{options['label']}}}\n" + "\n".join(shown) + "\n:::\n"


def _output(output, name, options):
    """Return the Markdown of one output."""
    prerender.refuse_html(output, name)
    data = output.get("data", {})
    if output.output_type == "stream":
        return f"```\n{output.text.rstrip()}\n```\n"
    if "text/markdown" in data:
        return data["text/markdown"] + "\n"
    if "image/svg+xml" in data:
        drawing = data["image/svg+xml"].partition("<svg")[2]
        alt = str(options.get("fig-alt", "")).replace('"', "&quot;")
        return f'```{{=html}}\n<svg role="img" aria-label="{alt}"{drawing}\n```\n'
    return f"```\n{data['text/plain'].rstrip()}\n```\n"


def convert(text: str, variables: dict, root: Path = ROOT) -> str:
    """Return a whole page of HTML from Markdown, through pandoc."""
    import pypandoc

    head = yaml.safe_dump(variables, allow_unicode=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".html") as template:
        template.write(TEMPLATE)
        template.flush()
        options = ["--standalone", "--section-divs", "--wrap=none", f"--template={template.name}"]
        options += ["--syntax-highlighting=none", f"--include-after-body={root / 'assets' / 'sorter.html'}"]
        html = pypandoc.convert_text(f"---\n{head}---\n\n{text}", "html5", "markdown", extra_args=options)
    return re.sub(r'(href="[\w./-]+)\.qmd(?=["#])', r"\1.html", html)


def write(name: str, site: dict, to: Path, root: Path = ROOT) -> None:
    """Execute the page `name` and write its HTML into the folder `to`, where the page has it in `root`."""
    front, notebook = prerender.read(root / name)
    prerender.execute(notebook, name, root)
    pages = {page: prerender.read(root / page)[0]["title"] for page in site["project"]["render"]}
    links = [{"href": postrender.page(page), "text": title} for page, title in pages.items()]
    known = {
        "root": "../" * name.count("/"),
        "site": site["website"]["title"],
        "links": links,
        "lacks": LACKS,
    }
    file = to / postrender.page(name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(convert(markdown(notebook, name), front | known, root), encoding="utf-8")


def build(out: Path, root: Path = ROOT) -> Path:
    """Write the preview into the folder `out`, in the place of an earlier site; return its first page."""
    # Snakemake takes its target, index.html, away before it calls: any page shows an earlier site.
    if out.exists() and any(out.iterdir()) and not any(out.glob("*.html")):
        raise SystemExit(f"{out} is neither empty nor an earlier site: choose another folder with --out.")
    site, names = prerender.settings(root), prerender.settings(root)["project"]["render"]
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".site-") as scratch:
        new = Path(scratch) / "new"
        expect_tables.main(["--if-needed"])
        for folder in ("assets", "figures", "downloads", "data/tables"):
            shutil.copytree(root / folder, new / folder)
        # Files that cells write, and figures that pages link, go straight into the site.
        os.environ |= {f"BENCH_{folder.upper()}": str(new / folder) for folder in ("downloads", "figures")}
        with prerender.pool(names, root) as workers:
            for done in as_completed([workers.submit(write, name, site, new, root) for name in names]):
                done.result()
        postrender.write_aliases(new, root)
        if out.exists():
            out.rename(Path(scratch) / "old")
        new.rename(out)
    return out / "index.html"


if __name__ == "__main__":
    from bench.report import preview  # its own processes know it by this name

    parser = argparse.ArgumentParser(
        prog="python -m bench.report.preview", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--out", type=Path, default=SITE, help="folder of the site (default: _site)")
    print(f"{preview.build(parser.parse_args().out.resolve())}: {preview.LACKS}.", file=sys.stderr)
