"""The study's own frame of an audited benchmark: two tables, `levels` and `requests`, that every importer
gives and every check reads.

`levels`: one row per load level or configuration, with figures as the file publishes them, never computed
here. `requests`: one row per request, where the file has them; `level` joins the two. Times are seconds,
sizes bytes, rates per second; an absent figure is NaN and an absent text "". The columns
are those of quantities.csv.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from llm_measured.audit import quantities
from llm_measured.core.definitions import Fields, Result
from llm_measured.core.plausibility import first

# Checks select a few rows thousands of times, which costs twice as much where texts are Arrow's.
pd.set_option("mode.string_storage", "python")

STATISTICS = "", "_mean", "_p50", "_p90", "_p95", "_p99", "_min", "_max"  # "": the file does not say which
TIMES = "ttft", "tpot", "itl", "e2e"
TEXTS = quantities.columns("levels", text=True)
NUMBERS = quantities.columns("levels", text=False)
LEVELS = TEXTS | NUMBERS
REQUEST_TEXTS = quantities.columns("requests", text=True)
REQUEST_NUMBERS = quantities.columns("requests", text=False)
ANSWER_CHARS = 500  # of a question or an answer kept for comparison

Rows: TypeAlias = Sequence[Fields] | pd.DataFrame  # as an importer has them


def once(function: Callable[["Audited"], Result]) -> Callable[["Audited"], Result]:
    """Decorator: what several checks need of the same `Audited` is computed once; of tables, alone or in a
    list or tuple, callers get copies, which take no memory until they are changed."""

    @functools.wraps(function)
    def remembered(audited: "Audited") -> Result:
        if audited.known is None:
            return function(audited)
        if function not in audited.known:
            audited.known[function] = function(audited)
        return _copied(audited.known[function])

    return remembered


def _copied(found):
    if isinstance(found, list | tuple):
        return type(found)(map(_copied, found))
    return found.copy(deep=False) if isinstance(found, pd.DataFrame | pd.Series) else found


@dataclass(frozen=True)
class Placed:
    """What became of the columns of a table: names that were read, that are metadata, that were not read; of
    the latter two, those that vary from row to row."""

    file: str
    read: tuple[str, ...]
    metadata: tuple[str, ...]
    unread: tuple[str, ...]
    varying: tuple[str, ...] = ()


@dataclass
class Audited:
    """What was read of one or several files: the two tables, sentences about the reading itself (`notes`:
    file, sentence), and the columns of files that are tables (`placed`)."""

    levels: pd.DataFrame
    requests: pd.DataFrame
    notes: list = field(default_factory=list)
    placed: list[Placed] = field(default_factory=list, repr=False)
    # (file, column of `levels`) -> the finest step in which the file prints its figures, in the column's
    # unit; a column that is absent has as many digits as its numbers show.
    printed: dict[tuple[str, str], float] = field(default_factory=dict, repr=False)
    # What `once` has computed; None: nothing is kept, because the tables may still change.
    known: dict | None = field(default=None, repr=False, compare=False)

    @property
    def first_file(self) -> str:
        """The file of the first load level: the name of a finding that concerns all of what was read."""
        return self.levels["file"].iloc[0]

    def stated(self, **facts: Any) -> "Audited":
        """The same with `facts` (column of `levels` -> value) where the files state nothing; ValueError for
        an unknown column."""
        for column, value in facts.items():
            self.levels[column] = self.levels[column].where(~self._empty(column), value)
        return self

    def overruled(self, **facts: Any) -> "Audited":
        """The same with `facts` in place of what the files state, and a note that says so. A file that states
        several values of a column keeps them, and is filled where it states none."""
        for column, value in facts.items():
            empty = self._empty(column)
            for file, rows in self.levels.groupby("file", sort=False):
                named = list(dict.fromkeys(rows.loc[~empty[rows.index], column]))
                if len(named) == 1 and named[0] != value:
                    self.levels.loc[rows.index, column] = value
                    self.notes.append((file, f"{value} stands for the {column} {named[0]} of the file."))
                elif len(named) > 1:
                    several = f"{len(named)} values of {column}"
                    self.notes.append(
                        (file, f"The file states {several}, which were kept; {value} fills the other rows.")
                    )
        return self.stated(**facts)

    def _empty(self, column):
        if column not in LEVELS:
            raise ValueError(f"{column} is no column of a level; there are {', '.join(LEVELS)}.")
        return self.levels[column] == "" if column in TEXTS else self.levels[column].isna()

    def of_levels(self, keep: pd.Series) -> "Audited":
        """The levels where `keep` is true, with their requests; what is computed of them is kept."""
        levels = self.levels[keep]
        requests = self.requests[self.requests["level"].isin(levels["level"])]
        return Audited(levels, requests, self.notes, self.placed, self.printed, known={})

    def step(self, *columns: str) -> pd.Series:
        """The finest step in which each level's file prints `columns`, in their unit; NaN where it has
        none of them."""
        steps = {}
        for file, rows in self.levels.groupby("file", sort=False):
            known = [self.printed.get((file, c), step(rows[c])) for c in columns]
            steps[file] = min((one for one in known if one == one), default=np.nan)
        return self.levels["file"].map(steps).astype(float)

    @once
    def good(self) -> pd.DataFrame:
        """Requests that succeeded."""
        return self.requests[self.requests["error"] == ""]

    @once
    def by_level(self) -> list[pd.DataFrame]:
        """The figures of the requests that succeeded (REQUEST_NUMBERS), a table for each level that has
        some: without texts, whose selection costs more than that of all figures."""
        return [rows for _, rows in self.good()[[*REQUEST_NUMBERS]].groupby("level")]

    @once
    def figures(self) -> dict[str, np.ndarray]:
        """The columns of NUMBERS, an array of one figure per level each: in a formula over a few levels an
        array takes a fiftieth of the time of a Series."""
        return dict(zip(NUMBERS, self.levels[[*NUMBERS]].to_numpy(float).T))

    @once
    def _stated(self) -> set[str]:
        return {name for name, values in self.figures().items() if not np.isnan(values).all()}

    def levels_have(self, *columns: str) -> bool:
        """Whether any level has a figure in one of `columns` (of NUMBERS): a check that needs one of them
        has nothing to look at elsewhere."""
        return not self._stated().isdisjoint(columns)


def step(values: pd.Series) -> float:
    """The finest decimal step in which any of the numbers is written; NaN where there is none."""
    known = [value for value in values if np.isfinite(value)]
    return 10.0 ** -max(map(decimals, known)) if known else np.nan


def decimals(value: float) -> int:
    """Decimals of the shortest text that gives the number; negative for thousands in an exponent."""
    text, _, power = f"{value:.12g}".partition("e")
    return len(text.partition(".")[2]) - int(power or 0)


def _typed(table, texts, numbers):
    """`table` with exactly these columns: texts as str, numbers as float."""
    given = set(table.columns)
    columns = {c: _texts(table[c] if c in given else None, table.index) for c in texts}
    columns |= {c: _numbers(table[c] if c in given else None, table.index) for c in numbers}
    return pd.DataFrame(columns, index=table.index)


def _texts(values, index):
    if values is None:
        return pd.Series("", index, dtype=str)
    return pd.Series(np.where(values.notna(), values.to_numpy(object), ""), index, dtype=str)


def _numbers(values, index):
    if values is None:
        return np.full(len(index), np.nan)
    found = pd.to_numeric(values, errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    return np.where(np.isfinite(found), found, np.nan)


def make(
    file: str, tool: str, levels: Rows, requests: Rows | None = None, notes: Sequence[str] = ()
) -> Audited:
    """`Audited` of one file from a list of dicts or a DataFrame each; absent columns become empty, text
    that is no number NaN."""
    levels = pd.DataFrame(levels)
    levels = levels.assign(file=file, tool=tool)
    if "level" not in levels:
        levels["level"] = range(len(levels))
    requests = pd.DataFrame(requests if requests is not None else [])
    if len(requests) and "level" not in requests:
        requests["level"] = 0
    tables = _typed(levels, TEXTS, NUMBERS), _typed(requests, REQUEST_TEXTS, REQUEST_NUMBERS)
    return Audited(*tables, [(file, note) for note in notes])


def join(parts: Sequence[Audited], one_file: bool = False) -> Audited:
    """Several `Audited` as one, their levels numbered anew; a file name that comes twice gets a number,
    unless they are parts of `one_file`."""
    levels, requests, notes, placed, printed, first = [], [], [], [], {}, 0
    names = [part.levels["file"].iloc[0] if len(part.levels) else "" for part in parts]
    for part, name in zip(parts, names if one_file else distinct(names)):
        for (_, column), step in part.printed.items():
            printed[name, column] = min(step, printed.get((name, column), step))
        levels.append(part.levels.assign(level=part.levels["level"] + first, file=name))
        requests.append(part.requests.assign(level=part.requests["level"] + first))
        notes += [(name, sentence) for _, sentence in part.notes]
        placed += [replace(one, file=name) for one in part.placed]
        first += int(part.levels["level"].max()) + 1 if len(part.levels) else 0
    tables = pd.concat(levels, ignore_index=True), pd.concat(requests, ignore_index=True)
    return Audited(*tables, notes, placed, printed)


def distinct(names: Iterable[str]) -> list[str]:
    """`names` in a list, those that come twice with a number."""
    count, found = {}, []
    for name in names:
        count[name] = count.get(name, 0) + 1
        found.append(name if count[name] == 1 else f"{name} ({count[name]})")
    return found


def centre(levels: pd.DataFrame, time: str) -> pd.Series:
    """The figure of `time` (ttft, tpot, itl, e2e) that stands for a level: its mean, else the unqualified
    one, else its median; s."""
    return levels[f"{time}_mean_s"].fillna(levels[f"{time}_s"]).fillna(levels[f"{time}_p50_s"])


def middle(known: dict[str, np.ndarray], time: str) -> np.ndarray:
    """`centre` of the arrays of `Audited.figures`."""
    return first(known[f"{time}_mean_s"], known[f"{time}_s"], known[f"{time}_p50_s"])


@once
def rows(audited: Audited) -> pd.DataFrame:
    """Requests and levels as one table, for checks that hold for either: one row per successful request and
    one per level.

    Columns: file, level, scope (request or level), ttft_s, tpot_s, itl_s, e2e_s, prompt_tokens,
    output_tokens, max_new_tokens, gaps,
    events, request_tokens_per_s, batch_size, concurrency, tensor_parallel. A level's times are `centre`s, and
    its rate of single requests is the one whose statistic is not stated: a mean of rates times a mean of
    times is no number of tokens.
    """
    known = audited.figures()
    shared = "level prompt_tokens output_tokens max_new_tokens batch_size concurrency tensor_parallel".split()
    tall = pd.DataFrame(
        {"file": audited.levels["file"]}
        | {column: known[column] for column in (*shared, "request_tokens_per_s")}
        | {"scope": "level", "gaps": np.nan, "events": np.nan}
        | {f"{time}_s": middle(known, time) for time in TIMES},
        audited.levels.index,
    )
    requests = audited.good()
    if requests.empty:
        return tall
    identity = tall.set_index("level")[["file", "batch_size", "concurrency", "tensor_parallel"]]
    own = requests[[c for c in tall if c in REQUEST_NUMBERS]].join(identity, on="level")
    own["scope"] = "request"
    return pd.concat([own.reindex(columns=tall.columns), tall], ignore_index=True)
