"""What Quarto does before it renders (`pre-render` in _quarto.yml): the files that Cards and How much look
answers up in are made where they are older than the tables; how a page is read without Quarto.

    python -m bench.report.prerender
"""

import re
from pathlib import Path

import nbformat
import yaml

from bench.paths import ROOT
from llm_measured.core.definitions import Value

AS_HTML = re.compile(r"^```\{=html\}\n(.*?)^```$", re.M | re.S)  # no cell: it stands in the page as it is


def settings(root: Path = ROOT) -> dict:
    """_quarto.yml as a dict."""
    return yaml.safe_load((root / "_quarto.yml").read_text(encoding="utf-8"))


def variables() -> dict[str, str]:
    """What the file _environment sets for every page, as Quarto reads it."""
    file = ROOT / "_environment"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def many(value: Value) -> list:
    """A YAML value that may be absent, one thing or a list of things, as a list."""
    return value if isinstance(value, list) else [] if value is None else [value]


def read(page: Path) -> tuple[dict, nbformat.NotebookNode]:
    """(front matter as a dict, notebook) of a .qmd file; cells in Python, all else as it stands."""
    import jupytext

    text = AS_HTML.sub(r"\1", page.read_text(encoding="utf-8"))
    notebook = jupytext.reads(text, fmt="Rmd")
    front = {}
    if notebook.cells and notebook.cells[0].cell_type == "raw":
        front = yaml.safe_load(notebook.cells.pop(0).source.strip().strip("-")) or {}
    return front, notebook


if __name__ == "__main__":
    from bench.report import expect_tables

    expect_tables.main(["--if-needed"])
