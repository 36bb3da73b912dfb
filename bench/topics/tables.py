"""Topics: the requests of all runs in, one tidy table out, written as a CSV that a person opens with pandas.

    python -m bench.topics.tables            the committed runs -> data/tables/<topic>.csv (`make tables`)
    python -m bench.topics.tables own        committed, own and shared runs -> tables/ (`make study`)
    python -m bench.topics.tables check      1 where data/tables is not what the committed runs give

TABLES maps the name of a table to the function that makes its rows of the requests of one machine, in stored
units (seconds, bytes, tokens/s). Rows carry `machine`, `own` (runs that are not committed are among them) and
`shared_by` (with which processes a run shared its machine: no measurement). Labelled cells of pages read the
CSVs and compute nothing again, and so do headlines, README and Method.
"""

import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pandas as pd

from bench import paths
from bench.observations import store
from bench.topics import (
    across_machines,
    batching,
    client_accuracy,
    conversations,
    declared,
    drafting,
    humaneval,
    machines,
    passes,
    quality,
    serving,
    sizes,
    systems,
    tokens,
    validity,
)
from bench.topics import latency as latency_topic
from llm_measured.core import tables as core_tables
from llm_measured.core.files import write_whole


def tables(requests: pd.DataFrame, files: list[Path] | None = None) -> dict[str, pd.DataFrame]:
    """Return {name: rows} of every topic; `files` are those that `requests` were read from (default: all of
    their folder)."""
    labels = {tuple(rows[machines.MACHINE].iloc[0]): label for label, rows in machines.labelled(requests)}
    found = {name: of_each_machine(requests, table) for name, table in TABLES.items()}
    found |= {name: _in_order(table(requests), labels) for name, table in OF_ALL.items()}
    found |= {name: table(requests) for name, table in BESIDE.items()}
    committed = {file.stem for file in store.files(paths.COMMITTED)}
    own = set(requests.loc[~requests["run_id"].str.split("/").str[-1].isin(committed), "host"])
    found = {name: table.assign(own=table["host"].isin(own)) for name, table in found.items()}
    return found | {
        "across_machines": across_machines.table(requests),
        "systems": systems.table(requests, found["latency"]),
        **validity.tables(files if files is not None else store.files(requests.attrs.get("folder"))),
    }


def _in_order(table: pd.DataFrame, labels: dict[tuple[str, ...], str]) -> pd.DataFrame:
    """Return `table` with the column `machine`, the rows of each machine after those of the one before."""
    place = {machine: number for number, machine in enumerate(labels)}
    keys = list(table[machines.MACHINE].itertuples(index=False, name=None))
    table = table.assign(machine=[labels[key] for key in keys], place=[place[key] for key in keys])
    return table.sort_values("place", kind="stable", ignore_index=True).drop(columns="place")


