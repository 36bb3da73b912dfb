"""Columns that say what a row is (a test such as pp512, a percentile, a warm-up, a category, a unit), and
tables whose rows are metrics and whose columns are statistics or levels.

Each becomes a table with a row per load level or request."""

import re

import pandas as pd

from llm_measured.audit.importers.headings import is_figure, is_setting, long, meant, stated, texts
from llm_measured.audit.quantities import meaning, says, snaked, statistic

# Of a test: prompt and answer, after so many tokens in the cache, with so many requests at once.
BOTH = re.compile(r"pp ?(\d+) ?\+ ?tg ?(\d+)")
DEPTH = re.compile(r"@ ?d ?(\d+)")
CLIENTS = re.compile(r"\(c ?(\d+)\)")
RATES = "output_tokens_per_s", "decode_rate", "prompt_tokens_per_s", "total_tokens_per_s"
TRUE, FALSE = {"true", "yes", "1", "1.0"}, {"false", "no", "0", "0.0", ""}
WITH_TIME = re.compile(r"[\d.,]+ ?(s|ms|us|ns)")
MOSTLY = 0.6  # of the cells from which a column or a row of names counts as what it looks like
OF_ASKED = re.compile(r"^(\d+) ?(?:/|of) ?(\d+)$")
WITH_SHARE = re.compile(r"^(\d+) ?\(\d+(?:\.\d+)? ?%\)$")


def obeyed(table: pd.DataFrame, file: str) -> tuple[pd.DataFrame, list[str]]:
    """(a table of texts in which each row is a load level or a request, sentences about what was changed);
    ValueError for a table of the `file` whose numbers count nothing that is known."""
    notes: list[str] = []
    for change in (_shares, _turned, _without_warm_up, _statistics_in_columns, _tests, _categories, long):
        table = change(table, notes)
    return _with_unit_columns(table, file), notes


def _are(word: str, cells: pd.Series) -> pd.Series:
    """Which cells are one of the names of `word`."""
    return cells.map({cell: says(word, cell) for cell in set(cells)}).astype(bool)


