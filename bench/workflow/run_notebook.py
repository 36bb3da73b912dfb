"""Run one experiment notebook as a step of the study: its own interpreter, a log that stays, and an end when
the study ends.

    python -m bench.workflow.run_notebook notebooks/latency.ipynb llamacpp/latency-…-1 backend=llamacpp run=1

The notebook executes in logs/ and is moved beside its CSV. Without a CSV it stays in logs/ with the traceback
in it, and
the exit status is 0 all the same: the study goes on, and its report says what failed. A process that is
killed ends otherwise.
"""

import contextlib
import os
import sys
import threading
from pathlib import Path

import nbformat
import papermill
import yaml

from bench import paths, processes
from bench.observations import store
from bench.paths import ROOT
from llm_measured.core import files
from llm_measured.core.definitions import Fields


def execute(notebook: str, identifier: str, parameters: Fields) -> None:
    """Execute `notebook` with `parameters` in logs/; papermill's error if a cell fails."""
    papermill.execute_notebook(
        notebook, str(paths.log(identifier)), parameters=parameters, progress_bar=False
    )


def executed_whole(notebook: nbformat.NotebookNode) -> bool:
    """Whether papermill executed `notebook` to its end, without an exception."""
    made = notebook.metadata.get("papermill", {})
    return bool(made.get("end_time")) and not made.get("exception")


def drop_pictures(notebook: nbformat.NotebookNode) -> None:
    """Delete the outputs of `notebook` that are pictures: their rows lie beside it."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not _is_picture(output)]


def _is_picture(output):
    return any(kind.startswith("image/") for kind in output.get("data", {}))


def keep(identifier: str) -> str:
    """Move the notebook of a run that has its CSV beside it, executed to the end or not, without its
    pictures; nothing if it lies there or nowhere.

    Returns a sentence on a notebook that lacks its end (stopped, or failed in a later cell), else "".
    """
    source, shared = ROOT / paths.log(identifier), store.shared_folder()
    folder = next((f for f in (None, shared) if store.path(identifier, folder=f).exists()), None)
    target = store.path(identifier, ".ipynb", folder)
    if not source.exists() or target.exists() or not target.with_suffix(".csv").exists():
        return ""
    # Where this checkout lies, or an environment that it links to, is nobody's business: warnings name
    # relative files.
    text = source.read_text(encoding="utf-8")
    text = text.replace(str(ROOT), ".").replace(str(Path(sys.prefix).resolve()), ".")
    whole = False
    # A kill may leave an empty file.
    with contextlib.suppress(nbformat.reader.NotJSONError):
        notebook = nbformat.reads(text, as_version=4)
        drop_pictures(notebook)
        text, whole = nbformat.writes(notebook) + "\n", executed_whole(notebook)
    files.write_whole(target, text)
    source.unlink()
    if whole:
        return ""
    three = " ".join(os.path.relpath(target.with_suffix(end), ROOT) for end in (".csv", ".json", ".ipynb"))
    return (
        f"{identifier} is measured, but its notebook ended in a cell after that: the run is shown and cannot "
        f"be contributed. To measure it again: rm {three}"
    )


def error(notebook: Path) -> str | None:
    """The error in an executed notebook in one line, None if there is none or no such file.

    Of several lines the first says what failed and the last why: between them is the traceback of a child.
    """
    if not notebook.exists():
        return None
    for cell in nbformat.read(notebook, as_version=4).cells:
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                first, *others = f"{output.ename}: {output.evalue}".strip().splitlines()
                return f"{first} {others[-1]}" if others else first
    return None


def reason(identifier: str) -> str:
    """Why the run `identifier` failed, in one line: the error in its notebook, else the last words of its
    process."""
    notebook, words = ROOT / paths.log(identifier), ROOT / paths.log(identifier).with_suffix(".txt")
    if not notebook.exists() and not words.exists():
        return "it was not started"
    lines = words.read_text(errors="replace").split("\n") if words.exists() else []
    return error(notebook) or next((line for line in reversed(lines) if line.strip()), "it was interrupted")


def quiet(identifier: str) -> None:
    """Send standard error, that of the kernel and of native code included, to a file beside the log."""
    paths.log(identifier).parent.mkdir(parents=True, exist_ok=True)
    paths.log(identifier).unlink(missing_ok=True)  # that of an earlier attempt
    with open(paths.log(identifier).with_suffix(".txt"), "w") as file:
        os.dup2(file.fileno(), 2)


def main(notebook: str, identifier: str, *assignments: str) -> None:
    os.chdir(ROOT)
    threading.Thread(target=processes.die_with, args=(os.getppid(),), daemon=True).start()
    parameters = {name: yaml.safe_load(value) for name, _, value in (a.partition("=") for a in assignments)}
    quiet(identifier)
    try:
        execute(notebook, identifier, parameters)
    except Exception as failure:  # a dead kernel is no PapermillExecutionError
        print(failure, file=sys.stderr)
    # A run that has its CSV was measured, whatever a later cell did.
    keep(identifier)


if __name__ == "__main__":
    main(*sys.argv[1:])
