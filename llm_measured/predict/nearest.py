"""The published cases that come nearest to a setup, and those that are exactly it."""

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

FILE = Path(__file__).with_name("cases.csv.gz")
COLUMNS = [
    *("source", "row_id", "source_url", "measured_by", "measured_on", "engine_version", "rows", "rate"),
    *(
        "machine",
        "family",
        "architecture",
        "accelerators",
        "split",
        "bandwidth",
        "model",
        "mixture",
        "active",
    ),
    *("format", "bits", "engine", "engine_family", "context", "users"),
]


@cache
def published() -> pd.DataFrame:
    """One row per published case; columns COLUMNS, rate in tokens/s of each user."""
    return pd.read_csv(FILE)


def write(cases: pd.DataFrame) -> None:
    """Keep `cases`, to be shown beside an answer."""
    table = cases.loc[cases["fine"], COLUMNS]
    table.to_csv(
        FILE,
        index=False,
        float_format="%.5g",
        lineterminator="\n",
        compression={"method": "gzip", "mtime": 1},
    )


def distance(asked: pd.Series, table: pd.DataFrame) -> np.ndarray:
    """How far each of `table` is from the setup `asked`, of which a reader would say: another accelerator is
    further than another model, and that further than another engine."""
    alike = np.where(table["architecture"] == asked["architecture"], 1.5, 3)
    far = np.where(table["machine"] == asked["machine"], 0, alike)
    far = far + np.where(table["model"] == asked["model"], 0, 1)
    far += np.abs(np.log(table["active"].to_numpy() / asked["active"]))
    same = (table["engine"] == asked["engine"]).to_numpy()
    family = (table["engine_family"] == asked["engine_family"]).to_numpy()
    far += 0 if asked["engine_family"] == "any" else np.where(same, 0, np.where(family, 0.75, 1.5))
    far += np.where(table["mixture"] == asked["mixture"], 0, 1.5)
    far += 0.3 * np.abs(np.log2(table["bits"].to_numpy() / asked["bits"]))
    far += np.abs(np.log2(table["accelerators"].to_numpy() / asked["accelerators"]))
    far += 0.5 * np.abs(np.log2(table["users"].to_numpy() / asked["users"]))
    return far + 0.2 * np.abs(np.log2((table["context"].to_numpy() + 512) / (asked["context"] + 512)))


def of(setup: pd.Series, count: int, table: pd.DataFrame | None = None) -> pd.DataFrame:
    """The `count` published cases nearest to a setup, the nearest first: to one user those of one user, to
    several those of several."""
    table = published() if table is None else table
    table = table[(table["users"] == 1) == (setup["users"] == 1)]
    # Two that are equally far are in the table's order here and in the browser, whatever the last bits say.
    far = distance(setup, table).round(9)
    return table.iloc[np.argsort(far, kind="stable")[:count]]


def exact(setup: pd.Series) -> pd.DataFrame:
    """Published cases of the very setup: accelerator and number, model, format, engine family, a context
    within a factor of four, and as many users within a factor of one and a half."""
    table = published()
    same = np.logical_and.reduce(
        [
            table[name] == setup[name]
            for name in ("machine", "accelerators", "model", "format", "engine_family")
        ]
    )
    ratio = np.log((table["context"] + 512) / (setup["context"] + 512)).abs()
    load = np.log(table["users"] / setup["users"]).abs()
    return table[same & (load < np.log(1.5)) & (ratio < np.log(4))].sort_values("rate", ascending=False)
