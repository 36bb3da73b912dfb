"""Observations: the schema, writing one run, loading all, and the checks that keep impossible numbers
out.

A run is one process of one experiment on one backend, option, model and device:
`_llama-inference/<backend>/<run>.csv` with one row per request, `<run>.json` with where it came from,
`<run>.ipynb` as it was executed. Written once, whole or not at all. A run that shared its machine lies in
`_llama-inference/shared/<backend>/`, with the reason in its sidecar; it is read only where it is asked for.
"""

import csv
import hashlib
import itertools
import json
import math
import subprocess
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from bench.observations import checks, derived, peaks, provenance, schema
from bench.paths import COMMITTED, RESULTS, ROOT
from llm_measured.core import naming
from llm_measured.core.definitions import Fields
from llm_measured.core.files import csv_text, write_whole

# Tables of this study are cut into thousands of small ones, and a selection of a few rows costs twice as much
# where their texts are Arrow's.
pd.set_option("mode.string_storage", "python")

# Experiments whose committed runs stay as files and enter no table, with the reason that Method gives.
WITHDRAWN = dict.fromkeys(
    ["bursts_conv", "bursts_code"],
    "all levels replay the first 120 requests of a trace, one uncommonly uneven stretch of it, so nothing "
    "follows for the whole",
)
WITHDRAWN |= dict.fromkeys(["memory", "steps", "replay"], "the experiment was removed")
WITHDRAWN["overhead"] = "the experiment was removed; the table overhead is computed from its files"

PARTIAL = ".partial"  # suffix of the levels of a run that has not ended (`partial`)
SHARED = "shared"  # folder of the runs that shared their machine, below the others'; git ignores it


def withdrawn(files: Iterable[Path]) -> list[tuple[str, str]]:
    """Return (run, why it enters no table) of those of `files` whose experiment was WITHDRAWN."""
    return [
        (f"{file.parent.name}/{file.stem}", why)
        for file in files
        for name, why in WITHDRAWN.items()
        if file.name.startswith(f"{name}-")
    ]


def path(identifier: str, suffix: str = ".csv", folder: str | Path | None = None) -> Path:
    """File of the run `identifier` with that suffix."""
    return Path(folder or RESULTS) / f"{identifier}{suffix}"


def shared_folder(folder: str | Path | None = None) -> Path:
    """Where the runs of `folder` lie that shared their machine."""
    return Path(folder or RESULTS) / SHARED


def next_number(identity: dict[str, str], folder: str | Path | None = None) -> int:
    """The first repeat of `identity` (arguments of run_id but n) that has not been measured, alone or beside
    others: 1, 2, …"""
    return _first_free(lambda n: naming.run_id(**identity, n=n), folder)


def begun(identity: dict[str, str], folder: str | Path | None = None) -> int | None:
    """The lowest repeat of `identity` (arguments of run_id but n) that has not ended and has left levels on
    disk; None without one."""
    name = path(naming.run_id(**identity, n=""), "", folder)
    files = list(name.parent.glob(f"{name.name}*{PARTIAL}"))
    numbers = [naming.split_number(file.stem)[1] for file in files if not file.with_suffix(".csv").exists()]
    return min((int(number) for number in numbers if number.isdigit()), default=None)


def _first_free(identifier: Callable[[int], str], folder: str | Path | None) -> int:
    folders = Path(folder or RESULTS), shared_folder(folder)

    def taken(n: int) -> bool:
        return any(
            path(identifier(n), suffix, each).exists() for each in folders for suffix in (".csv", PARTIAL)
        )

    return next(n for n in itertools.count(1) if not taken(n))


def _unwritten(identifier: str, folder: str | Path | None) -> Path:
    """Path of the CSV of `identifier`; FileExistsError if it exists: observations are never overwritten."""
    target = path(identifier, folder=folder)
    if target.exists():
        raise FileExistsError(
            f"{target} has been measured already; observations are never overwritten. Leave `run` at 0 for "
            "the next number."
        )
    return target


def write(
    rows: Iterable[Fields],
    sidecar: Fields,
    identifier: str,
    folder: str | Path | None = None,
    scratch: bool = False,
    marked: bool = False,
) -> Path:
    """Write one run through all validity checks and return the CSV's path; the CSV comes last: a run without
    it does not exist.

    A run that shared its machine is written and marked where it is a `scratch` run, in a folder of one's own,
    or may be `marked`: that one goes to `shared_folder`.
    Rejected if a check fails, FileExistsError if the run has been measured before, OSError if the disk is
    full.
    """
    target = _unwritten(identifier, folder)
    table = schema.frame(rows)
    sidecar = json.loads(json.dumps(sidecar))
    checks.check(table, sidecar, identifier, scratch, marked)
    if "shared" in sidecar and not scratch:
        target = _unwritten(identifier, shared_folder(folder))
    elif target.is_relative_to(COMMITTED):
        checks.committed(sidecar)
    _write_both(target, table, sidecar)
    return target


