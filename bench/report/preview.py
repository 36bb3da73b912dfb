"""A preview of the pages, where Quarto is not installed.

    python -m bench.report.preview      the pages that _quarto.yml lists, in _site/ or the folder BENCH_SITE

Pandoc, Quarto's own parser, makes HTML of text, tables and figures. Each page says what it lacks.
"""

import os
import re
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbclient
import nbformat
import yaml

from bench.machine import identity
from bench.paths import ROOT, SITE
from bench.report import expect_tables, postrender, prerender

CELL_S = 300  # of one cell, at most
LACKS = "a preview without Quarto: no search, themes, menus, contents at the side, copy buttons, source links"
ASSETS = ROOT / "assets"


def markdown(notebook: nbformat.NotebookNode) -> str:
    """Return an executed notebook as Markdown; code of cells with `echo: true` only."""
    cells = [cell.source if cell.cell_type == "markdown" else _cell(cell) for cell in notebook.cells]
    return "\n\n".join(cells) + "\n"


def _cell(cell):
    """Return the code of a cell, folded, where it says `echo: true`, and what it shows."""
    lines = cell.source.splitlines()
    options = yaml.safe_load("\n".join(line[2:] for line in lines if line.startswith("#|"))) or {}
    shown = [_output(output, options) for output in cell.outputs]
    if options.get("echo"):
        text = "\n".join(line for line in lines if not line.startswith("#|")).strip()
        shown.insert(0, f"<details>\n<summary>Code</summary>\n\n```python\n{text}\n```\n\n</details>\n")
    if not options.get("label", "").startswith(("fig-", "tbl-")):
        return "\n".join(shown)
    return f"::: {{#{options['label']}}}\n" + "\n".join(shown) + "\n:::\n"


def _output(output, options):
    """Return the Markdown of one output."""
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


def convert(text: str, variables: dict) -> str:
    """Return a whole page of HTML from Markdown, through pandoc."""
    import pypandoc

    head = yaml.safe_dump(variables, allow_unicode=True)
    options = ["--standalone", "--section-divs", "--wrap=none", "--syntax-highlighting=none"]
    options += [f"--template={ASSETS / 'preview.template'}", f"--include-after-body={ASSETS / 'sorter.html'}"]
    html = pypandoc.convert_text(f"---\n{head}---\n\n{text}", "html5", "markdown", extra_args=options)
    return re.sub(r'(href="[\w./-]+)\.qmd(?=["#])', r"\1.html", html)


def write(name: str, site: dict, to: Path) -> None:
    """Execute the page `name` and write its HTML into the folder `to`, where the repository has the page."""
    front, notebook = prerender.read(ROOT / name)
    resources = {"metadata": {"path": str(ROOT)}}
    client = nbclient.NotebookClient(notebook, timeout=CELL_S, kernel_name="python3", resources=resources)
    try:
        client.execute(env=os.environ | prerender.variables())
    except nbclient.exceptions.CellExecutionError as error:
        raise SystemExit(f"{name}: a cell failed, so no site was written.\n{error}") from None
    pages = {page: prerender.read(ROOT / page)[0]["title"] for page in site["project"]["render"]}
    links = [{"href": page.replace(".qmd", ".html"), "text": title} for page, title in pages.items()]
    known = {"root": "../" * name.count("/"), "site": site["website"]["title"], "links": links}
    file = to / name.replace(".qmd", ".html")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(convert(markdown(notebook), front | known | {"lacks": LACKS}), encoding="utf-8")


def build(out: Path) -> Path:
    """Write the preview into the folder `out`, in the place of an earlier site; return its first page."""
    # Snakemake takes its target, index.html, away before it calls: any page shows an earlier site.
    if out.exists() and any(out.iterdir()) and not any(out.glob("*.html")):
        raise SystemExit(f"{out} is neither empty nor an earlier site: choose another with BENCH_SITE.")
    site = prerender.settings()
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".site-") as scratch:
        new = Path(scratch) / "new"
        expect_tables.main(["--if-needed"])
        for folder in ("assets", "figures", "downloads", "data/tables"):
            shutil.copytree(ROOT / folder, new / folder)
        # Teams of threads on the same cores wait for each other, busily: pages are made beside each other.
        os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        with ThreadPoolExecutor(identity.cores()) as workers:
            for done in [workers.submit(write, name, site, new) for name in site["project"]["render"]]:
                done.result()
        postrender.write_aliases(new)
        if out.exists():
            out.rename(Path(scratch) / "old")
        new.rename(out)
    return out / "index.html"


if __name__ == "__main__":
    print(f"{build(SITE.resolve())}: {LACKS}.", file=sys.stderr)
