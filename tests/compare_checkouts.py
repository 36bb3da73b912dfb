"""Every table's text and every figure's SVG of two checkouts, compared byte for byte.

    python tests/compare_checkouts.py BEFORE AFTER [--observations FOLDER]

Both read the same observations (those of BEFORE unless a folder is named). Exit code 1 where anything differs.
"""

import argparse
import difflib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path


def numbered(svg):
    """`svg` with the ids of its clips and marks counted: Matplotlib hashes places with all their digits, of which
    the last differ between two processes."""
    ids = {
        found: f"{found[0]}{k}"
        for k, found in enumerate(dict.fromkeys(re.findall(r'id="([a-z][0-9a-f]{10})"', svg)))
    }
    return re.sub(r"\b[a-z][0-9a-f]{10}\b", lambda found: ids.get(found[0], found[0]), svg)


def contents(observations):
    """{kind/name: text} of every table and figure of the checkout that is on the import path."""
    from bench import cells, registry
    from bench.html import text
    from bench.observations import store
    from bench.topics import tables
    from llm_measured.core import tables as core_tables

    made = tables.tables(store.load(folder=observations))
    found = {f"file/{name}": core_tables.csv_text(table) for name, table in made.items()}
    for name in cells.choose("all"):
        picture = io.BytesIO()
        cells.draw(name).savefig(picture, format="svg", metadata={"Date": None})
        found[f"figure/{name}"] = numbered(picture.getvalue().decode())
    return found | {f"table/{name}": text(table()) for name, table in registry.TABLES.items()}


def dump(checkout, observations):
    """`contents` of `checkout`, computed by an interpreter of its own in it."""
    command = [sys.executable, str(Path(__file__).resolve()), "--dump", str(observations)]
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{checkout}: {done.stderr}")
    return json.loads(done.stdout)


def compare(before, after):
    """Print what differs between two results of `contents`; returns how many entries do."""
    different = 0
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name, ""), after.get(name, "")
        if old != new:
            different += 1
            lines = difflib.unified_diff(
                old.splitlines(), new.splitlines(), "before", "after", lineterm="", n=0
            )
            print(f"{name} differs:", *[line[:160] for line in list(lines)[:12]], sep="\n  ")
    print(
        f"{len(before.keys() | after.keys()) - different} of {len(before.keys() | after.keys())} are identical."
    )
    return different


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkouts", nargs="*", type=Path, help="the two checkouts")
    parser.add_argument(
        "--observations", type=Path, help="folder of the observations; default: those of the first checkout"
    )
    parser.add_argument("--dump", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.dump:
        sys.stdout.write(json.dumps(contents(given.dump)))
        return 0
    if len(given.checkouts) != 2:
        parser.error("name two checkouts")
    before, after = (path.resolve() for path in given.checkouts)
    observations = (given.observations or before / "_llama-inference").resolve()
    return int(bool(compare(dump(before, observations), dump(after, observations))))


if __name__ == "__main__":
    sys.exit(main())
