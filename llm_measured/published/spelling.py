"""One spelling of number format, KV format, backend and engine version; the source's text stays beside it.

spellings.csv has, for each column, patterns of what sources write (whole texts, small and capital letters
alike) and the name; the first that fits counts, an empty name is a text that says nothing. `vendor` limits a
row to accelerators of that vendor. Number formats of weights are read with core/formats.csv."""

import re
from functools import cache
from pathlib import Path

import pandas as pd

from llm_measured.core import hardware, names

SPELLED = {"kv_format": "kv_format_name", "backend": "backend_name", "engine_version": "version_name"}


@cache
def _rules(column: str) -> list[tuple[re.Pattern, str, str]]:
    table = pd.read_csv(Path(__file__).with_name("spellings.csv"), keep_default_na=False)
    rows = table[table["column"] == column].itertuples(index=False)
    return [(re.compile(row.pattern, re.I), row.name, row.vendor) for row in rows]


@cache
def spelled(column: str, text: str, vendor: str = "") -> str | None:
    """Return the one name of `text` in `column`, the text itself where no pattern fits, None where it says
    nothing."""
    for pattern, name, of in _rules(column):
        found = pattern.fullmatch(text.strip())
        if found and of in ("", vendor):
            return found.expand(name) or None
    return text


@cache
def weights(text: str, model: str, engine: str) -> names.Format | None:
    """Return the number format that `text` names, None where it names none; a GGUF file of a model that is
    published in four bits is in these, whatever the rest of it is said to be in."""
    try:
        return names.number_format(text, model, names.engine(engine).family)
    except names.UnknownName:
        return None


def formats(frame: pd.DataFrame) -> list[names.Format | None]:
    """Return the number format of each row's weights, None where the row states none that is known."""
    told = frame[["weights_format", "checkpoint_raw", "engine"]].astype(object)
    told = told.where(told.notna(), "").itertuples(index=False)
    return [weights(*row) if row[0] else None for row in told]


def beside(frame: pd.DataFrame) -> pd.DataFrame:
    """Return `frame` with the one spelling in format_name, kv_format_name, backend_name, version_name."""
    vendors = hardware.accelerators().drop_duplicates("family").set_index("family")["vendor"]
    vendor = frame["accelerator_family"].map(vendors).fillna("")
    frame = frame.assign(format_name=pd.Series([f and f.name for f in formats(frame)], frame.index, object))
    for column, name in SPELLED.items():
        texts = [
            spelled(column, text, of if column == "backend" else "") if isinstance(text, str) else None
            for text, of in zip(frame[column], vendor)
        ]
        frame[name] = pd.Series(texts, frame.index, object)
    return frame
