"""The mutation run: `python tests/mutation_run.py`, or `make mutants`.

Every mutant of a module of `bench.analysis.mutation.TESTS` (mutmut's operators: another operator, number,
comparison, argument, a value that becomes None, ...) is put into a copy of the checkout, and the tests of that
module that enter the mutated function must fail. One process per mutant, forked from one in which the tests
are collected already. Writes data/proof/mutation.csv, survivors.csv and mutation.json.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

from bench.analysis import mutation

ROOT = Path(__file__).parents[1]


def copied(folder):
    """A copy of the checkout in `folder` whose `bench` may be broken."""
    for name in ("bench", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.iterdir():
        if path.name not in ("bench", "tests", ".git"):
            (folder / path.name).symlink_to(path)
    for module in mutation.TESTS:
        shutil.copy(ROOT / module, folder / f"{module}.original")


def measure(module, every, again=False):
    """The outcome of every `every`-th mutant of `module`: one row each, columns `mutation.MUTANT`.

    `again`: only of those that survived the committed run.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        copied(folder)
        out = folder / "mutants.csv"
        environment = os.environ | {
            "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_XDIST_WORKER": "mutants",
        }  # fmt: skip
        command = [sys.executable, "tests/mutation_loop.py", module, str(out), str(every), str(int(again))]
        subprocess.run(command, cwd=folder, env=environment, check=True)
        return pd.read_csv(out, keep_default_na=False)


def main():
    """Measure what has changed since the committed run, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("modules", nargs="*", help="only these (default: those that have changed)")
    parser.add_argument("--all", action="store_true", help="also those that have not changed")
    parser.add_argument(
        "--every", type=int, default=1, help="a sample: every n-th mutant; nothing is written"
    )
    parser.add_argument(
        "--again", action="store_true", help="only mutants that survived: where tests alone were added"
    )
    chosen = parser.parse_args()
    modules = chosen.modules or [m for m in mutation.TESTS if chosen.all or m in mutation.changed()]
    if chosen.again and (stale := set(modules) & set(mutation.changed())):
        parser.error(f"{', '.join(sorted(stale))} changed since the committed run: run them without --again.")
    for module in modules:
        found = measure(module, chosen.every, chosen.again)
        lived = found[found["outcome"] == mutation.SURVIVED]
        print(lived[["line", "function", "before", "after"]].to_string(index=False))
        print(f"{module}: {len(found) - len(lived)} of {len(found)} killed.", flush=True)
        if chosen.every == 1:
            mutation.record(module, found, chosen.again)
    print(mutation.sentence() if mutation.SCORES.exists() else "")


if __name__ == "__main__":
    main()
