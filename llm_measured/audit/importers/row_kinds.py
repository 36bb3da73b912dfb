"""Columns that say what a row is (a test such as pp512, a percentile, a warm-up, a category, a unit), and
tables whose rows are metrics or whose columns are statistics, loads, engines, formats or devices.

Each becomes a table with a row per load level or request."""

import re
from collections.abc import Iterable

import pandas as pd

from llm_measured.audit import catalog, quantities
from llm_measured.audit.importers import beside, numerals
from llm_measured.audit.quantities import is_measured, meaning, says, snaked, statistic
from llm_measured.core import naming

# Of a test: prompt and answer, after so many tokens in the cache, with so many requests at once.
BOTH = re.compile(r"pp ?(\d+) ?\+ ?tg ?(\d+)")
DEPTH = re.compile(r"@ ?d ?(\d+)")
CLIENTS = re.compile(r"\(c ?(\d+)\)")
RATES = "output_tokens_per_s", "decode_rate", "prompt_tokens_per_s", "total_tokens_per_s"
TRUE, FALSE = {"true", "yes", "1", "1.0"}, {"false", "no", "0", "0.0", ""}
WITH_TIME = re.compile(r"[\d.,]+ ?(s|ms|us|ns)")
MOSTLY = 0.6  # of the cells from which a column or a row of names counts as what it looks like
# A heading that states a setting: `C=8`, `batch 4`, `16 users`.
NAME_VALUE, VALUE_NAME = re.compile(r"(\D+?)[\s=:]*(\d+)"), re.compile(r"(\d+)\s*(\D+)")
FORMAT = re.compile(r"(b?float|b?fp|b?f|int)-?\d+|q\d(-(?!kv)[a-z0-9]+)*|nf4|awq|gptq|\d-?bits?")
SIZE = re.compile(r"\d+(\.\d+)?b(-a\d+(\.\d+)?b)?")
OF_ASKED = re.compile(r"^(\d+) ?(?:/|of) ?(\d+)$")
AROUND = " ()[]@:,-–"
ALONE = "tokens_per_s"  # what a column is of whose heading names a format, a model or a device alone


def obeyed(table: pd.DataFrame, file: str) -> tuple[pd.DataFrame, list[str]]:
    """(a table of texts in which each row is a load level or a request, sentences about what was changed);
    ValueError for a table of the `file` whose numbers count nothing that is known."""
    notes: list[str] = []
    for change in (_shares, _turned, _without_warm_up, _statistics_in_columns, _tests, _categories, _long):
        table = change(table, notes)
    return _with_unit_columns(table, file), notes


def _texts(values: pd.Series) -> pd.Series:
    return values.fillna("").astype(str).str.strip()


def _words(names: Iterable) -> dict[str, str]:
    """{name: the word of quantities.csv that it means} of those that mean something."""
    return {name: found[0] for name in names if (found := meaning(str(name)))}


def _is_figure(name: str) -> bool:
    return any(map(is_measured, _words([name]).values()))


def _are(word: str, cells: pd.Series) -> pd.Series:
    """Which cells are one of the names of `word`."""
    return cells.map({cell: says(word, cell) for cell in set(cells)}).astype(bool)