def _shares(table: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """A table that says `19/20` of its requests with a column of those that succeeded and one of all, and one
    that says `19 (95 %)` with the former."""
    for name, word in meant(table).items():
        if word not in ("succeeded", "requests"):
            continue
        parts = texts(table[name]).str.extract(OF_ASKED)
        if parts.notna().all(axis=None):
            return table.drop(columns=name).assign(**{"successful_requests": parts[0], "asked": parts[1]})
        counts = texts(table[name]).str.extract(WITH_SHARE)[0]
        if counts.notna().all():
            return table.drop(columns=name).assign(**{"successful_requests": counts})
    return table


def _turned(table: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """A table whose first column names metrics, with a row for each of its other columns."""
    first, *others = table.columns
    if not others or not len(table):
        return table
    cells = _metrics(table)
    # What is measured or counted, and no name of a model or device.
    of_rows = [cell for cell in cells if meant([cell]).get(cell, "gpu") not in ("model", "gpu")]
    of_columns = [word for word in meant(others).values() if word not in ("model", "gpu")]
    if len(of_rows) < max(1, MOSTLY * len(set(cells))) or len(of_rows) <= len(of_columns):
        return table
    units = next((c for c in others if says("unit", c)), None)
    if units is not None:
        others.remove(units)
        cells = [f"{cell} ({unit})" if str(unit).strip() else cell for cell, unit in zip(cells, table[units])]
    statistics = {column: "" if is_setting(first) else statistic(column) for column in others}
    if sum(map(bool, statistics.values())) >= max(1, MOSTLY * len(others)):
        rows = _levels_of_statistics(table, cells, statistics)
        read = "one level" if len(rows) == 1 else f"{len(rows)} levels"
        notes.append(f"Each row is a metric and each column a statistic of it: they were read as {read}.")
    else:
        rows = _levels_of_columns(table, cells, others)
        shown = ", ".join(str(c)[:30] for c in others[:6])
        notes += [f"Each column was read as a load level: {shown}."] if len(rows) > 1 else []
    return pd.DataFrame(rows) if rows else table


def _metrics(table: pd.DataFrame) -> list[str]:
    """The texts of the first column, each with the unit of time that stands beside the last column's number;
    one that is left out is the one above it."""
    names = texts(table.iloc[:, 0]).replace("", pd.NA).ffill().fillna("")
    units = (WITH_TIME.fullmatch(str(value)) for value in table.iloc[:, -1])
    return [f"{name} ({unit[1]})" if unit else name for name, unit in zip(names, units)]


def _levels_of_statistics(table: pd.DataFrame, cells: list[str], statistics: dict) -> list[dict]:
    """The levels of rows that `cells` name and whose columns are `statistics` (empty: another column): one
    for each value of the other columns that mean something."""
    keys = [column for column, called in statistics.items() if not called and meaning(str(column))]
    levels: dict[tuple, dict] = {}
    for cell, (_, values) in zip(cells, table.iterrows(), strict=True):
        level = tuple(values[key] for key in keys)
        row = levels.setdefault(level, dict(zip(keys, level)))
        known = meaning(cell)
        for column, called in statistics.items():
            if called and str(values[column]).strip():
                counted = known and not known[0].endswith("_s")
                row.setdefault(cell if counted else f"{called} {cell}", values[column])
    return list(levels.values())


def _levels_of_columns(table: pd.DataFrame, cells: list[str], columns: list) -> list[dict]:
    """A level for each of the `columns` that is not empty, of metrics that `cells` name."""
    rows = []
    for column in columns:
        row = dict(zip(cells, table[column], strict=True))
        heading = [] if says("result", column) else [stated(str(column), table.columns[0])]
        if any(str(value).strip() for value in row.values()):
            rows.append(dict(heading) | row)
    return rows


def _without_warm_up(table: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    for name in table.columns:
        if not says("warm_up", name):
            continue
        cells = texts(table[name]).str.lower()
        warm = _are("warm", cells)
        if "warm" in snaked(name):  # true and false; numbers count the requests of a warm-up
            flags = cells.isin(TRUE | FALSE)
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
        called = texts(table[name]).map(statistic)
        if (called != "").mean() < MOSTLY:
            continue
        measured = [c for c, word in meant(table).items() if c != name and word.endswith("_s")]
        others = [c for c in table if c not in (name, *measured)]
        groups = [c for c in others if table[c].nunique() < len(table)]
        rows: dict[tuple, dict] = {}
        for one, (_, row) in zip(called, table.iterrows(), strict=True):
            if one:
                level = rows.setdefault(tuple(row[c] for c in groups), {c: row[c] for c in groups})
                level |= {f"{one} {c}": row[c] for c in measured}
        notes.append(f"The rows are percentiles by the column {name}: they were read as columns of a level.")
        return pd.DataFrame(list(rows.values()))
    return table


def _tests(table: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """A table that says of each row whether its rate is of prompt or of output tokens, with a column for
    each."""
    for name in table.columns:
        if not says("test", name):
            continue
        cells = texts(table[name]).str.lower()
        bare = cells.str.replace(DEPTH, "", regex=True).str.replace(CLIENTS, "", regex=True).str.strip()
        prompt, answer = _are("test_of_prompts", bare), _are("test_of_answers", bare)
        both = bare.str.fullmatch(BOTH)
        lengths = bare.str.extract(r"(\d+)")[0].fillna("")
        told = prompt.any() or both.any() or (answer & lengths.ne("")).any()
        if not told or (prompt | answer | both).mean() < MOSTLY:
            continue
        out, clients = table.drop(columns=name), cells.str.extract(CLIENTS)[0]
        words = meant(out)
        rate = next((column for one in RATES for column, word in words.items() if word == one), None)
        if rate is not None:
            values = out.pop(rate)
            # Beside a number of clients a rate that is no total is of each of them.
            of_all = "total" in snaked(rate) or clients.isna().all()
            out["prompt_tokens_per_s"] = values.where(prompt & of_all, "")
            out["decode_rate" if of_all else "request_tokens_per_s"] = values.where(answer, "")
            out["total_tokens_per_s"] = values.where(both, "")
        for column, word in words.items():
            if word == "request_tokens_per_s":
                out[column] = out[column].where(answer, "")
        depth = cells.str.extract(DEPTH)[0].fillna("")
        made = {"prompt_tokens": lengths.where(prompt, depth), "output_tokens": lengths.where(answer, "")}
        made |= {"depth_tokens": depth, "concurrency": clients.fillna("")}
        for word, figures in made.items():
            if word not in words.values() and (figures != "").any():
                out[word] = figures
        out["name"] = cells.where(~cells.eq(""), "test")
        notes.append(
            f"{name} says what each row measures: a rate of prompt tokens in {int(prompt.sum())}, of output "
            f"tokens in {int(answer.sum())}."
        )
        return out
    return table


def _categories(table: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """A table whose categories are the names of its rows."""
    if "name" in meant(table).values():
        return table
    named = [c for c in table if says("category", c) and 1 < table[c].nunique()]
    if not named:
        return table
    # A data set stays one besides.
    return (
        table.assign(name=table[named[0]]) if meaning(named[0]) else table.rename(columns={named[0]: "name"})
    )


def _with_unit_columns(table: pd.DataFrame, file: str) -> pd.DataFrame:
    """A table that says in each row what its number counts, as MLPerf's, as one with a column for each such
    unit."""
    result, unit = ([name for name in table if says(one, name)][:1] for one in ("result", "unit"))
    if not result or not unit or any(map(is_figure, table)):
        return table
    units = texts(table[unit[0]])
    named = [name for name in dict.fromkeys(units) if name]
    if not any(map(is_figure, named)):
        known = f"{unit[0]} names no quantity that is known ({', '.join(named[:6])})"
        raise ValueError(f"{file}: {known}.")
    of_units = {name: table[result[0]].where(units == name, "") for name in named}
    return table.drop(columns=[*result, *unit]).assign(**of_units)
