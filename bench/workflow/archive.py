"""What a list of steps has measured so far, in one file, for a machine that soon is gone."""

import os
import tarfile
from pathlib import Path

from bench.observations import store


def write(whole, logs, runs):
    """Write a .tar.gz, whole or not at all, with all files in the folder `logs` and those of `runs`
    (identifiers) that are there; its paths are those of a checkout."""
    whole, logs = Path(whole), Path(logs)
    found = {file: file.relative_to(logs.parent) for file in logs.rglob("*") if file.is_file()}
    for run in runs:
        files = [store.path(run, suffix) for suffix in (".csv", ".json", ".ipynb")]
        found |= {file: Path("_llama-inference", file.parent.name, file.name) for file in files}
    half = whole.with_name(f".{whole.name}.half")
    with tarfile.open(half, "w:gz") as tar:
        for file in filter(Path.exists, found):
            tar.add(file, found[file])
    os.replace(half, whole)
