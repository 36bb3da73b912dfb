"""The published cases that come nearest to a setup, and those that are exactly it."""

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

FILE = Path(__file__).with_name("cases.csv.gz")
COLUMNS = ["source", "row_id", "source_url", "measured_by", "measured_on", "engine_version", "rows", "rate"]
COLUMNS += ["machine", "family", "architecture", "accelerators", "split", "bandwidth", "model", "mixture"]
COLUMNS += ["active", "format", "scheme", "bits", "engine", "engine_family", "era", "context", "users"]
COLUMNS += ["prompt", "answer", "kv_bits", "weight"]
# How unlike two cases of one machine and family of engines are: of each difference, and of each doubling.
DIFFERENT = {"model": 0.7, "mixture": 1.0, "engine": 0.7, "era": 0.5, "scheme": 0.3, "split": 0.5}
DOUBLED = {"active": 0.35, "bits": 0.3, "accelerators": 0.7, "users": 0.1, "context": 0.1}
DOUBLED |= {"prompt": 0.1, "kv_bits": 0.4}  # a prompt counts beside its answer
FEW_TOKENS = {"context": 512.0, "prompt": 64.0}  # that count as none
# Variances of what the model is off: of a setup whoever measures it, of a source, and of a case alone.
SETUP, SOURCE, CASE = 0.15, 0.04, 0.005
STUDENT, ROUNDS = 4.0, 6  # a case that the others contradict weighs little: its noise has Student's tails
BY = ["machine", "engine_family"]  # cases that differ in these say nothing of each other
CURVE = ["accelerators", "split", "model", "format", "engine"]  # and in none of these are one curve


@cache
def published() -> pd.DataFrame:
    """One row per published case; columns COLUMNS, rate in tokens/s of each user."""
    return pd.read_csv(FILE)


def write(cases: pd.DataFrame) -> None:
    """Keep `cases`, to be shown beside an answer."""
    table = cases.loc[cases["fine"], COLUMNS]
    packed = {"method": "gzip", "mtime": 1}
    table.to_csv(FILE, index=False, float_format="%.5g", lineterminator="\n", compression=packed)


def _alike(one: pd.DataFrame, other: pd.DataFrame) -> np.ndarray:
    """How alike each of `one` and each of `other` are, from 1 down to 0."""
    far = np.zeros((len(one), len(other)))
    for name, weight in DIFFERENT.items():
        codes, _ = pd.factorize(np.concatenate([one[name].to_numpy(), other[name].to_numpy()]))
        far += weight * (codes[: len(one), None] != codes[None, len(one) :])
    for name, weight in DOUBLED.items():
        logs = [_log(each, name) for each in (one, other)]
        far += weight * np.abs(logs[0][:, None] - logs[1])
    return np.exp(-far)


def _log(table: pd.DataFrame, name: str) -> np.ndarray:
    """The base-2 logarithm of a column of DOUBLED, that of a prompt less that of its answer."""
    few = FEW_TOKENS.get(name, 0.0)
    logs = np.log2(table[name].to_numpy(dtype=float) + few)
    return logs - np.log2(table["answer"].to_numpy(dtype=float) + few) if name == "prompt" else logs


def weighed(known: pd.DataFrame) -> pd.DataFrame:
    """`known` with the column weight, from which `shift` makes what to add (kriging; Rasmussen and Williams
    2006, 2.2); `off`: what the logarithm of each case's seconds is off. Only cases of several users
    have a weight."""
    weight = pd.Series(np.nan, known.index)
    for _, part in known[known["users"] > 1].groupby(BY):
        alike, source = _alike(part, part), part["source"].to_numpy()
        together = SETUP * alike + SOURCE * (source[:, None] == source) * (1 + alike) / 2
        noise = np.full(len(part), CASE)
        for _ in range(ROUNDS):
            weights = np.linalg.solve(together + np.diag(noise), part["off"].to_numpy())
            noise = (STUDENT * CASE + (noise * weights) ** 2) / (STUDENT + 1)
        weight[part.index] = weights
    return known.assign(weight=weight)


def shift(asked: pd.DataFrame, known: pd.DataFrame) -> np.ndarray:
    """What to add to the logarithm of each setup's seconds, from `weighed` cases of that machine and family
    of engines with several users. Where sources have measured other points of the setup's own curve it
    follows them, their mean where they are several."""
    found, known = np.zeros(len(asked)), known[known["weight"].notna()]
    places = known.groupby(BY).indices
    for key, rows in asked.groupby(BY).indices.items():
        if key not in places:
            continue
        setups, cases = asked.iloc[rows], known.iloc[places[key]]
        alike, weight = _alike(setups, cases), cases["weight"].to_numpy()
        found[rows] = SETUP * alike @ weight
        own = np.ones_like(alike, dtype=bool)
        for name in CURVE:
            own &= setups[name].to_numpy()[:, None] == cases[name].to_numpy()
        many, added = np.zeros(len(rows)), np.zeros(len(rows))
        for at in cases.groupby("source").indices.values():
            here = own[:, at].any(axis=1)
            added += here * (((1 + alike[:, at]) / 2) @ weight[at])
            many += here
        found[rows] += SOURCE * added / np.maximum(many, 1)
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


def of(setup: pd.Series, count: int) -> pd.DataFrame:
    """The `count` published cases nearest to a setup, the nearest first: to one user those of one user, to
    several those of several."""
    table = published()
    table = table[(table["users"] == 1) == (setup["users"] == 1)]
    # Two that are equally far are in the table's order here and in the browser, whatever the last bits say.
    far = distance(setup, table).round(9)
    return table.iloc[np.argsort(far, kind="stable")[:count]]


def exact(setup: pd.Series) -> pd.DataFrame:
    """Published cases of the very setup: accelerator and number, model, format, engine family, a context
    within a factor of four, and as many users within a factor of one and a half."""
    table = published()
    names = ["machine", "accelerators", "model", "format", "engine_family"]
    same = (table[names] == setup[names]).all(axis=1)
    ratio = np.log((table["context"] + 512) / (setup["context"] + 512)).abs()
    load = np.log(table["users"] / setup["users"]).abs()
    return table[same & (load < np.log(1.5)) & (ratio < np.log(4))].sort_values("rate", ascending=False)
