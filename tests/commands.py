"""Commands and notebooks as a reader runs them, notebooks' cells without a kernel, and whether a process is gone."""

import os
import subprocess
import sys
import time
from pathlib import Path

import nbformat

from bench.paths import ROOT

TESTS = Path(__file__).parent
BIN = Path(sys.executable).parent


def cloned(folder):
    """A clone of what this repository has committed, at `folder`, which is returned."""
    subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(folder)], check=True)
    return folder


def run(*command, check=True, cwd=ROOT, **environment):
    """Run a command of this environment in the repository, or in the clone `cwd`; returns the finished process
    with its text."""
    own = {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"} | {k: str(v) for k, v in environment.items()}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=os.environ | own, capture_output=True, text=True, timeout=900)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def execute(name, out, parameters, check=True, **environment):
    """Run notebooks/<name>.ipynb with papermill into the file `out`; returns the finished process."""
    words = [word for key, value in parameters.items() for word in ("-p", key, value)]
    quiet = ("papermill", "--log-level", "ERROR", "--no-progress-bar")
    return run(*quiet, f"notebooks/{name}.ipynb", out, *words, check=check, **environment)


def run_cells(name, parameters):
    """Execute the cells of notebooks/<name>.ipynb here; returns the notebook's names, raises what a cell raises.

    `parameters` are injected as papermill does. A kernel takes seconds to start: what has to be refused, and what
    a row has to hold, is tried this way.
    """
    cells = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4).cells
    code = [cell.source for cell in cells if cell.cell_type == "code"]
    code.insert(1, "\n".join(["# Parameters", *(f"{key} = {value!r}" for key, value in parameters.items())]))
    names = {"__name__": "__main__", "In": [""], "display": lambda *shown: None}
    for source in code:
        names["In"].append(source)
        exec(compile(source, f"{name}.ipynb", "exec"), names)
    return names


def alive(pid):
    """Whether a process runs, one that ended and waits for its parent not counted."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pids, within_s=8.0):
    """Whether all of `pids` have ended in time."""
    end = time.monotonic() + within_s
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    return not any(map(alive, pids))
