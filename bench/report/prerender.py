"""What Quarto does before it renders (`pre-render` in _quarto.yml): the files that Cards and How much look
answers up in are made where they are older than the tables; how pages are read and executed without Quarto.

    python -m bench.report.prerender

`preview` reads and executes pages with the functions here.
"""

import importlib.util
import multiprocessing
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import nbformat
import yaml

from bench.machine import identity
from bench.paths import ROOT
from llm_measured.core.definitions import Value

CELL_S = 300
INLINE = re.compile(r"`\{python\} ?([^`]+)`")  # a value in a sentence
AS_HTML = re.compile(r"^```\{=html\}\n(.*?)^```$", re.M | re.S)  # no cell: it stands in the page as it is


def settings(root: Path = ROOT) -> dict:
    """_quarto.yml as a dict."""
    return yaml.safe_load((root / "_quarto.yml").read_text(encoding="utf-8"))


def variables(root: Path = ROOT) -> dict[str, str]:
    """What the file _environment sets for every page, as Quarto reads it."""
    file = root / "_environment"
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


def imported(notebooks: Iterable[nbformat.NotebookNode]) -> list[str]:
    """Names of the modules that cells of `notebooks` import: what is worth loading once for all of them."""
    lines = [line for notebook in notebooks for cell in notebook.cells for line in cell.source.splitlines()]
    found = {}
    for line in lines:
        words = re.match(r"(?:from ([\w.]+) )?import ([\w., ]+)$", line)
        if words:
            names = [each.split(" as ")[0].strip() for each in words[2].split(",")]
            found |= dict.fromkeys(f"{words[1]}.{name}" if words[1] else name for name in names)
            found |= {words[1]: None} if words[1] else {}
    return [name for name in found if _is_module(name)]


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:  # its parent is no package
        return False


def execute(notebook: nbformat.NotebookNode, name: str, root: Path = ROOT) -> None:
    """Run every cell of `notebook` and put every inline value in its place, in a namespace of its own, as a
    kernel does that starts in `root`, for the page `name`, a path there.

    SystemExit with page and traceback if a cell fails.
    """
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    os.chdir(root)
    os.environ.update(variables(root), QUARTO_DOCUMENT_PATH=str((root / name).parent))
    main_module = sys.modules["__main__"]  # IPython puts the page's own there
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    try:
        for cell in notebook.cells:
            if cell.cell_type == "code":
                _run(shell, cell, name)
            else:
                cell.source = INLINE.sub(lambda value: str(shell.ev(value[1])), cell.source)
    finally:
        sys.modules["__main__"] = main_module


def _run(shell, cell, name):
    """Run one cell and give it its outputs."""
    from IPython.utils.capture import capture_output

    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(CELL_S)
    with capture_output() as captured:
        shell.display_trap.hook = sys.displayhook  # what the last line gives is an output, as in a kernel
        done = shell.run_cell(cell.source)
    signal.alarm(0)
    error = done.error_before_exec or done.error_in_exec
    if error:
        trace = "".join(traceback.format_exception(error))
        raise SystemExit(f"{name}: a cell failed, so no site was written.\n{cell.source}\n{trace}")
    stream = [nbformat.v4.new_output("stream", text=captured.stdout)] if captured.stdout else []
    shown = []
    for each in captured.outputs:
        texts = {
            kind: value for kind, value in each.data.items() if not isinstance(value, bytes)
        }  # SVG, no PNG
        shown.append(nbformat.v4.new_output("display_data", texts))
    cell.outputs = stream + shown


def _too_long(*_):
    raise TimeoutError(f"The cell took longer than {CELL_S} s.")


def refuse_html(output: nbformat.NotebookNode, name: str) -> None:
    """Raise SystemExit for an output of type text/html, with which Quarto loads scripts from elsewhere."""
    if "text/html" in output.get("data", {}):
        raise SystemExit(
            f"{name}: a cell shows text/html, for which Quarto loads jQuery and RequireJS from a CDN. "
            "Display Markdown with a raw block instead (`site.show`, `site.show_html`)."
        )


def pool(names: list[str], root: Path) -> ProcessPoolExecutor:
    """Return processes that execute pages, forked from one that has imported what these import."""
    # Teams of threads on the same cores wait for each other, busily: pages are made beside each other.
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    beginning = multiprocessing.get_context("forkserver")
    beginning.set_forkserver_preload(imported(read(root / name)[1] for name in names))
    return ProcessPoolExecutor(identity.cores(), mp_context=beginning)


if __name__ == "__main__":
    from bench.report import expect_tables

    expect_tables.main(["--if-needed"])
