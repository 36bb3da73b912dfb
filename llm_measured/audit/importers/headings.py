"""What the headings of a table state besides figures: a setting, a number format, a model or a device."""

import re
from collections.abc import Iterable

import pandas as pd

from llm_measured.audit import catalog, quantities
from llm_measured.audit.importers import beside, numerals
from llm_measured.audit.quantities import is_measured, meaning, statistic
from llm_measured.core import naming

# A heading that states a setting: `C=8`, `batch 4`, `16 users`.
NAME_VALUE, VALUE_NAME = re.compile(r"(\D+?)[\s=:]*(\d+)"), re.compile(r"(\d+)\s*(\D+)")
FORMAT = re.compile(r"(b?float|b?fp|b?f|int)-?\d+|q\d(-(?!kv)[a-z0-9]+)*|nf4|awq|gptq|\d-?bits?")
SIZE = re.compile(r"\d+(\.\d+)?b(-a\d+(\.\d+)?b)?")
AROUND = " ()[]@:,-–"
ALONE = "tokens_per_s"  # what a column is of whose heading names a format, a model or a device alone


def texts(values: pd.Series) -> pd.Series:
    """The cells of a column as texts, those that state nothing empty."""
    return values.fillna("").astype(str).str.strip()


def meant(names: Iterable) -> dict[str, str]:
    """{name: the word of quantities.csv that it means} of those that mean something."""
    return {name: found[0] for name in names if (found := meaning(str(name)))}


def is_figure(name: str) -> bool:
    """Whether a name is that of a time or a rate that a benchmark measures."""
    return any(map(is_measured, meant([name]).values()))


def is_setting(name: str) -> bool:
    """Whether a name is that of a setting that is a number."""
    known = quantities.table().get((meaning(name) or ("",))[0])
    return known is not None and known.setting and not known.told


def stated(heading: str, first: str = "") -> tuple[str, str]:
    """(setting, its value) that a heading states: `C=8`, `8 users`, a number alone below the setting `first`,
    a number format, a size of a model or a device; else it is an option."""
    if heading.isdigit() and is_setting(first):
        return first, heading
    named, counted = NAME_VALUE.fullmatch(heading), VALUE_NAME.fullmatch(heading)
    name, value = named.groups() if named else counted.groups()[::-1] if counted else ("", "")
    name = name.strip(" _").lower()
    for called in (name, f"{name}s" if len(name) > 2 else ""):  # `1 user`, and no `7B` as batch sizes
        if is_setting(called):
            return called, value
    return _variant(heading) or "option", heading


def _variant(name: str) -> str:
    """What a name is that of: weights, gpu, model; empty of anything else."""
    if FORMAT.fullmatch(naming.slug(name)):
        return "weights"
    return "gpu" if beside.is_device(name) else "model" if catalog.model(name) else ""


def long(table: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
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
        if meaning(bare) and not is_figure(bare):
            renamed[name] = bare
        elif is_figure(name):
            devices = table[name].astype(str).map(beside.is_device).mean()
            renamed[name] = "gpu" if devices > 0.5 else "model"
    parts = []
    for variant, of_one in variants.items():
        part = table[others].rename(columns=renamed).assign(**{setting: variant})
        parts.append(part.assign(**{heading: table[column] for heading, column in of_one.items()}))
    rows = pd.concat(parts).sort_index(kind="stable")
    headings = list(next(iter(variants.values())))
    empty = rows[headings].apply(lambda values: texts(values).str.lower().isin(numerals.NOTHING))
    what = "tokens/s" if headings == [ALONE] else ", ".join(headings)
    notes.append(f"The columns {', '.join(columns)} were read as {what} of that {setting} each.")
    return rows[~empty.all(axis=1)].reset_index(drop=True)


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
            name for name in table if name not in columns and is_figure(name) and _numeric(table[name])
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
        if is_figure(heading):
            setting, value = stated(name.strip(AROUND))
            # `Load time (s)` is no time of an answer by an option called Load.
            free &= not statistic(name) and not meant([heading])[heading].startswith("e2e")
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
