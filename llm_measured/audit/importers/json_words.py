"""Any JSON whose names mean something by quantities.csv: an object, a list of objects or lines of them.

Names inside names are joined by an underscore (`"ttft_ms": {"mean": 20}` is `ttft_ms_mean`). Lists of objects
and objects of one form (load levels by name, experiments by name) are rows, and what stands beside them holds
for all. LLMPerf's summary is read so, and tables that people export from a notebook.
"""

import re
from collections.abc import Iterable

import pandas as pd

from llm_measured.audit import frame, quantities
from llm_measured.audit.importers import beside, headings, tables
from llm_measured.audit.importers.content import Content
from llm_measured.core.definitions import Fields, Value

TOOL = "JSON in the study's words"
PREFIX = re.compile(
    r"^(?:(?:results?|summary|timings|metrics|stats|statistics|performance|benchmark|config|parameters|args|"
    r"metadata)_)+(?=.)"
)
DEPTH = 5
COLUMNS = 400
ALIKE = 0.7  # of the names that rows of one table share
# What LLMPerf calls inter-token latency is a request's whole time over its tokens.
OF_LLMPERF = "inter_token_latency_s", "end_to_end_latency_s"
NOTE = "LLMPerf's inter_token_latency_s is the whole answer's time over its tokens; it was not read."


def matches(content: Content) -> bool:
    if not content.is_json:
        return False
    found = _rows(content)
    if not found or tables.measured(tables.meanings(_names(found), _mapping(content))):
        return bool(found)
    return tables.measured_once_obeyed(_table(found[: tables.FIRST_ROWS]), content)


def load(content: Content, file: str) -> frame.Audited:
    found, mapping = _rows(content), _mapping(content)
    names = _names(found)
    if all(any(name.startswith(own) for name in names) for own in OF_LLMPERF):
        mapping |= {name: "" for name in names if name.startswith(OF_LLMPERF[0])}
        content.notes.append(NOTE)
    return tables.of_rows(_table(found), mapping, file)


def _table(found: list[Fields]) -> pd.DataFrame:
    return pd.DataFrame({name: [row.get(name) for row in found] for name in _names(found)})


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
    return [
        beside | (_called(key, beside | row) if named else {}) | row
        for key, part in inside.items()
        for row in part
    ]


def _called(name: str, row: Fields) -> Fields:
    """The name of a row, and the setting that it states (`conc_8`) where the row does not."""
    setting, value = headings.stated(name)
    known = [meant[0] for other in row if (meant := quantities.meaning(other))]
    silent = setting == "option" or (quantities.meaning(setting) or ("",))[0] in known
    return {"name": name} | ({} if silent else {setting: value})


def _listed(found: Fields) -> dict[str, list[Fields]]:
    """{name: rows} of the longest list of objects, and of the others that have the same names."""
    lists = {
        key: [flat(row) for row in value if isinstance(row, dict)]
        for key, value in found.items()
        if isinstance(value, list) and value and isinstance(value[0], dict)
    }
    usual = set(max(lists.values(), key=len, default=[()])[0])
    return {key: part for key, part in lists.items() if _same(usual, set(part[0]))}


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


def flat(row: Fields) -> Fields:
    """Name -> number or text of an object and the objects in it; lists are left out. `value` has the name of
    its object, and a `unit` beside numbers stands in their names."""
    found = [
        (path, value)
        for path, value in beside.leaves(row, DEPTH, 0)
        if isinstance(value, int | float | str) and not isinstance(value, bool)
    ]
    units = {
        path[:-1]: f"_{unit}" for path, unit in found if path[1:] and (path[-1], type(unit)) == ("unit", str)
    }
    out: Fields = {}
    for path, value in found[:COLUMNS]:
        around, name = path[:-1], path[-1]
        if name == "unit" and around in units:
            continue
        unit = units.get(around, "") if name == "value" or not isinstance(value, str) else ""
        out[PREFIX.sub("", "_".join(around if around and name == "value" else path) + unit)] = value
    return out


def _names(found: Iterable[Fields]) -> list[str]:
    """Every name in the rows, in the order in which they come."""
    return list(dict.fromkeys(name for row in found for name in row))[:COLUMNS]
