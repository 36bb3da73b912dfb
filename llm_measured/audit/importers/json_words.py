"""Any JSON whose names mean something by quantities.csv: an object, a list of objects or lines of them.

Names inside names are joined by an underscore (`"ttft_ms": {"mean": 20}` is `ttft_ms_mean`). Lists of objects
and objects of one form (load levels by name, experiments by name) are rows, and what stands beside them holds
for all. LLMPerf's summary is read so, and tables that people export from a notebook.
"""

import re
from collections.abc import Iterable

import pandas as pd

from llm_measured.audit import frame
from llm_measured.audit.importers import row_kinds, tables
from llm_measured.audit.importers.bounds import TEXT_CHARS
from llm_measured.audit.importers.content import Content
from llm_measured.core.definitions import Fields, Value

TOOL = "JSON in the study's words"
PREFIX = re.compile(
    r"^(results?|summary|timings|metrics|stats|statistics|performance|benchmark|config|parameters|args|"
    r"metadata)_(?=.)"
)
DEPTH = 4
COLUMNS = 400
ALIKE = 0.7  # of the names that rows of one table share
# What LLMPerf calls inter-token latency is a request's whole time over its tokens.
OF_LLMPERF = "inter_token_latency_s", "end_to_end_latency_s"
NOTE = "LLMPerf's inter_token_latency_s is the whole answer's time over its tokens; it was not read."


def matches(content: Content) -> bool:
    if not content.is_json:
        return False
    found = _rows(content)
    return bool(found) and tables.measured(tables.meanings(_names(found), _mapping(content)))


def load(content: Content, file: str) -> frame.Audited:
    found = _rows(content)
    columns = {name: [row.get(name) for row in found] for name in _names(found)}
    table, notes = row_kinds.obeyed(pd.DataFrame(columns))
    names = list(table)
    meant = tables.meanings(names, _mapping(content))
    if all(any(name.startswith(own) for name in names) for own in OF_LLMPERF):
        meant = {name: word for name, word in meant.items() if not name.startswith(OF_LLMPERF[0])}
        content.notes.append(NOTE)
    for name, (word, _) in list(meant.items()):
        if word in ("question", "answer"):
            chars = table[name].fillna("").astype(str).str.len()
            table[f"{word}_chars"] = chars.where(chars < TEXT_CHARS)  # of a longer one the rest was not kept
            table[name] = table[name].fillna("").astype(str).str[: frame.ANSWER_CHARS]
    made = tables.audited(table, meant, file)
    made.notes += [(file, note) for note in notes]
    return made


def _mapping(content: Content) -> dict[str, str]:
    return {PREFIX.sub("", name): word for name, word in content.mapping.items()} | content.mapping


def _rows(content: Content) -> list[Fields]:
    """The objects that are rows, flat; what stands beside rows is in each of them."""
    return rows(content.records if content.records is not None else content.json)


def rows(found: Value, depth: int = 0) -> list[Fields]:
    """The rows of a JSON value: of lists of objects, of objects of one form, else of itself."""
    if isinstance(found, list):
        return [flat(row) for row in found if isinstance(row, dict)]
    if not isinstance(found, dict):
        return []
    inside = _listed(found) or _alike(found)
    for key, value in found.items() if depth < DEPTH and not inside else ():
        if isinstance(value, dict) and len(part := rows(value, depth + 1)) > 1:
            inside = {key: part}
            break
    beside = flat({name: one for name, one in found.items() if name not in inside})
    if not inside:
        return [beside]
    named = len(inside) > 1
    return [beside | ({"name": key} if named else {}) | row for key, part in inside.items() for row in part]


def _listed(found: Fields) -> dict[str, list[Fields]]:
    """{name: rows} of the longest list of objects, and of the others that have the same names."""
    lists = {
        key: [flat(row) for row in value if isinstance(row, dict)]
        for key, value in found.items()
        if isinstance(value, list) and value and isinstance(value[0], dict)
    }
    if not lists:
        return {}
    longest = max(lists, key=lambda key: len(lists[key]))
    usual = set(lists[longest][0])
    return {key: part for key, part in lists.items() if key == longest or _same(usual, set(part[0]))}


def _alike(found: Fields) -> dict[str, list[Fields]]:
    """{name: its row} of the objects in an object under which the same names stand each time, as of load
    levels; none where there are fewer than two or nothing that is measured."""
    inside = {key: flat(value) for key, value in found.items() if isinstance(value, dict) and value}
    if len(inside) < 2:
        return {}
    common = set.intersection(*map(set, inside.values()))
    largest = max(len(names) for names in inside.values())
    if len(common) < ALIKE * largest or not tables.measured(tables.meanings(sorted(common), {})):
        return {}
    return {key: [row] for key, row in inside.items()}


def _same(one: set[str], other: set[str]) -> bool:
    return len(one & other) >= ALIKE * max(len(one), len(other))


def flat(row: Fields, prefix: str = "", depth: int = 0) -> Fields:
    """Name -> number or text of an object and the objects in it; lists are left out. `value` has the name of
    its object, and a `unit` beside numbers stands in their names."""
    out: Fields = {}
    unit = row.get("unit")
    unit = f"_{unit}" if isinstance(unit, str) and depth else ""
    for name, value in row.items():
        number = isinstance(value, int | float) or name == "value"
        name = prefix.removesuffix("_") if name == "value" and prefix else f"{prefix}{name}"
        name = PREFIX.sub("", f"{name}{unit if number else ''}")
        if isinstance(value, dict) and depth < DEPTH:
            out |= flat(value, f"{name}_", depth + 1)
        elif isinstance(value, (int, float, str)) and not isinstance(value, bool) and len(out) < COLUMNS:
            out[name] = value
    return out


def _names(found: Iterable[Fields]) -> list[str]:
    """Every name in the rows, in the order in which they come."""
    return list(dict.fromkeys(name for row in found for name in row))[:COLUMNS]
