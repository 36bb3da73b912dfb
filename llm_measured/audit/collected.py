"""Alarms on files that people have published: what an audit of each says that cannot be true.

python -m llm_measured.audit.collected ../shared/observatory    # writes data/audits/collected.csv

Nobody knows which of them hold a mistake: every alarm is printed, to be read by hand.
"""

import sys
from pathlib import Path

import pandas as pd

from llm_measured.audit import checks, importers
from llm_measured.audit.checks.finding import CONTRADICTION, IMPOSSIBLE, Finding

SUFFIXES = (".json", ".jsonl", ".csv", ".tsv", ".md")
TABLE = "audits/collected"
COLUMNS = ["source", "strength", "check"]
UNREAD, PASSED = "not read", "no alarm"


def alarms(file: Path) -> list[Finding] | None:
    """The impossible and contradictory findings in one file; None where no importer reads it."""
    try:
        found = checks.run(importers.read(file))
    except ValueError:
        return None
    return [one for one in found if one.kind in (IMPOSSIBLE, CONTRADICTION)]


def counted(folder: Path) -> pd.DataFrame:
    """What becomes of each file in the folders of `folder`, one row per source (folder), strength and check:
    columns source, strength, check and files.

    Every file counts once, by its first alarm, which explains the most. strength is that alarm's kind, PASSED
    where there is none, UNREAD where no importer reads the file; check is empty in these two. Prints every
    alarm.
    """
    rows = []
    for source in sorted(path for path in folder.iterdir() if path.is_dir()):
        for file in sorted(path for path in source.rglob("*") if path.suffix in SUFFIXES and path.is_file()):
            found = alarms(file)
            for one in found or []:
                print(f"{file.relative_to(folder)}: {one.kind}: {one.check}: {one.sentence}", flush=True)
            first = (found[0].kind, found[0].check) if found else (UNREAD if found is None else PASSED, "")
            rows.append((source.name, *first))
    return (
        pd.DataFrame(rows, columns=COLUMNS)
        .groupby(COLUMNS, as_index=False)
        .size()
        .rename(columns={"size": "files"})
    )


if __name__ == "__main__":
    table = counted(Path(sys.argv[1]))
    table.to_csv(Path("data", f"{TABLE}.csv"), index=False, lineterminator="\n")
    print(table.to_string(index=False))
