"""Columns that say what a row is (a test such as pp512, a percentile, a warm-up, a category), and tables
whose rows are metrics and whose columns are statistics, engines or devices.

Each becomes a table with a row per load level or request."""

import re

import pandas as pd

from llm_measured.audit.quantities import meaning
from llm_measured.core import naming

TEST = set("test test_type phase stage kind type mode operation task_type metric_type bench".split())
# Of a test: prompt alone, answer alone, after so many tokens in the cache, with so many requests at once.
OF_PROMPT = re.compile(r"pp ?(?P<n>\d+)?|prefill|prompt([-_ ](eval|processing))?|ctx_pp")
OF_ANSWER = re.compile(r"tg ?(?P<n>\d+)?|decode|decoding|generat(e|ion)|gen|eval|ctx_tg|token[-_ ]generation")
BOTH = re.compile(r"pp ?(\d+) ?\+ ?tg ?(\d+)")
DEPTH = re.compile(r"@ ?d ?(\d+)")
CLIENTS = re.compile(r"\(c ?(\d+)\)")
WARM_UP = {"warmup", "is_warmup", "warm_up", "phase", "stage", "run_type", "type", "kind"}
WARM = re.compile(r"warm[-_ ]?up.*")
TRUE = {"true", "yes", "1", "1.0"}
STATISTIC = {"percentile", "percentiles", "quantile", "quantiles", "statistic", "stat", "aggregation"}
A_STATISTIC = re.compile(
    r"p?(\d{2}(?:\.0+)?)(?:th)?%?|mean|avg|average|median|min(?:imum)?|max(?:imum)?|lowest|highest"
)
WITH_TIME = re.compile(r"[\d.,]+ ?(s|ms|us|ns)")
CATEGORY = set(
    "category profile workload dataset task prompt_type prompt_name use_case case test_name suite "
    "traffic".split()
)
MOSTLY = 0.6  # of the cells from which a column or a row of names counts as what it looks like


def obeyed(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """(a table of texts in which each row is a load level or a request, sentences about what was changed)."""
    notes: list[str] = []
    for change in (_turned, _without_warm_up, _statistics_in_columns, _tests, _categories):
        table = change(table, notes)
    return table, notes


def snake(name: str) -> str:
    """`name` in lower case with underscores."""
    return naming.slug(str(name)).replace("-", "_")


def _texts(values: pd.Series) -> pd.Series:
    return values.fillna("").astype(str).str.strip().str.lower()


def _measures(names: list) -> list:
    """The names that mean something that is measured or counted."""
    return [name for name in names if (found := meaning(str(name))) and found[0] not in ("model", "gpu")]


def _turned(table: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """A table whose first column names metrics, with a row for each of its other columns."""
    if len(table.columns) < 2 or not len(table):
        return table
    first, *others = table.columns
    # A name that is left out is the one above it.
    cells = list(table[first].fillna("").astype(str).str.strip().replace("", pd.NA).ffill().fillna(""))
    beside = [WITH_TIME.fullmatch(str(value)) for value in table[others[-1]]]
    cells = [f"{cell} ({unit[1]})" if unit else cell for cell, unit in zip(cells, beside)]
    of_rows, of_columns = _measures(cells), _measures(list(others))
    if len(of_rows) < max(1, MOSTLY * len(set(cells))) or len(of_rows) <= len(of_columns):
        return table
    units = next((c for c in others if snake(c) in ("unit", "units")), None)
    if units is not None:
        others.remove(units)
        cells = [f"{cell} ({unit})" if str(unit).strip() else cell for cell, unit in zip(cells, table[units])]
    statistics = {c: _suffix(snake(c)) for c in others}
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
            rows.append(({} if snake(column) in ("value", "result") else {"option": str(column)}) | row)
    return rows


def _suffix(plain: str) -> str | None:
    """The statistic that a name is (`p50`, `mean`), None where it is none."""
    if not A_STATISTIC.fullmatch(plain):
        return None
    number = re.search(r"\d{2}", plain)
    return f"p{number[0]}" if number else "mean" if plain == "avg" else plain


def _without_warm_up(table: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    for name in table.columns:
        if snake(name) not in WARM_UP:
            continue
        cells = _texts(table[name])
        warm = cells.str.fullmatch(WARM)
        if "warm" in snake(name):  # true and false; numbers count the requests of a warm-up
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
        if snake(name) not in STATISTIC:
            continue
        suffixes = _texts(table[name]).map(_suffix)
        if suffixes.notna().mean() < MOSTLY:
            continue
        measured = [c for c in table if c != name and (m := meaning(str(c))) and m[0].endswith("_s")]
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
        if snake(name) not in TEST:
            continue
        cells = _texts(table[name])
        bare = cells.str.replace(DEPTH, "", regex=True).str.replace(CLIENTS, "", regex=True).str.strip()
        prompt, answer = bare.str.fullmatch(OF_PROMPT), bare.str.fullmatch(OF_ANSWER)
        both = bare.str.fullmatch(BOTH)
        if not (prompt.any() or both.any()) or (prompt | answer | both).mean() < MOSTLY:
            continue
        out = table.drop(columns=name)
        for column in list(out):
            found = meaning(str(column))
            word = found[0] if found else ""
            if word in ("output_tokens_per_s", "decode_rate", "prompt_tokens_per_s"):
                values = out.pop(column)
                of_all = "total" in snake(column) or not cells.str.extract(CLIENTS)[0].notna().any()
                rate = "decode_rate" if of_all else "request_tokens_per_s"
                out["prompt_tokens_per_s"] = values.where(prompt & of_all, "")
                out[rate] = values.where(answer, "")
                out["total_tokens_per_s"] = values.where(both, "")
                break
        # Rates of single tests that stand beside it are of no level's own.
        lengths = bare.str.extract(r"(\d+)")[0].fillna("")
        if not any((m := meaning(str(c))) and m[0] == "prompt_tokens" for c in out):
            out["prompt_tokens"] = lengths.where(prompt, cells.str.extract(DEPTH)[0].fillna(""))
        if not any((m := meaning(str(c))) and m[0] == "output_tokens" for c in out):
            out["output_tokens"] = lengths.where(answer, "")
        if cells.str.extract(CLIENTS)[0].notna().any():
            out["concurrency"] = cells.str.extract(CLIENTS)[0].fillna("")
        out["name"] = cells.where(~cells.eq(""), "test")
        notes.append(
            f"{name} says what each row measures: a rate of prompt tokens in {int(prompt.sum())}, of output "
            f"tokens in {int(answer.sum())}."
        )
        return out
    return table


def _categories(table: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """A table whose categories are the names of its rows."""
    if any((m := meaning(str(c))) and m[0] == "name" for c in table):
        return table
    named = [c for c in table if snake(c) in CATEGORY and 1 < table[c].nunique()]
    return table.rename(columns={named[0]: "name"}) if named else table
