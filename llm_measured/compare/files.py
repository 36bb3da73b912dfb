"""Conditions that a result file states and the audit's importers do not read: data set, tokenizer, host and
others."""

import csv
import json
from pathlib import Path

from llm_measured.audit.importers.content import WHOLE_BYTES
from llm_measured.core.definitions import Value

# Name in the report -> names that tools give it, the first that is there counts.
NAMES = {
    "dataset": ("dataset_name", "dataset", "dataset_path", "data"),
    "tokenizer": ("tokenizer_id", "tokenizer"),
    "burstiness": ("burstiness",),
    "endpoint": ("endpoint_type",),
    "ignore_eos": ("ignore_eos",),
    "commit": ("engine_commit", "commit", "revision"),
}
DEPTH = 4  # of nested objects that are looked at
TEXT_CHARS = 120


def conditions(path: Path) -> dict[str, str | None]:
    """Text of each name of NAMES, and `host` of a run of this study; None where the file does not say."""
    found: dict[str, str | None] = dict.fromkeys((*NAMES, "host"))
    if path.stat().st_size > WHOLE_BYTES:
        return found
    if path.suffix == ".csv":
        return found | _own(path)
    document = _document(path)
    for name, theirs in NAMES.items():
        values = (_first(document, one, DEPTH) for one in theirs)
        found[name] = next((value for value in values if value), None)
    return found


def _document(path: Path) -> Value:
    """The JSON of a file, of JSON lines the first; None for another format."""
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    try:
        return json.JSONDecoder().raw_decode(text.lstrip())[0]
    except (ValueError, RecursionError):
        return None


def _first(document: Value, name: str, depth: int) -> str | None:
    """The first text or number under `name`, the shallower first."""
    if not isinstance(document, dict) or not depth:
        return None
    value = document.get(name)
    if isinstance(value, str | int | float) and not isinstance(value, dict):
        return str(value)[:TEXT_CHARS]
    inner = (_first(one, name, depth - 1) for one in document.values())
    return next((one for one in inner if one), None)


def _own(path: Path) -> dict[str, str]:
    """Host of a run of this study; the revision that measured it where its sidecar is there."""
    with open(path, encoding="utf-8", errors="replace", newline="") as lines:
        row = next(csv.DictReader(lines), None) or {}
    return {"host": row["host"][:TEXT_CHARS]} if {"run_id", "host"} <= set(row) and row["host"] else {}
