"""The shell commands that pages print: of a notebook, and of the notebook that repeats a run."""

import functools
import json
import shlex
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from bench import backends, inputs
from bench.backends import Backend
from bench.observations import store
from bench.paths import ROOT
from llm_measured.core import naming
from llm_measured.core.definitions import Fields

# What names the repeat and its folder, not what is measured.
APART = {"run", "results"}


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


@functools.cache
def notebook(experiment: str) -> str:
    """Name of the notebook that measures `experiment`."""
    known = inputs.study()["experiments"].get(experiment, {})
    return known.get("notebook", experiment)


def command(experiment: str, identity: dict[str, str], parameters: Fields) -> str:
    """The shell command that measures a run again: `identity` is {backend, option, model}, `parameters` those
    of its sidecar. A parameter that the notebook no longer has is left out."""
    name = notebook(experiment)
    own = inputs.defaults(name)
    changed = {k: v for k, v in parameters.items() if k in own and k not in APART and v != own[k]}
    try:
        backend = backends.get(identity["backend"])
    except ValueError:  # its adapter is no longer here, or cannot be imported
        return papermill(name, identity | changed)
    option = naming.plain_option(identity["option"])
    return in_environment(backend, parameters.get("device", "cpu"), option, name, identity | changed)


def commands(run_ids: Sequence[str], requests: pd.DataFrame) -> list[str]:
    """`command` of each of `run_ids`, which are runs of `requests` (`store.load`), in their order."""
    identity = ["backend", "option", "model"]
    first = requests.drop_duplicates("run_id").set_index("run_id")
    found = {}
    for name in dict.fromkeys(run_ids):
        file = store.path(name, ".json", requests.attrs.get("folder"))
        row = first.loc[name]
        parameters = json.loads(file.read_text())["parameters"] if file.exists() else {}
        found[name] = command(row["experiment"], row[identity].to_dict(), parameters)
    return [found[name] for name in run_ids]
