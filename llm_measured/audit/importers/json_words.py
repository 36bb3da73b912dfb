"""Any JSON whose names mean something in the study's words: an object, a list of objects or lines of them.

Names inside names are joined by an underscore (`"ttft_ms": {"mean": 20}` is `ttft_ms_mean`). Where one name
holds a list of objects, each of them is a row, and what stands beside the list holds for all. LLMPerf's
summary is read so, and tables that people export from a notebook.
"""

import re

import pandas as pd

from llm_measured.audit import frame
from llm_measured.audit.importers import csv_words, row_kinds
from llm_measured.audit.importers.content import TEXT_CHARS, Content

TOOL = "JSON in the study's words"
LOOKED_FOR = "objects with any of the same words"
PREFIX = re.compile(
    r"^(results?|summary|timings|metrics|stats|statistics|performance|benchmark|config|parameters|args|"
    r"metadata)_"
)
DEPTH = 4
COLUMNS = 400
# What LLMPerf calls inter-token latency is a request's whole time over its tokens.
OF_LLMPERF = "inter_token_latency_s", "end_to_end_latency_s"
NOTE = "LLMPerf's inter_token_latency_s is the whole answer's time over its tokens; it was not read."


def matches(content: Content) -> bool:
    if not content.is_json:
        return False
    rows = _rows(content)
    return bool(rows) and csv_words.measured(csv_words.meanings(_names(rows), _mapping(content)))


def load(content: Content, file: str) -> frame.Audited:
    rows = _rows(content)
    table, notes = row_kinds.obeyed(
        pd.DataFrame({name: [row.get(name) for row in rows] for name in _names(rows)})
    )
    names = list(table)
    found = csv_words.meanings(names, _mapping(content))
    if all(any(name.startswith(own) for name in names) for own in OF_LLMPERF):
        found = {name: word for name, word in found.items() if not name.startswith(OF_LLMPERF[0])}
        content.notes.append(NOTE)
    for name, (word, _) in list(found.items()):
        if word in ("question", "answer"):
            chars = table[name].fillna("").astype(str).str.len()
            table[f"{word}_chars"] = chars.where(chars < TEXT_CHARS)  # of a longer one the rest was not kept
            table[name] = table[name].fillna("").astype(str).str[: frame.ANSWER_CHARS]
    made = csv_words.audited(table, found, names, file)
    made.notes += [(file, note) for note in notes]
    return made


def _mapping(content):
    return {PREFIX.sub("", name): word for name, word in content.mapping.items()} | content.mapping


def _rows(content):
    """The objects that are rows, flat; what stands beside a list of rows is in each of them."""
    found = content.records if content.records is not None else content.json
    if isinstance(found, dict):
        lists = [v for v in found.values() if isinstance(v, list) and v and isinstance(v[0], dict)]
        inside = max(lists, key=len, default=None)
        if inside is not None:
            shared = _flat({k: v for k, v in found.items() if v is not inside})
            return [shared | _flat(row) for row in inside if isinstance(row, dict)]
        alike = _alike(found)
        shared = _flat({k: v for k, v in found.items() if k not in alike})
        return [shared | {"name": key} | _flat(found[key]) for key in alike] or [_flat(found)]
    return [_flat(row) for row in found or [] if isinstance(row, dict)] if isinstance(found, list) else []


def _alike(found):
    """The names in an object under which the same names stand each time, as of load levels: {"1": {...},
    "2": {...}}; none where there are fewer than two or nothing that is measured."""
    inside = {key: set(_flat(value)) for key, value in found.items() if isinstance(value, dict) and value}
    common = set.intersection(*inside.values()) if len(inside) >= 2 else set()
    alike = len(common) >= 0.7 * max((len(names) for names in inside.values()), default=1)
    return list(inside) if alike and csv_words.measured(csv_words.meanings(sorted(common), {})) else []


def _flat(row, prefix="", depth=0):
    """Name -> number or text of an object and the objects in it; lists are left out."""
    out = {}
    for name, value in row.items():
        name = PREFIX.sub("", f"{prefix}{name}")
        if isinstance(value, dict) and depth < DEPTH:
            out |= _flat(value, f"{name}_", depth + 1)
        elif isinstance(value, (int, float, str)) and not isinstance(value, bool) and len(out) < COLUMNS:
            out[name] = value
    return out


def _names(rows):
    """Every name in the rows, in the order in which they come."""
    return list(dict.fromkeys(name for row in rows for name in row))[:COLUMNS]
