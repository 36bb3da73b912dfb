"""Folders of the repository; an environment variable names another one instead, so that tests keep out of the
checkout."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def _folder(variable, default):
    """A folder of the repository, or the one that an environment variable names instead: tests keep out of
    the checkout with these."""
    return Path(os.environ.get(variable) or ROOT / default)


RESULTS = _folder("BENCH_RESULTS", "_llama-inference")
FIGURES = _folder("BENCH_FIGURES", "figures")
SITE = _folder("BENCH_SITE", "_site")
DOWNLOADS = _folder("BENCH_DOWNLOADS", "downloads")
MODELS = _folder("BENCH_MODELS", "models")
# What pages share while a site is made (`bench.report.kept`); deleting it costs nothing but time.
CACHE = _folder("BENCH_CACHE", ".cache")
LOGS = Path("logs")


def log(identifier):
    """Where the notebook of the run `identifier` executes, relative to the repository."""
    return LOGS / f"{identifier}.ipynb"
