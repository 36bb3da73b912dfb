"""Levels of a run that has not ended: each is on disk before the next one begins.

    .venv/bin/python -m bench.observations.partial                  # which runs have not ended
    .venv/bin/python -m bench.observations.partial FILE             # make a run of the levels in FILE

The file `<run>.partial` lies where the run's CSV will be. It has one line of JSON per level: the level's rows
as CSV, and the sidecar as it would have been had the run ended there. A line that a kill or a full disk has
cut is no level. The file goes when the run is written.
"""

import argparse
import io
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from bench.observations import checks, schema, store
from bench.paths import RESULTS, ROOT
from llm_measured.core.definitions import Fields
from llm_measured.core.files import csv_text


def append(rows: Iterable[Fields], sidecar: Fields, identifier: str, folder: str | Path | None) -> Path:
    """Put the rows of one more level of the run `identifier` on disk; returns the file.

    OSError, with the file as it was before, where it cannot be written.
    """
    file = store.path(identifier, store.PARTIAL, folder)
    file.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"csv": csv_text(schema.frame(rows)), "sidecar": sidecar}) + "\n"
    with open(file, "ab") as out:
        before = out.tell()
        try:
            out.write(line.encode())
            out.flush()
            os.fsync(out.fileno())
        except BaseException:
            os.truncate(file, before)
            raise
    return file


def cut_to_whole(file: Path) -> None:
    """Take from `file` what a kill has left of a line at its end, so that a level may follow."""
    os.truncate(file, file.read_bytes().rfind(b"\n") + 1)


def levels(file: Path) -> list[tuple[pd.DataFrame, Fields]]:
    """[(rows of a level as a table, sidecar as of its end)] of a partial run; ValueError without any."""
    read = []
    for line in file.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            level = json.loads(line)
            table = pd.read_csv(io.StringIO(level["csv"]), dtype=str, keep_default_na=False, na_values=[])
            read.append((schema.numbers(table), level["sidecar"]))
    if not read:
        raise ValueError(f"{file} has no whole level.")
    return read


def finish(file: Path) -> tuple[Path, str]:
    """(CSV of the run made of the levels in `file`, why levels at its end are not in it; empty: all are).

    `file` goes once the run is written. checks.Rejected, with the first level's cause, where none may be
    published; OSError where the disk is full.
    """
    whole = levels(file)
    folder, identifier = file.parent.parent, f"{file.parent.name}/{file.stem}"
    scratch = folder.resolve() != RESULTS.resolve()
    why = ""
    for count in range(len(whole), 0, -1):
        rows = pd.concat([table for table, _ in whole[:count]], ignore_index=True)
        rows["sent_s"] -= rows["sent_s"].min()
        note = {"levels": count, "left_out": len(whole) - count, "why": why}
        sidecar = whole[count - 1][1] | {"recovered": note}
        try:
            path = store.write(rows.to_dict("records"), sidecar, identifier, folder, scratch)
        except checks.Rejected as refusal:
            why = why or str(refusal)
            continue
        file.unlink()
        return path, why and f"Without the last {len(whole) - count} of {len(whole)} levels: {why}"
    raise checks.Rejected(why)


def command(file: Path) -> str:
    """The command that makes a run of the levels in `file`."""
    shown = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file
    return f".venv/bin/python -m bench.observations.partial {shown}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: 0 where a run was written, or nothing was asked for."""
    parser = argparse.ArgumentParser(description="Make a run of the whole levels of one that did not end.")
    parser.add_argument("file", nargs="?", type=Path, help="none: list the runs that have not ended")
    file = parser.parse_args(arguments).file
    if file is None:
        for left in sorted(RESULTS.glob(f"*/*{store.PARTIAL}")):
            print(command(left))
        return 0
    try:
        path, why = finish(file.resolve())
    except (OSError, ValueError) as failure:
        print(f"{file} stays as it is: {failure}", file=sys.stderr)
        return 1
    print(f"{path}{f'. {why}' if why else ''}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