def _shares(table: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """A table that says `19/20` of its requests with a column of those that succeeded and one of all."""
    for name, word in _words(table).items():
        if word not in ("succeeded", "requests"):
            continue
        parts = _texts(table[name]).str.extract(OF_ASKED)
        if parts.notna().all(axis=None):
            return table.drop(columns=name).assign(**{"successful_requests": parts[0], "asked": parts[1]})
    return table


def _turned(table: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """A table whose first column names metrics, with a row for each of its other columns."""
    first, *others = table.columns
    if not others or not len(table):
        return table
    cells = _metrics(table)
    # What is measured or counted, and no name of a model or device.
    of_rows = [cell for cell in cells if _words([cell]).get(cell, "gpu") not in ("model", "gpu")]
    of_columns = [word for word in _words(others).values() if word not in ("model", "gpu")]
    if len(of_rows) < max(1, MOSTLY * len(set(cells))) or len(of_rows) <= len(of_columns):
        return table
    units = next((c for c in others if says("unit", c)), None)
    if units is not None:
        others.remove(units)
        cells = [f"{cell} ({unit})" if str(unit).strip() else cell for cell, unit in zip(cells, table[units])]
    statistics = {column: "" if _is_setting(first) else statistic(column) for column in others}
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
    names = _texts(table.iloc[:, 0]).replace("", pd.NA).ffill().fillna("")
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


def _is_setting(name: str) -> bool:
    """Whether a name is that of a setting that is a number."""
    known = quantities.table().get((meaning(name) or ("",))[0])
    return known is not None and known.setting and not known.told


def stated(heading: str, first: str = "") -> tuple[str, str]:
    """(setting, its value) that a heading states: `C=8`, `8 users`, a number alone below the setting `first`,
    a number format, a size of a model or a device; else it is an option."""
    if heading.isdigit() and _is_setting(first):
        return first, heading
    named, counted = NAME_VALUE.fullmatch(heading), VALUE_NAME.fullmatch(heading)
    name, value = named.groups() if named else counted.groups()[::-1] if counted else ("", "")
    name = name.strip(" _").lower()
    for called in (name, f"{name}s" if len(name) > 2 else ""):  # `1 user`, and no `7B` as batch sizes
        if _is_setting(called):
            return called, value
    return _variant(heading) or "option", heading


def _variant(name: str) -> str:
    """What a name is that of: weights, gpu, model; empty of anything else."""
    if FORMAT.fullmatch(naming.slug(name)):
        return "weights"
    return "gpu" if beside.is_device(name) else "model" if catalog.model(name) else ""


def _without_warm_up(table: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    for name in table.columns:
        if not says("warm_up", name):
            continue
        cells = _texts(table[name]).str.lower()
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
        called = _texts(table[name]).map(statistic)
        if (called != "").mean() < MOSTLY:
            continue
        measured = [c for c, word in _words(table).items() if c != name and word.endswith("_s")]
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
        cells = _texts(table[name]).str.lower()
        bare = cells.str.replace(DEPTH, "", regex=True).str.replace(CLIENTS, "", regex=True).str.strip()
        prompt, answer = _are("test_of_prompts", bare), _are("test_of_answers", bare)
        both = bare.str.fullmatch(BOTH)
        if not (prompt.any() or both.any()) or (prompt | answer | both).mean() < MOSTLY:
            continue
        out, clients = table.drop(columns=name), cells.str.extract(CLIENTS)[0]
        words = _words(out)
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
        lengths, depth = bare.str.extract(r"(\d+)")[0].fillna(""), cells.str.extract(DEPTH)[0].fillna("")
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
    if "name" in _words(table).values():
        return table
    named = [c for c in table if says("category", c) and 1 < table[c].nunique()]
    if not named:
        return table
    # A data set stays one besides.
    return (
        table.assign(name=table[named[0]]) if meaning(named[0]) else table.rename(columns={named[0]: "name"})
    )


def _long(table: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """A table with columns for each number format, model, device or other option (`7B`, `vLLM tok/s`) as one
    with a row for each."""
    setting, variants = _variants(table)
    if not variants:
        return table
    columns = [column for of_one in variants.values() for column in of_one.values()]
    others = [column for column in table if column not in columns]
    renamed = {}
    for name in others:
        bare = re.sub(r"\(.*?\)", "", str(name)).strip()
        if meaning(bare) and not _is_figure(bare):
            renamed[name] = bare
        elif _is_figure(name):
            devices = table[name].astype(str).map(beside.is_device).mean()
            renamed[name] = "gpu" if devices > 0.5 else "model"
    parts = []
    for variant, of_one in variants.items():
        part = table[others].rename(columns=renamed).assign(**{setting: variant})
        parts.append(part.assign(**{heading: table[column] for heading, column in of_one.items()}))
    long = pd.concat(parts).sort_index(kind="stable")
    headings = list(next(iter(variants.values())))
    empty = long[headings].apply(lambda values: _texts(values).str.lower().isin(numerals.NOTHING))
    what = "tokens/s" if headings == [ALONE] else ", ".join(headings)
    notes.append(f"The columns {', '.join(columns)} were read as {what} of that {setting} each.")
    return long[~empty.all(axis=1)].reset_index(drop=True)


def _variants(table: pd.DataFrame) -> tuple[str, dict[str, dict[str, str]]]:
    """(setting, {its value: {heading of a figure: column}}) of a table that has the same figures of several
    values of a setting, and no other figure; empty for any other table."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for column in table.columns:
        setting, value, heading = _headed(str(column))
        found.setdefault(setting, {}).setdefault(value, {})[heading] = column
    found.pop("", None)
    for setting, variants in found.items():
        columns = [column for of_one in variants.values() for column in of_one.values()]
        figures = [
            name for name in table if name not in columns and _is_figure(name) and _numeric(table[name])
        ]
        alike = len({tuple(of_one) for of_one in variants.values()}) == 1
        numeric = all(_numeric(table[column]) for column in columns)
        if len(variants) > 1 and alike and numeric and not figures:
            return setting, variants
    return "", {}


def _headed(column: str) -> tuple[str, str, str]:
    """(setting, its value, heading of a figure) that a heading states together: `vLLM tok/s`, `Q8_0` or
    `TTFT (ms) bs=8`; three empty texts of any other."""
    words = [] if meaning(column) else column.split()
    ends = [(" ".join(words[:k]), " ".join(words[k:])) for k in range(1, len(words))]
    for name, heading, free in [(*one, True) for one in ends] + [(*one[::-1], False) for one in ends[::-1]]:
        if _is_figure(heading):
            setting, value = stated(name.strip(AROUND))
            # `Load time (s)` is no time of an answer by an option called Load.
            free &= not statistic(name) and not _words([heading])[heading].startswith("e2e")
            if free or heading.endswith("@") or setting != "option":
                return setting, value, heading.rstrip(" @")
    alone = _variant(column) if words else ""
    # Under names of models stand points of their answers as often as tokens/s.
    if not alone or (alone == "model" and not SIZE.fullmatch(naming.slug(column))):
        return "", "", ""
    return alone, column, ALONE


def _numeric(values: pd.Series) -> bool:
    """Whether a column holds numbers, and nothing else."""
    read, _, _, strange = numerals.numbers(values, ".", "output_tokens_per_s")
    return bool(read.notna().any()) and not strange


def _with_unit_columns(table: pd.DataFrame, file: str) -> pd.DataFrame:
    """A table that says in each row what its number counts, as MLPerf's, as one with a column for each such
    unit."""
    result, unit = ([name for name in table if says(one, name)][:1] for one in ("result", "unit"))
    if not result or not unit or any(map(_is_figure, table)):
        return table
    units = _texts(table[unit[0]])
    named = [name for name in dict.fromkeys(units) if name]
    if not any(map(_is_figure, named)):
        known = f"{unit[0]} names no quantity that is known ({', '.join(named[:6])})"
        raise ValueError(f"{file}: {known}.")
    of_units = {name: table[result[0]].where(units == name, "") for name in named}
    return table.drop(columns=[*result, *unit]).assign(**of_units)
