"""Columns that say what a row is (a test such as pp512, a percentile, a warm-up, a category), and tables
whose rows are metrics and whose columns are statistics, engines or devices.

Each becomes a table with a row per load level or request."""

import re
from collections.abc import Iterable

import pandas as pd

from llm_measured.audit.quantities import meaning, says, snaked

# Of a test: prompt alone, answer alone, after so many tokens in the cache, with so many requests at once.
OF_PROMPT = re.compile(r"pp ?(?P<n>\d+)?|prefill|prompt([-_ ](eval|processing))?|ctx_pp")
OF_ANSWER = re.compile(r"tg ?(?P<n>\d+)?|decode|decoding|generat(e|ion)|gen|eval|ctx_tg|token[-_ ]generation")
BOTH = re.compile(r"pp ?(\d+) ?\+ ?tg ?(\d+)")
DEPTH = re.compile(r"@ ?d ?(\d+)")
RATES = "output_tokens_per_s", "decode_rate", "prompt_tokens_per_s"
CLIENTS = re.compile(r"\(c ?(\d+)\)")
WARM = re.compile(r"warm[-_ ]?up.*")
TRUE = {"true", "yes", "1", "1.0"}
A_STATISTIC = re.compile(
    r"p?(\d{2}(?:\.0+)?)(?:th)?%?|mean|avg|average|median|min(?:imum)?|max(?:imum)?|lowest|highest"
)
WITH_TIME = re.compile(r"[\d.,]+ ?(s|ms|us|ns)")
MOSTLY = 0.6  # of the cells from which a column or a row of names counts as what it looks like


