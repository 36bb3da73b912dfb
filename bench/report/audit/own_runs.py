"""The audit of a study's own runs, which is kept beside them: a run is audited once, not by each site.

    make audit-runs    # writes data/audits/own_runs.csv: after new runs, or when a check has changed

A row holds for a run as it was and for the checks as they were (`key`). Without one that still holds the run
is audited again, which takes a site longer and changes nothing else.
"""

import concurrent.futures
import hashlib
import multiprocessing
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from bench import memo
from bench.paths import DATA
from llm_measured.audit import checks, frame, importers
from llm_measured.audit.checks.finding import KINDS, MISSING, Finding
from llm_measured.core import files
from llm_measured.core.definitions import Fields

TABLE = "audits/own_runs"
ALL = "all runs together"  # the row of what shows only across files
COLUMNS = ["run", "key", *KINDS, "alarms"]
ALONE = 40  # runs to audit from which on a process more is worth its start


def audited(runs: Sequence[Path], cores: int = 1) -> pd.DataFrame:
    """What the audit finds in each of the `runs` (paths of their CSVs), on so many cores.

    One row per run and one for ALL of them; columns COLUMNS: the number of findings of each kind, and the
    sentences of those that are alarms (impossible, or a contradiction).
    """
    if not runs:
        return pd.DataFrame(columns=COLUMNS)
    keys = {file: _key(_content(file)) for file in runs}
    together = _key(*map(_content, runs))
    known = _known()
    missing = [file for file in runs if keys[file] not in known]
    if missing:
        known |= {row["key"]: row for row in _on_cores(_alone, missing, cores)}
    rows = [known[keys[file]] for file in runs]
    if together not in known:
        named = zip(runs, frame.distinct(file.name for file in runs))
        known[together] = _row(ALL, together, checks.run_across(frame.join([_read(*each) for each in named])))
    return pd.DataFrame([*rows, known[together]], columns=COLUMNS)


def _known() -> dict[str, Fields]:
    """The rows of the committed table by their keys."""
    file = DATA / f"{TABLE}.csv"
    if not file.exists():
        return {}
    table = pd.read_csv(file, dtype={"key": str})  # a key of digits alone is no number
    table["alarms"] = table["alarms"].astype(object).fillna("")
    return dict(zip(table["key"], table.to_dict("records")))


def _code() -> str:
    """What the checks compute, and what reads a run."""
    return memo.code("bench.report.audit.own_runs", memo.computes)


def _content(file: Path) -> str:
    """A run's name and content, its sidecar included."""
    total = hashlib.sha256(f"{file.parent.name}/{file.name}".encode())
    for part in (file, file.with_suffix(".json")):
        total.update(part.read_bytes() if part.exists() else b"")
    return total.hexdigest()


def _key(*contents: str) -> str:
    return hashlib.sha256("".join([_code(), *contents]).encode()).hexdigest()[:16]


def _on_cores(function, runs, cores):
    """`function` of each of the `runs`, on so many cores, in their order."""
    cores = min(cores, 1 + len(runs) // ALONE)
    if cores == 1:
        return list(map(function, runs))
    start = multiprocessing.get_context("spawn")  # no fork: the kernel of a page has threads
    with concurrent.futures.ProcessPoolExecutor(cores, mp_context=start) as pool:
        return list(pool.map(function, runs, chunksize=10))


def _alone(file: Path) -> Fields:
    """The row of one run, of the checks that look at one file at a time."""
    return _row(
        f"{file.parent.name}/{file.stem}", _key(_content(file)), checks.run_alone(_read(file, file.name))
    )


def _read(file: Path, name: str) -> frame.Audited:
    read = importers.read(file)
    read.levels["file"] = name
    return read


def _row(run: str, key: str, found: Iterable[Finding]) -> Fields:
    found = list(found)
    counts = {kind: sum(one.kind == kind for one in found) for kind in KINDS}
    alarms = " ".join(one.sentence for one in found if one.kind != MISSING)
    return {"run": run, "key": key, **counts, "alarms": alarms}


def write(runs: Sequence[Path], cores: int = 1) -> None:
    """Write the committed table of `audited`, sorted by run; print how many findings of each kind it has."""
    table = audited(runs, cores).sort_values("run")
    files.write_whole(DATA / f"{TABLE}.csv", files.csv_text(table))
    print(table[[*KINDS]].sum().to_string())
