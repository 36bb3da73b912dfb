"""The shell commands that pages print: of a notebook, in the environment of an engine."""

import shlex
from pathlib import Path

from bench.backends import Backend
from bench.paths import ROOT
from llm_measured.core.definitions import Fields


def papermill(
    name: str, parameters: Fields | None = None, out: str = "out.ipynb", home: str | Path = ".venv"
) -> str:
    """The shell command that executes notebooks/<name>.ipynb with `parameters` in the
    environment `home`, a folder relative to the repository, as one types it there."""
    words = [f"-p {key} {shlex.quote(str(value))}" for key, value in (parameters or {}).items()]
    return " ".join([f"{home}/bin/papermill notebooks/{name}.ipynb {out}", *words])


def in_environment(backend: Backend, device: str, option: str, name: str, parameters: Fields) -> str:
    """`papermill` in the environment in which the Backend `backend` runs `option`; one that
    is not the default is installed first."""
    home = backend.prefix(device, option)
    if not home.is_relative_to(ROOT / ".venvs"):
        return papermill(name, parameters)
    home = home.relative_to(ROOT).as_posix()
    return f".venv/bin/snakemake {home}/ready && {papermill(name, parameters, home=home)}"