def obeyed(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """(a table of texts in which each row is a load level or a request, sentences about what was changed)."""
    notes: list[str] = []
    for change in (_turned, _without_warm_up, _statistics_in_columns, _tests, _categories):
        table = change(table, notes)
    return table, notes


def _texts(values: pd.Series) -> pd.Series:
    return values.fillna("").astype(str).str.strip().str.lower()


def _words(names: Iterable) -> dict[str, str]:
    """{name: the word of quantities.csv that it means} of those that mean something."""
    return {name: found[0] for name in names if (found := meaning(str(name)))}


def _turned(table: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """A table whose first column names metrics, with a row for each of its other columns."""
    if len(table.columns) < 2 or not len(table):
        return table
    first, *others = table.columns
    # A name that is left out is the one above it.
    cells = list(table[first].fillna("").astype(str).str.strip().replace("", pd.NA).ffill().fillna(""))
    beside = [WITH_TIME.fullmatch(str(value)) for value in table[others[-1]]]
    cells = [f"{cell} ({unit[1]})" if unit else cell for cell, unit in zip(cells, beside)]
    # What is measured or counted, and no name of a model or device.
    of_rows = [cell for cell in cells if _words([cell]).get(cell, "gpu") not in ("model", "gpu")]
    of_columns = [word for word in _words(others).values() if word not in ("model", "gpu")]
    if len(of_rows) < max(1, MOSTLY * len(set(cells))) or len(of_rows) <= len(of_columns):
        return table
    units = next((c for c in others if says("unit", c)), None)
    if units is not None:
        others.remove(units)
        cells = [f"{cell} ({unit})" if str(unit).strip() else cell for cell, unit in zip(cells, table[units])]
    statistics = {c: _suffix(snaked(c)) for c in others}
    if sum(one is not None for one in statistics.values()) >= max(1, MOSTLY * len(others)):
        rows = _levels_of_statistics(table, cells, statistics)
        read = "one level" if len(rows) == 1 else f"{len(rows)} levels"
        notes.append(f"Each row is a metric and each column a statistic of it: they were read as {read}.")
    else:
        rows = _levels_of_columns(table, cells, others)
        shown = ", ".join(str(c)[:30] for c in others[:6])
        notes += [f"Each column was read as a load level: {shown}."] if len(rows) > 1 else []
    return pd.DataFrame(rows) if rows else table


def _levels_of_statistics(table: pd.DataFrame, cells: list[str], statistics: dict) -> list[dict]:
    """The levels of rows that `cells` name and whose columns are `statistics` (None: another column): one for
    each value of the other columns that mean something."""
    keys = [column for column, statistic in statistics.items() if statistic is None and meaning(str(column))]
    levels: dict[tuple, dict] = {}
    for cell, (_, values) in zip(cells, table.iterrows(), strict=True):
        level = tuple(values[key] for key in keys)
        row = levels.setdefault(level, dict(zip(keys, level)))
        known = meaning(cell)
        for column, statistic in statistics.items():
            if statistic is None or not str(values[column]).strip():
                continue
            counted = known and not known[0].endswith("_s")
            row.setdefault(cell if counted else f"{statistic} {cell}", values[column])
    return list(levels.values())


def _levels_of_columns(table: pd.DataFrame, cells: list[str], columns: list) -> list[dict]:
    """A level for each of the `columns` that is not empty, of metrics that `cells` name."""
    rows = []
    for column in columns:
        row = dict(zip(cells, table[column], strict=True))
        if any(str(value).strip() for value in row.values()):
            rows.append(({} if says("result", column) else {"option": str(column)}) | row)
    return rows


def _suffix(plain: str) -> str | None:
    """The statistic that a name is (`p50`, `mean`), None where it is none."""
    if not A_STATISTIC.fullmatch(plain):
        return None
    number = re.search(r"\d{2}", plain)
    return f"p{number[0]}" if number else "mean" if plain == "avg" else plain


def _without_warm_up(table: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    for name in table.columns:
        if not says("warm_up", name):
            continue
        cells = _texts(table[name])
        warm = cells.str.fullmatch(WARM)
        if "warm" in snaked(name):  # true and false; numbers count the requests of a warm-up
            flags = cells.isin(TRUE | {"false", "no", "0", "0.0", ""})
            warm |= cells.isin(TRUE) & (flags.all() and set(cells) & {"true", "yes", "false", "no"} != set())
        if warm.any() and not warm.all():
            left = f"{int(warm.sum())} of {len(table)} rows"
            notes.append(f"{left} are a warm-up by the column {name}, and were left out.")
            return table[~warm].drop(columns=name).reset_index(drop=True)
    return table


def _statistics_in_columns(table: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """A table with a row for each percentile as one with a column for each."""
    for name in table.columns:
        if not says("statistic", name):
            continue
        suffixes = _texts(table[name]).map(_suffix)
        if suffixes.notna().mean() < MOSTLY:
            continue
        measured = [c for c, word in _words(table).items() if c != name and word.endswith("_s")]
        others = [c for c in table if c not in (name, *measured)]
        groups = [c for c in others if table[c].nunique() < len(table)]
        rows: dict[tuple, dict] = {}
        for suffix, (_, row) in zip(suffixes, table.iterrows(), strict=True):
            if suffix is not None:
                level = rows.setdefault(tuple(row[c] for c in groups), {c: row[c] for c in groups})
                level |= {f"{suffix} {c}": row[c] for c in measured}
        notes.append(f"The rows are percentiles by the column {name}: they were read as columns of a level.")
        return pd.DataFrame(list(rows.values()))
    return table


def _tests(table: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """A table that says of each row whether its rate is of prompt or of output tokens, with a column for
    each."""
    for name in table.columns:
        if not says("test", name):
            continue
        cells = _texts(table[name])
        bare = cells.str.replace(DEPTH, "", regex=True).str.replace(CLIENTS, "", regex=True).str.strip()
        prompt, answer = bare.str.fullmatch(OF_PROMPT), bare.str.fullmatch(OF_ANSWER)
        both = bare.str.fullmatch(BOTH)
        if not (prompt.any() or both.any()) or (prompt | answer | both).mean() < MOSTLY:
            continue
        out, clients = table.drop(columns=name), cells.str.extract(CLIENTS)[0]
        words = _words(out)
        rate = next((column for column, word in words.items() if word in RATES), None)
        if rate is not None:
            values = out.pop(rate)
            # Beside a number of clients a rate that is no total is of each of them.
            of_all = "total" in snaked(rate) or clients.isna().all()
            out["prompt_tokens_per_s"] = values.where(prompt & of_all, "")
            out["decode_rate" if of_all else "request_tokens_per_s"] = values.where(answer, "")
            out["total_tokens_per_s"] = values.where(both, "")
        lengths = bare.str.extract(r"(\d+)")[0].fillna("")
        if "prompt_tokens" not in words.values():
            out["prompt_tokens"] = lengths.where(prompt, cells.str.extract(DEPTH)[0].fillna(""))
        if "output_tokens" not in words.values():
            out["output_tokens"] = lengths.where(answer, "")
        if clients.notna().any():
            out["concurrency"] = clients.fillna("")
        out["name"] = cells.where(~cells.eq(""), "test")
        notes.append(
            f"{name} says what each row measures: a rate of prompt tokens in {int(prompt.sum())}, of output "
            f"tokens in {int(answer.sum())}."
        )
        return out
    return table


def _categories(table: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """A table whose categories are the names of its rows."""
    if "name" in _words(table).values():
        return table
    named = [c for c in table if says("category", c) and 1 < table[c].nunique()]
    return table.rename(columns={named[0]: "name"}) if named else table
