"""Run one experiment notebook as a step of the study: its own interpreter, a log that stays, and an end when the study ends.

    python -m bench.execute notebooks/latency.ipynb llamacpp/latency-…-1 backend=llamacpp option=Q8_0 run=1

The notebook executes in logs/; when it has succeeded it is moved beside its CSV. After a failure it stays in logs/ with the traceback in it.
"""

import os
import sys
import threading
from pathlib import Path
from time import sleep

import papermill
import yaml

from bench import ROOT, results

LOGS = Path("logs")


def die_with(parent):
    """End this process when `parent` has ended (kill -9 included), so that no orphan measures beside the next run."""
    while os.getppid() == parent:
        sleep(0.5)
    os._exit(1)  # the kernel watches this process in the same way


def log(identifier):
    """Where the notebook of the run `identifier` executes, relative to the repository."""
    return LOGS / f"{identifier}.ipynb"


def execute(notebook, identifier, parameters):
    """Execute `notebook` with `parameters`; on success the executed notebook lies beside the run's CSV."""
    os.chdir(ROOT)
    log(identifier).parent.mkdir(parents=True, exist_ok=True)
    papermill.execute_notebook(notebook, str(log(identifier)), parameters=parameters, progress_bar=False)
    target = results.path(identifier, ".ipynb")
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(log(identifier), target)


def reason(identifier):
    """Last line of the error that the failed run `identifier` left in its log, or that it left none."""
    import nbformat

    if not (ROOT / log(identifier)).exists():
        return "it was not started"
    for cell in nbformat.read(ROOT / log(identifier), as_version=4).cells:
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                return f"{output.ename}: {output.evalue}".strip().splitlines()[0]
    return "it was interrupted"


def main(notebook, identifier, *assignments):
    threading.Thread(target=die_with, args=(os.getppid(),), daemon=True).start()
    parameters = {name: yaml.safe_load(value) for name, _, value in (a.partition("=") for a in assignments)}
    try:
        execute(notebook, identifier, parameters)
    except papermill.PapermillExecutionError as error:
        sys.exit(f"{identifier} failed: {error.ename}: {error.evalue}\nIts notebook with the whole traceback: {log(identifier)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
