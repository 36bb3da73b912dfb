"""The labelled cells of pages: each makes one figure or table by itself, from the files in data/tables/.

    python -m bench.cells              every figure -> figures/<name>.svg (`make figures`)
    python -m bench.cells latency      only that of the label fig-latency
    python -m bench.cells tbl-latency  a table on the terminal

A cell imports what it needs and its last line is what it shows; it runs as it stands in any notebook that
has the repository on its path. `notebooks/figure.ipynb -p figure latency` runs the same cell.
"""

import ast
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from bench import html, paths, style
from llm_measured.core import naming
from llm_measured.core.definitions import Value
from llm_measured.core.files import write_whole

BLOCK = re.compile(r"^```\{python\}\n(.*?)^```$", re.M | re.S)
LABEL = re.compile(r"^#\| label: *([\w-]+)$", re.M)


class Cell(NamedTuple):
    """A labelled cell: the page that has it (relative to the repository) and its code without options."""

    page: str
    source: str


def labelled(root: Path = paths.ROOT) -> dict[str, Cell]:
    """Return {label: Cell} of the pages' cells that make a figure (fig-…) or a table (tbl-…)."""
    found = {}
    for page in [root / "index.qmd", *sorted((root / "pages").glob("*.qmd"))]:
        for source in BLOCK.findall(page.read_text(encoding="utf-8")):
            label = LABEL.search(source)
            if label and label[1].startswith(("fig-", "tbl-")):
                code = "".join(line for line in source.splitlines(True) if not line.startswith("#|"))
                found[label[1]] = Cell(page.relative_to(root).as_posix(), code)
    return found


def source(label: str) -> str:
    """Return the code of the cell `label`; ValueError that lists the labels for any other name."""
    cells = labelled()
    return cells[naming.choose("cell", label, list(cells))].source


def run(label: str) -> Value:
    """Execute the cell `label` in a namespace of its own and return what its last line gives."""
    tree = ast.parse(source(label))
    names: dict = {"__name__": "__main__"}
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, f"<cell {label}>", "exec"), names)
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), f"<cell {label}>", "eval"), names)


def figures() -> list[str]:
    """Return the names of the figures that cells make: their labels without fig-."""
    return [label.removeprefix("fig-") for label in labelled() if label.startswith("fig-")]


def choose(words: str) -> list[str]:
    """Return the names of figures that `words` say, `all` or separated by spaces; ValueError that lists what
    exists for any other."""
    names = figures()
    return names if words == "all" else [naming.choose("figure", name, names) for name in words.split()]


def draw(name: str) -> Figure:
    """Return the figure of the cell fig-`name`."""
    with style.style():
        return run(f"fig-{naming.choose('figure', name, figures())}")


def export(figure: Figure, name: str, folder: Path = paths.FIGURES) -> Path:
    """Write `figure` to <folder>/<name>.svg, with the command that redraws it in its metadata; return the
    path.

    The same rows give the same bytes.
    """
    command = f"papermill notebooks/figure.ipynb figure.ipynb -p figure {name}"
    write_whole(folder / f"{name}.svg", style.svg(figure, name, command))
    return folder / f"{name}.svg"


def main(arguments: Iterable[str]) -> None:
    """Draw the figures that are named, or all; or print the one table that is named."""
    asked = list(arguments)
    if asked and asked[0].startswith("tbl-"):
        print(html.text(run(asked[0])))
        return
    for name in choose(" ".join(asked) or "all"):
        print(export(draw(name), name))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except ValueError as error:  # a name that no cell has
        sys.exit(str(error))
