"""What pages share on disk: Quarto executes each in a process of its own, and the same runs are read, the
same levels computed and the same figures drawn on several of them.

Everything lies in .cache/<name>/, where the name is a digest of all that a result depends on but the
observations: code, data/, study.yaml, versions of libraries, the checkout. The oldest results go when newer
code runs. Deleting .cache/ costs nothing but time.
"""

import functools
import hashlib
import os
import shutil
import sys
from importlib import metadata
from pathlib import Path

from bench import memo
from bench.machine import identity
from bench.observations import store
from bench.paths import CACHE, RESULTS, ROOT

LIBRARIES = "numpy pandas scipy matplotlib seaborn".split()
# Variables that say where something is written, on which no result depends.
PLACES = {"BENCH_SITE", "BENCH_FIGURES", "BENCH_DOWNLOADS", "BENCH_CACHE"}
LEFT = 2  # folders of other code or observations that stay, those that were written to last


def begin():
    """From now on this process shares what it computes with the other pages."""
    folder = CACHE / _digest(_sources())[:16]
    if CACHE.is_dir() and not folder.exists():
        # Not all: another site may be in the making, of the same code and other observations.
        for old in sorted(CACHE.iterdir(), key=lambda each: each.stat().st_mtime)[:-LEFT]:
            shutil.rmtree(old, ignore_errors=True)
    memo.keep_in(folder)


def _sources():
    """Files and words that a result depends on besides observations."""
    yield from [sys.version, identity.host(), *(f"{name} {metadata.version(name)}" for name in LIBRARIES)]
    own = {name for name in os.environ if name.startswith("BENCH_")} - PLACES
    yield from sorted(f"{name}={os.environ[name]}" for name in own)
    yield from sorted((ROOT / "bench").rglob("*.py"))
    yield from sorted(file for file in (ROOT / "data").rglob("*") if file.is_file())
    yield ROOT / "study.yaml"


def _digest(parts):
    """SHA-256 of texts and of files with their names."""
    total = hashlib.sha256()
    for part in parts:
        total.update(f"{part}\0".encode())
        if isinstance(part, Path):
            total.update(hashlib.sha256(part.read_bytes()).digest())
    return total.hexdigest()


@functools.cache
def observed():
    """Digest of every file of observations, those that are no runs included."""
    return _digest(sorted(f for kind in ("*.csv", "*.json") for f in RESULTS.glob(f"*/{kind}")))


def of_run(file):
    """Digest of one run, its sidecar included."""
    return _digest(part for part in (file, file.with_suffix(".json")) if part.exists())


def requests():
    """All requests of all runs (`store.load`); attrs as there."""
    return memo.kept(("requests", str(RESULTS), observed()), store.load)