def write(requests: pd.DataFrame, folder: Path, files: list[Path] | None = None) -> list[Path]:
    """Write every table of `requests` into `folder`, each whole or not at all; return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    found = tables(requests, files)
    for name, table in found.items():
        write_whole(folder / f"{name}.csv", core_tables.csv_text(table))
    return [folder / f"{name}.csv" for name in found]


def of_folder(folder: Path) -> Path | None:
    """Write the tables of the runs in `folder` into its folder `tables` and return that; None for that of the
    committed runs, whose tables are in data/tables."""
    if folder.resolve() == paths.COMMITTED.resolve():
        return None
    write(store.load(folder=folder, shared=True), folder / "tables")
    return folder / "tables"


def differences(requests: pd.DataFrame, folder: Path, files: list[Path] | None = None) -> list[str]:
    """Return a sentence for each table of `requests` that differs from its file in `folder`."""
    return core_tables.differences(tables(requests, files), folder, declared.read, "make tables")


def of_each_machine(requests: pd.DataFrame, table: Callable[[pd.DataFrame], pd.DataFrame]) -> pd.DataFrame:
    """Return the rows that `table` makes of the requests of each machine, the default machine's first.

    The column `machine` is the label of a device and its host, which is the device where no other host has
    it.
    """
    parts = [table(rows).assign(machine=label) for label, rows in machines.labelled(requests)]
    filled = [part for part in parts if len(part)] or parts[:1]
    return pd.concat(filled, ignore_index=True) if filled else table(requests).assign(machine="")


def latency(requests: pd.DataFrame) -> pd.DataFrame:
    """Return means of one regression of all machines with half the width of their 95 % intervals.

    output_tokens_per_s_runs has the rate of each run, in the order of measuring; reason says why a row was
    not compared, may_be_best which rows may be the best of their machine and model (Holm).
    """
    table = latency_topic.summary(machines.every(requests, "latency"))
    table = quality.beside(table, requests)
    return latency_topic.rates_as_words(table)


def _machines(requests: pd.DataFrame) -> pd.DataFrame:
    """Return one row per machine: how much it has measured, when, and its best probed bandwidth."""
    return requests.groupby(machines.MACHINE, as_index=False).agg(
        runs=("run_id", "nunique"),
        requests=("run_id", "size"),
        first_measured=("started", "min"),
        last_measured=("started", "max"),
        fastest_probe_bytes_per_s=("fastest_probe_bytes_per_s", "max"),
    )


def _has_own() -> bool:
    """Whether there are runs that git does not keep."""
    here = [*store.files(), *store.files(store.shared_folder())]
    return paths.RESULTS != paths.COMMITTED or not set(here) <= set(store.committed_files())


def _alone(table: Callable[[pd.DataFrame], pd.DataFrame]) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Return `table` of the runs that had their machine to themselves."""

    def of_unshared(requests: pd.DataFrame) -> pd.DataFrame:
        rows = requests[requests["shared_by"] == ""]
        rows.attrs = requests.attrs
        return table(rows)

    return of_unshared


# Of each machine alone, the default machine's rows first.
TABLES = {
    "batching": _alone(batching.sweeps),
    "prompt_cost": _alone(batching.prompt_cost),
    "serving": _alone(serving.levels),
    "serving_goals": _alone(serving.goal),
    "conversations": _alone(conversations.table),
    "conversation_turns": _alone(conversations.turns_table),
    "humaneval": humaneval.table,
}
# Of all machines at once, because their scatter is pooled or one solved what another was asked.
OF_ALL = {
    "latency": latency,
    "context": _alone(batching.context),
    "passes": _alone(passes.table),
    "quality": quality.table,
    "drafts": drafting.table,
    "humaneval_bits": humaneval.by_bits,
    "humaneval_problems": humaneval.problems,
    "machines": _machines,
    "runs": latency_topic.runs_table,
    "sizes": sizes.table,
    "sizes_pairs": sizes.pairs,
    "sizes_law": sizes.laws,
    "sizes_predicted": sizes.predictions,
    "tokens": tokens.table,
}
# Of comparisons that lie beside the runs; they know their machines.
BESIDE = {"client_accuracy": client_accuracy.table}


def main(arguments: Iterable[str]) -> int:
    """Write or check the tables; return the exit code."""
    wish = next(iter(arguments), "")
    if wish == "own":
        if not _has_own():  # data/tables has everything; tables of before would hide what a pull brings
            shutil.rmtree(paths.OWN_TABLES, ignore_errors=True)
            print(f"No runs but the committed ones: {paths.TABLES} is read.")
            return 0
        for path in write(store.load(shared=True), paths.OWN_TABLES):
            print(path)
        return 0
    files = store.committed_files()
    requests = store.load(files)
    if wish == "check":
        wrong = differences(requests, paths.TABLES, files)
        print("\n".join(wrong) or f"{paths.TABLES} is what the committed runs give.")
        return 1 if wrong else 0
    for path in write(requests, paths.TABLES, files):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
