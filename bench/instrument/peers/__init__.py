"""Load clients, one file each. Listing this folder is the only registry there is.

A client is a module with

    VARIABLES = {"NAME": "value"}         # optional: environment variables of its own
    available() -> str | None             # None when it can run here, else the reason and the install command
    version() -> str
    command(work) -> list of words        # does the `Work`, leaves what it found in `work.folder`, and ends
    reported(work) -> Reported            # what the client itself says it measured, read from there

The docstring of the module says what the client is, how it is installed, its licence and where its
documentation is. Nothing here measures anything: `bench.experiments.client_accuracy` starts the command
beside a server that knows the truth, and compares.
"""

import importlib
import os
import pkgutil
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path
from types import ModuleType

import numpy as np

from bench.paths import ROOT
from llm_measured.core import naming

# Clients kept elsewhere (the tests' lying one, somebody's own) join by naming their folder here.
__path__ += [p for p in os.environ.get("BENCH_CLIENTS", "").split(os.pathsep) if p]


@dataclass(frozen=True)
class Work:
    """The load of a client: `requests` requests of `tokens` output tokens each to `url`, `streams` of them at
    once.

    `tokenizer` is the folder of a checkpoint, for clients that make their prompts of tokens; `model` is the
    name that the server has for its model. `folder` is empty, and the client's own.
    """

    url: str
    model: str
    streams: int
    requests: int
    tokens: int
    folder: Path
    tokenizer: Path


@dataclass
class Reported:
    """What a client reports that it measured.

    `ttft_s` of each request that it calls successful (s), `begun_s` when it began each of them (s, on any
    clock, same order), `itl_s` all gaps between tokens (s, in any order). `delays_s` (s from the server's
    stamp in each event to the client's) and `kernel_stamps` only where a client knows them.
    """

    ttft_s: np.ndarray
    begun_s: np.ndarray
    itl_s: np.ndarray
    delays_s: np.ndarray | None = None
    kernel_stamps: bool | None = None


def names() -> list[str]:
    """Names of all clients, sorted: the modules of this folder."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


def get(name: str) -> ModuleType:
    """The module of client `name`; ValueError naming the known ones if there is none."""
    return importlib.import_module(f"{__name__}.{naming.choose('client', name, names())}")


def title(name: str) -> str:
    """The client's own title, in bold at the beginning of its file; `name` where there is no such file."""
    try:
        found = re.match(r"\*\*(.+?)\*\*", get(name).__doc__ or "")
    except ValueError:
        return name
    return found[1] if found else name


def chosen(text: str) -> list[str]:
    """Names of the clients in `text`, separated by spaces; `auto`: all that are installed.

    ValueError for a name that does not exist, RuntimeError with the install command for a client that is not
    installed.
    """
    if text.split() == ["auto"]:
        return [name for name in names() if get(name).available() is None]
    found = list(dict.fromkeys(text.replace(",", " ").split()))
    if not found:
        known = ", ".join(names())
        raise ValueError(
            f"Parameter clients must name clients, separated by spaces, or be auto. There is: {known}."
        )
    absent = [get(name).available() for name in found]
    if any(absent):
        raise RuntimeError(" ".join(reason for reason in absent if reason))
    return found


def program(environment: str, name: str) -> Path:
    return ROOT / ".venvs" / environment / "bin" / name


def words(options: Mapping[str, object]) -> list[object]:
    """The words of a command line's options: {name: value} as name, value, name, value, …"""
    return [word for pair in options.items() for word in pair]


def missing(environment: str, install: str | None = None) -> str | None:
    """None if `environment` is installed, else one sentence: that it is not, and how to install it."""
    if (ROOT / ".venvs" / environment / "ready").exists():
        return None
    install = install or f"snakemake --cores 1 .venvs/{environment}/ready"
    return f"{environment} is not installed. Install it with: {install}"


def installed(environment: str, *distributions: str) -> str:
    """Version of the first of `distributions` that `environment` has; '' where it has none of them."""
    where = [str(path) for path in (ROOT / ".venvs" / environment / "lib").glob("python*/site-packages")]
    found = (next(iter(Distribution.discover(name=name, path=where)), None) for name in distributions)
    return next((f"{one.version}" for one in found if one), "")
