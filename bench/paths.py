"""Folders of the repository; an environment variable names another one instead, so that tests keep out of the
checkout."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "data"  # tables of inputs
# The observations that the repository has, wherever RESULTS lead: a run is published if it lies here.
COMMITTED = ROOT / "_llama-inference"


def _folder(variable: str, default: str) -> Path:
    """A folder of the repository, or the one that an environment variable names instead: tests keep out of
    the checkout with these."""
    return Path(os.environ.get(variable) or ROOT / default)


RESULTS = _folder("BENCH_RESULTS", COMMITTED.name)
FIGURES = _folder("BENCH_FIGURES", "figures")
SITE = _folder("BENCH_SITE", "_site")
# One CSV per topic: of the committed runs, and of these and what this checkout has measured (ignored by git).
TABLES = DATA / "tables"
OWN_TABLES = _folder("BENCH_TABLES", "tables") if RESULTS == COMMITTED else RESULTS / "tables"
DOWNLOADS = _folder("BENCH_DOWNLOADS", "downloads")
MODELS = _folder("BENCH_MODELS", "models")
LOGS = Path("logs")


def packages() -> list[str]:
    """Names of the packages of the repository: the study, and the one beside it."""
    return sorted(init.parent.name for init in ROOT.glob("*/__init__.py"))


def sources() -> list[Path]:
    """Every Python file that a figure or a page may depend on: those of both packages."""
    return [path for package in packages() for path in sorted((ROOT / package).rglob("*.py"))]


def log(identifier: str) -> Path:
    """Where the notebook of the run `identifier` executes, relative to the repository."""
    return LOGS / f"{identifier}.ipynb"