def _write_both(target: Path, table: pd.DataFrame, sidecar: Fields) -> None:
    """Write the sidecar, with the SHA-256 of the CSV in it, and then the CSV."""
    text = csv_text(table)
    sidecar = sidecar | {"csv_sha256": hashlib.sha256(text.encode()).hexdigest()}
    write_whole(target.with_suffix(".json"), json.dumps(sidecar, indent=1) + "\n")
    write_whole(target, text)


def files(folder: str | Path | None = None) -> list[Path]:
    """Paths of the CSVs of all runs, sorted; those in `schema.NOT_RUNS` are none."""
    folder = Path(folder or RESULTS)
    return sorted(p for p in folder.glob("*/*.csv") if p.parent.name not in schema.NOT_RUNS)


def committed_files() -> list[Path]:
    """Return the paths of the CSVs of all runs that git keeps."""
    listing = ["git", "ls-files", f"{COMMITTED.name}/*.csv"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [ROOT / name for name in names if Path(name).parent.name not in schema.NOT_RUNS]


def is_published(file: Path) -> bool:
    """Whether a run's file is one of the repository's own observations, which no run is that shared its
    machine."""
    published = COMMITTED.resolve()
    return file.resolve().is_relative_to(published) and not file.resolve().is_relative_to(published / SHARED)


def read(file: Path) -> tuple[pd.DataFrame, Fields]:
    """(rows as the CSV has them, sidecar) of one run; ValueError naming the file if either is not what the
    schema says."""
    file = Path(file)
    try:
        with open(file, newline="") as source:
            reader = csv.DictReader(source)
            rows = list(reader)
        if reader.fieldnames not in schema.LAYOUTS:
            raise ValueError(f"its columns are {reader.fieldnames}")
        return rows, json.loads(file.with_suffix(".json").read_text())
    except (OSError, ValueError, csv.Error) as error:
        raise ValueError(
            f"{file} is not a run of this study: {error}. Measure it again, or move it away."
        ) from error


def devices(identifier: str, folder: str | Path | None = None) -> int:
    """How many devices the run `identifier` used at once: those that share the model, times its replicas. 0
    if there is no such run."""
    file = path(identifier, folder=folder)
    if not file.exists():
        return 0
    with open(file, newline="") as source:
        first = next(csv.DictReader(source), {})
    return math.prod(int(float(first.get(column) or 1)) for column in schema.DEVICES)


def load(
    paths: Iterable[Path] | None = None,
    experiment: str | None = None,
    folder: str | Path | None = None,
    shared: bool = False,
) -> pd.DataFrame:
    """All requests of the runs `paths` (default: every run) with derived columns; an empty frame with all
    columns if there are none.

    With `shared` also those of the runs in `shared_folder`: the column shared_by tells them from the others.
    A run that a check rejects by what its files hold is not among them (`judged` names it), nor is one of an
    experiment that was WITHDRAWN.
    """
    if paths is None:
        paths = [*files(folder), *(files(shared_folder(folder)) if shared else [])]
    runs = read_all([Path(p) for p in paths])
    kept = ~runs.rows["file"].isin(checks.rejected(runs)) & ~runs.rows["experiment"].isin(WITHDRAWN)
    everything = runs.rows[kept].drop(columns="file")
    everything = everything.reset_index(drop=True)
    contended = [name for name, sidecar in zip(runs.identifiers, runs.sidecars) if sidecar.get("shared")]
    if contended and not shared:
        warnings.warn(
            f"{len(contended)} of {len(runs.sidecars)} runs shared their machine with other processes, so "
            f"their times are no measurement ({contended[0]}; its sidecar says how much).",
            stacklevel=2,
        )
    # What is no request, such as the accuracy of load clients, lies beside them.
    everything.attrs["folder"] = str(folder or RESULTS)
    return everything[everything["experiment"] == experiment] if experiment else everything


def read_all(paths: Iterable[Path], alone: bool = False) -> checks.Runs:
    """The runs `paths` (CSV files) as the validity checks see them, a `checks.Runs` with derived columns.

    `alone`: each against its own highest probe, whatever those of others say of it and of the machine.
    """
    rows, sidecars = [], []
    for place, file in enumerate(paths):
        run, sidecar = read(file)
        more = derived.context(sidecar) | {"file": place}
        rows += [row | more for row in run]
        sidecars.append(sidecar)
    table = schema.numbers(pd.DataFrame(rows, columns=[*schema.COLUMNS, *schema.CONTEXT, "file"]))
    own = {k for k, file in enumerate(paths) if is_published(file)}
    names = [f"{file.parent.name}/{file.stem}" for file in paths]
    if not alone:
        table = peaks.of_sessions(derived.without_poor_peaks(table), sidecars)
    rows = derived.derive(table)
    return checks.Runs(rows, sidecars, names, frozenset(own))


def judged(
    paths: Iterable[Path] | None = None, folder: str | Path | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(counts, refused) of the runs `paths` (default: every run): what the checks say of them when read.

    counts: one row per check; columns check, checked, not_checked (runs that it concerns, whose files lack
    what it needs), refused (a run that several refuse counts with the first). refused: one row per run that
    falls; columns run, check, reason.
    """
    runs = read_all([Path(p) for p in paths] if paths is not None else files(folder))
    refused_runs = checks.rejected(runs)
    rows = [(runs.identifiers[file], check, reason) for file, (check, reason) in sorted(refused_runs.items())]
    refused = pd.DataFrame(rows, columns=["run", "check", "reason"])
    held = checks.held(runs).groupby("check", sort=False)["checked"].agg(checked="sum", concerned="size")
    counts = held.reindex(list(checks.CHECKS), fill_value=0).rename_axis("check").reset_index()
    counts["not_checked"] = counts["concerned"] - counts["checked"]
    counts["refused"] = counts["check"].map(refused["check"].value_counts()).fillna(0).astype(int)
    return counts[["check", "checked", "not_checked", "refused"]], refused


def peaks_id(gpu: str, host: str, n: int | str) -> str:
    """The path of one measurement of a device's peaks without its suffix."""
    return f"hardware/roofs-{gpu}-{host}-{n}"


def accuracy_id(gpu: str, host: str, n: int | str) -> str:
    """The path of one comparison of load clients without its suffix."""
    return f"clients/accuracy-{gpu}-{host}-{n}"


def write_peaks(peaks: pd.DataFrame, gpu: str, host: str, machine: Fields, parameters: Fields) -> Path:
    """Write the peaks of one device (columns schema.PEAKS) with their provenance; returns the CSV's path.

    `machine` goes into the sidecar (`identity.describe`), `parameters` are the notebook's. FileExistsError as
    in `write`.
    """
    return _write_apart(peaks_id, peaks, gpu, host, machine, parameters)


def write_accuracy(
    rows: Iterable[Fields], gpu: str, host: str, machine: Fields, parameters: Fields, **more: Any
) -> Path:
    """Write one comparison of load clients (columns schema.ACCURACY) with its provenance; returns the CSV's
    path.

    `more` goes into the sidecar. FileExistsError as in `write`; Rejected where no client came to an end.
    """
    table = pd.DataFrame(rows, columns=schema.ACCURACY)
    if (table["error"] != "").all():
        why = table["error"].iloc[0] if len(table) else "none was run"
        raise checks.Rejected(
            f"No load client came to an end, so nothing was measured; the first error was: {why}"
        )
    return _write_apart(accuracy_id, table, gpu, host, machine, parameters, **more)


def _write_apart(
    identifier: Callable[[str, str, int], str],
    table: pd.DataFrame,
    gpu: str,
    host: str,
    machine: Fields,
    parameters: Fields,
    **more: Any,
) -> Path:
    """Write a table that is no run, with its provenance; `identifier` is a function of gpu, host and
    number."""
    folder = ROOT / parameters["results"] if parameters["results"] else None
    n = parameters["run"] or _first_free(lambda n: identifier(gpu, host, n), folder)
    target = _unwritten(identifier(gpu, host, n), folder)
    sidecar = {
        "packages": provenance.packages(),
        "git": provenance.git_state(),
        "machine": machine,
        "parameters": parameters,
        "ended": provenance.now(),
    } | more
    _write_both(target, table.assign(gpu=gpu, host=host), sidecar)
    return target


def accuracy_files(folder: str | Path | None = None) -> list[Path]:
    """Paths of the CSVs of all comparisons of load clients, sorted."""
    return sorted(Path(folder or RESULTS).glob("clients/accuracy-*.csv"))


def load_accuracy(folder: str | Path | None = None) -> pd.DataFrame:
    """All comparisons of load clients: the columns schema.ACCURACY, gpu, host, run and measured.

    `run` is the file's name without its suffix, `measured` when it ended.
    """
    tables = []
    for file in accuracy_files(folder):
        ended = json.loads(file.with_suffix(".json").read_text())["ended"]
        tables.append(pd.read_csv(file, dtype=schema.WORDS).assign(run=file.stem, measured=ended))
    nothing = pd.DataFrame(columns=[*schema.ACCURACY, "gpu", "host", "run", "measured"])
    table = pd.concat(tables, ignore_index=True) if tables else nothing
    return table.assign(error=table["error"].fillna(""), version=table["version"].fillna(""))
