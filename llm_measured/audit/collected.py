"""Alarms on files that people have published: what an audit of each says that cannot be true.

python -m llm_measured.audit.collected ../shared/observatory    # writes data/audits/collected.csv, and prints
                                                                # twenty alarms of each check, to be read

Nobody knows which of them hold a mistake: `data/audits/ALARMS_READ.md` says of those drawn what the raw file
has.
"""

import sys
from pathlib import Path

import pandas as pd

from llm_measured.audit import checks, importers
from llm_measured.audit.checks.finding import ALARMS, Finding
from llm_measured.audit.report import result_files

TABLE = "audits/collected"
COLUMNS = ["source", "strength", "check"]
UNREAD, PASSED = "not read", "no alarm"
DRAWN, SEED = 20, 44  # alarms of each check that are read by hand, and how they are drawn


def alarms(file: Path) -> list[Finding] | None:
    """The findings in one file that are no mere gaps; None where no importer reads it."""
    try:
        found = checks.run(importers.read(file))
    except ValueError:
        return None
    return [one for one in found if one.kind in ALARMS]


def raised(folder: Path) -> pd.DataFrame:
    """Every alarm on the files in the folders of `folder`, one row each: source (folder), file, strength (the
    alarm's kind), check, sentence, follows (from which other check's finding).

    A file without an alarm, or that no importer reads, is one row of PASSED or UNREAD, the rest empty.
    """
    rows = []
    for source in sorted(path for path in folder.iterdir() if path.is_dir()):
        for file in result_files(source):
            found = alarms(file)
            name = str(file.relative_to(source))
            if not found:
                rows.append((source.name, name, UNREAD if found is None else PASSED, "", "", ""))
            for one in found or []:
                rows.append((source.name, name, one.kind, one.check, one.sentence, one.consequence_of))
    return pd.DataFrame(rows, columns=["source", "file", "strength", "check", "sentence", "follows"])


def counted(every: pd.DataFrame) -> pd.DataFrame:
    """What becomes of each file of `raised`, one row per source, strength and check: columns source,
    strength, check and files. Every file counts once, by its first alarm, which explains the most."""
    first = every.drop_duplicates(["source", "file"])
    return first.groupby(COLUMNS, as_index=False).size().rename(columns={"size": "files"})


def drawn(every: pd.DataFrame) -> pd.DataFrame:
    """The alarms of `raised` that are read by hand: of each check DRAWN, or all where there are fewer."""
    parts = every[every["check"] != ""].groupby("check")
    chosen = [part.sample(min(DRAWN, len(part)), random_state=SEED).sort_index() for _, part in parts]
    return pd.concat(chosen, ignore_index=True) if chosen else every.iloc[:0]


if __name__ == "__main__":
    every = raised(Path(sys.argv[1]))
    table = counted(every)
    table.to_csv(Path("data", f"{TABLE}.csv"), index=False, lineterminator="\n")
    print(table.to_string(index=False))
    for row in drawn(every).itertuples():
        after = f" [follows from {row.follows}]" if row.follows else ""
        print(f"{row.check}: {row.source}/{row.file}: {row.sentence}{after}")
