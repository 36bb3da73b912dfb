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
    *("format", "scheme", "bits", "engine", "engine_family", "era", "context", "users", "crowd", "off"),
]
# How far cases of one machine are apart, for what is learnt from them of another: of each difference, of each
# doubling, and for what strangers sent in.
DIFFERENT = {"model": 0.7, "mixture": 1.0, "engine": 0.7, "era": 0.5, "scheme": 0.3, "split": 0.5}
DOUBLED = {"active": 0.35, "bits": 0.3, "accelerators": 0.7, "users": 0.4, "context": 0.2}
SENT_IN = 0.7
ALONE = 0.5  # the weight of the model against one source that measured exactly this


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


def shift(asked: pd.DataFrame, known: pd.DataFrame) -> np.ndarray:
    """What to add to the logarithm of each setup's seconds: the mean of what `known` cases of that machine
    and family of engines are `off`, each source's weighed by how near its nearest is. One user's cases speak
    for one user, those of several for several."""
    found = np.zeros(len(asked))
    known = known[known["machine"].isin(asked["machine"].unique())]
    keys = ["machine", "engine_family"]
    places = known.groupby([*keys, known["users"] == 1]).indices
    for key, rows in asked.groupby([*keys, asked["users"] == 1]).indices.items():
        if key not in places:
            continue
        setups, cases = asked.iloc[rows], known.iloc[places[key]]
        far = SENT_IN * cases["crowd"].to_numpy(dtype=float)[None, :].repeat(len(rows), axis=0)
        for name, weight in DIFFERENT.items():
            far += weight * (setups[name].to_numpy()[:, None] != cases[name].to_numpy())
        for name, weight in DOUBLED.items():
            least = 512.0 if name == "context" else 0.0
            one, other = (np.log2(each[name].to_numpy(dtype=float) + least) for each in (setups, cases))
            far += weight * np.abs(one[:, None] - other)
        near, off = np.exp(-far), cases["off"].to_numpy()
        top, bottom = np.zeros(len(rows)), np.full(len(rows), ALONE)
        for at in cases.groupby("source").indices.values():
            weights, most = near[:, at], near[:, at].max(axis=1)
            top += most * (weights @ off[at]) / weights.sum(axis=1)
            bottom += most
        found[rows] = top / bottom
    return found


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
