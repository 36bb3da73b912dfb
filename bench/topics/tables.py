"""Topics: the requests of all runs in, one tidy table out, written as a CSV that a person opens with pandas.

    python -m bench.topics.tables            the committed runs -> data/tables/<topic>.csv (`make tables`)
    python -m bench.topics.tables own        committed, own and shared runs -> tables/ (`make study`)
    python -m bench.topics.tables check      1 where data/tables is not what the committed runs give

A topic is a module of this package with `tables(requests)`: {name of a table: its rows}, in stored units
(seconds,
bytes, tokens/s). Rows carry `machine`, `own` (runs that are not committed are among them) and `shared_by`
(with which
processes a run shared its machine: no measurement). Pages, figures and README read the CSVs and compute
nothing again.
"""

import io
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from bench import paths
from bench.observations import store
from bench.topics import batching, client_accuracy, conversations, humaneval, machines, quality, serving
from bench.topics import latency as latency_topic
from llm_measured.core.files import write_whole

TOLERANCE = 1e-5  # relative: the last digit that two processors may write otherwise


def tables(requests: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return {name: rows} of every topic."""
    found = {name: of_each_machine(requests, table) for name, table in TABLES.items()}
    found |= {name: table(requests) for name, table in BESIDE.items()}
    committed = {file.stem for file in store.files(paths.COMMITTED)}
    own = set(requests.loc[~requests["run_id"].str.split("/").str[-1].isin(committed), "host"])
    return {name: table.assign(own=table["host"].isin(own)) for name, table in found.items()}


def csv_text(table: pd.DataFrame) -> str:
    """Return `table` as the text of a CSV: six significant digits, whole numbers without a point."""
    written = table.copy()
    for name in written.select_dtypes("floating"):
        known = written[name].dropna()
        if len(known) and (known == known.round()).all() and known.abs().max() < 1e15:
            written[name] = written[name].astype("Int64")
    return written.to_csv(index=False, float_format="%.6g", lineterminator="\n")


def write(requests: pd.DataFrame, folder: Path) -> list[Path]:
    """Write every table of `requests` into `folder`, each whole or not at all; return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    found = tables(requests)
    for name, table in found.items():
        write_whole(folder / f"{name}.csv", csv_text(table))
    return [folder / f"{name}.csv" for name in found]


def differences(requests: pd.DataFrame, folder: Path) -> list[str]:
    """Return a sentence for each table of `requests` that differs from its file in `folder`.

    Columns and texts are compared exactly, numbers within TOLERANCE.
    """
    found = []
    for name, table in tables(requests).items():
        file = folder / f"{name}.csv"
        if not file.exists():
            found.append(f"{file} is missing: make tables.")
            continue
        before, now = read(file), _read_text(csv_text(table))
        if list(before) != list(now) or len(before) != len(now):
            found.append(f"{file}: other columns or another number of rows: make tables.")
            continue
        for column in now:
            if not _same(before[column], now[column]):
                found.append(
                    f"{file}: column {column} differs from what the committed runs give: make tables."
                )
    return found


def _same(before: pd.Series, now: pd.Series) -> bool:
    if pd.api.types.is_numeric_dtype(before) and pd.api.types.is_numeric_dtype(now):
        return bool(
            np.allclose(before.astype(float), now.astype(float), rtol=TOLERANCE, atol=0, equal_nan=True)
        )
    return bool((before.fillna("").astype(str) == now.fillna("").astype(str)).all())


# Texts that may look like numbers, or be empty in all rows.
WORDS = (
    "backend option model gpu host backend_version product shared_by note reason verdict machine "
    "run_id score_run not_judged reference "
    "arithmetic loop state goal workload arrivals history client version client_cores error"
)
TEXT = dict.fromkeys(WORDS.split(), str)


def read(file: Path | io.StringIO) -> pd.DataFrame:
    """Return the table of `file`; texts without a value are empty, numbers without one NaN."""
    table = pd.read_csv(file, dtype=TEXT, keep_default_na=True)
    texts = table.select_dtypes(exclude=["number", "bool"])
    return table.assign(**{name: table[name].fillna("") for name in texts})


def _read_text(text: str) -> pd.DataFrame:
    return read(io.StringIO(text))


def of_each_machine(requests: pd.DataFrame, table: Callable[[pd.DataFrame], pd.DataFrame]) -> pd.DataFrame:
    """Return the rows that `table` makes of the requests of each machine, the default machine's first.

    The column `machine` is the label of a device and its host, which is the device where no other host has
    it.
    """
    parts = [table(rows).assign(machine=label) for label, rows in machines.labelled(requests)]
    filled = [part for part in parts if len(part)] or parts[:1]
    return pd.concat(filled, ignore_index=True) if filled else table(requests).assign(machine="")


def latency(requests: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of one machine: means of the regression with half the width of their 95 % intervals.

    output_tokens_per_s_runs has the rate of each run, in the order of measuring; reason says why a row was
    not
    compared, may_be_best which rows may be the best of their machine and model (Holm).
    """
    table = latency_topic.summary(machines.every(requests, "latency"))
    table = quality.beside(table, requests)
    rates = [" ".join(f"{rate:.6g}" for rate in rates) for rates in table["rates"]]
    return table.drop(columns="rates").assign(output_tokens_per_s_runs=rates)


def _alone(table: Callable[[pd.DataFrame], pd.DataFrame]) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Return `table` of the runs that had their machine to themselves."""

    def of_unshared(requests: pd.DataFrame) -> pd.DataFrame:
        rows = requests[requests["shared_by"] == ""]
        rows.attrs = requests.attrs
        return table(rows)

    return of_unshared


# Of each machine alone, the default machine's rows first.
TABLES = {
    "latency": latency,
    "batching": _alone(batching.sweeps),
    "prompt_cost": _alone(batching.prompt_cost),
    "serving": _alone(serving.levels),
    "serving_goals": _alone(serving.goal),
    "conversations": _alone(conversations.table),
    "quality": quality.table,
    "humaneval": humaneval.table,
    "conversation_turns": _alone(conversations.turns_table),
}
# Of comparisons that lie beside the runs; they know their machines.
BESIDE = {"client_accuracy": client_accuracy.table}


def main(arguments: Iterable[str]) -> int:
    """Write or check the tables; return the exit code."""
    wish = next(iter(arguments), "")
    if wish == "own":
        requests = store.load(shared=True)
        for path in write(requests, paths.OWN_TABLES):
            print(path)
        return 0
    requests = store.load(store.committed_files())
    if wish == "check":
        wrong = differences(requests, paths.TABLES)
        print("\n".join(wrong) or f"{paths.TABLES} is what the committed runs give.")
        return 1 if wrong else 0
    for path in write(requests, paths.TABLES):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
