"""Run one experiment notebook as a step of the study: its own interpreter, a log that stays, and an end when the study ends.

    python -m bench.workflow.run_notebook notebooks/latency.ipynb llamacpp/latency-…-1 backend=llamacpp option=Q8_0 run=1

The notebook executes in logs/; when it has succeeded it is moved beside its CSV. After a failure it stays in logs/ with the traceback in it.
"""

import os
import sys
import threading
from pathlib import Path

import nbformat
import papermill
import yaml

from bench import files, paths, processes
from bench.observations import store
from bench.paths import ROOT


def execute(notebook, identifier, parameters):
    """Execute `notebook` with `parameters`; on success the executed notebook lies beside the run's CSV."""
    papermill.execute_notebook(
        notebook, str(paths.log(identifier)), parameters=parameters, progress_bar=False
    )
    # Where this checkout lies on its machine, or an environment that it only links to, is nobody's business: warnings name relative files.
    executed = (
        paths.log(identifier)
        .read_text(encoding="utf-8")
        .replace(str(ROOT), ".")
        .replace(str(Path(sys.prefix).resolve()), ".")
    )
    files.write_whole(store.path(identifier, ".ipynb"), executed)
    paths.log(identifier).unlink()


def reason(identifier):
    """Why the run `identifier` failed, in one line: the error in its notebook, else the last words of its process."""
    notebook, words = ROOT / paths.log(identifier), ROOT / paths.log(identifier).with_suffix(".txt")
    if not notebook.exists():
        return "it was not started"
    for cell in nbformat.read(notebook, as_version=4).cells:
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                return f"{output.ename}: {output.evalue}".strip().splitlines()[0]
    said = words.read_text(errors="replace").split("\n") if words.exists() else []
    return next((line for line in reversed(said) if line.strip()), "it was interrupted")


def quiet(identifier):
    """Send what the kernel and native code write to standard error to a file beside the log; returns the terminal's own."""
    terminal = os.fdopen(os.dup(2), "w")
    paths.log(identifier).parent.mkdir(parents=True, exist_ok=True)
    with open(paths.log(identifier).with_suffix(".txt"), "w") as file:
        os.dup2(file.fileno(), 2)
    return terminal


def main(notebook, identifier, *assignments):
    os.chdir(ROOT)
    threading.Thread(target=processes.die_with, args=(os.getppid(),), daemon=True).start()
    parameters = {name: yaml.safe_load(value) for name, _, value in (a.partition("=") for a in assignments)}
    terminal = quiet(identifier)
    try:
        execute(notebook, identifier, parameters)
    except Exception as error:  # a dead kernel is no PapermillExecutionError
        print(error, file=sys.stderr)
        print(
            f"{identifier} failed: {reason(identifier)}\nThe whole traceback: {paths.log(identifier)}",
            file=terminal,
        )
        sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
