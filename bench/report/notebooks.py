"""A notebook for each figure that draws it wherever it is opened: notebooks/figure.ipynb with its parameters.

    python -m bench.report.notebooks folder     one file per figure

The workflow `publish` pushes that folder to the branch from which "Open in Colab" opens it.
"""

import sys
from pathlib import Path

import nbformat

from bench import cells
from bench.paths import ROOT
from bench.report import links


def of_figure(name: str, root: Path = ROOT) -> nbformat.NotebookNode:
    """notebooks/figure.ipynb with the figure `name` and the repository's address as parameters."""
    from papermill.iorw import load_notebook_node
    from papermill.parameterize import parameterize_notebook

    notebook = load_notebook_node(str(root / "notebooks" / "figure.ipynb"))
    made = parameterize_notebook(notebook, {"figure": name, "repository": links.repository(root)})
    made.metadata.pop("papermill", None)
    for place, cell in enumerate(made.cells, start=1):
        cell["id"] = f"cell-{place}"  # papermill draws random ones; the same input, the same bytes
        cell.metadata.pop("papermill", None)
    return made


def write(folder: Path, root: Path = ROOT) -> list[Path]:
    """Write the notebooks of all figures into `folder`; returns their paths.

    ValueError where _quarto.yml names no repository.
    """
    if not links.repository(root):
        raise ValueError(
            "Set `repo-url` under `website` in _quarto.yml: the notebooks fetch the repository from it."
        )
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{name}.ipynb" for name in cells.choose("all")]
    for file in files:
        nbformat.write(of_figure(file.stem, root), file)
    return files


if __name__ == "__main__":
    try:
        print(f"{len(write(Path(sys.argv[1])))} notebooks in {sys.argv[1]}")
    except (IndexError, ValueError) as error:
        sys.exit(str(error) if isinstance(error, ValueError) else __doc__)
