"""Any CSV that names what it has in the study's words, any subset of them, or in words that `words.meaning`
understands.

A mapping (column -> word) serves for other names. Rows are requests where they have what only requests have
(a send time, an answer, an
error) or where many rows share all conditions; else each row is a level.
"""

import re
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from bench import hardware
from llm_audit import frame
from llm_audit.importers import units
from llm_audit.importers.content import Content
from llm_audit.importers.words import UNITS, meaning

TOOL = "CSV in the study's words"
LOOKED_FOR = (
    "a CSV with at least one of ttft_ms, tpot_ms, itl_ms, e2e_s, output_tokens_per_s, requests_per_s, "
    "each with the conditions it has; --map theirs=word names others"
)
MEASURED = (
    "ttft",
    "tpot",
    "itl",
    "e2e",
    "request_tokens_per_s",
    "output_tokens_per_s",
    "requests_per_s",
    "total_tokens_per_s",
    "decode_rate",
    "prompt_tokens_per_s",
)
# A number, the spread that may follow it, and a unit.
NUMBER = r"^[~≈]?\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(?:(?:±|\+/-|\()[^A-Za-z]*)?([A-Za-zµ]+)?"
POINT = re.compile(r"\d\.(?:\d{1,2}|\d{4,})(?!\d)")  # a decimal point: no three digits follow it
WORDS_THEMSELVES = "question", "answer", "error", "succeeded"
FORMAT = re.compile(r"(b?float|b?fp|b?f|int)-?\d+|q\d(-[a-z0-9]+)*|nf4|awq|gptq|\d-?bits?")
ONLY_REQUESTS = {"sent_s", "question", "answer", "error", "events", "gaps", "request"}
# What a request that did not fail says of itself.
SUCCEEDED = {
    "true",
    "1",
    "1.0",
    "ok",
    "success",
    "succeeded",
    "200",
    "completed",
    "stop",
    "length",
    "yes",
    "",
}
# Columns of a table that has one for the number and one for what it counts, as MLPerf's.
RESULT, UNIT = {"result", "value", "score"}, {"unit", "units"}
SHARED = 5  # rows per set of conditions from which rows count as requests


def matches(content: Content) -> bool:
    if content.is_json:
        return False
    return bool(measured(_meanings(content)) or _wide(content.header) or _with_units(content.header))


def measured(found: dict) -> bool:
    """Whether any of the columns `found` (name -> meaning) is something that a benchmark measures."""
    return any(word.startswith(MEASURED) for word, _ in found.values())


def _meanings(content):
    """Column -> (word, factor) of a CSV; ValueError where the mapping names what is not there."""
    known = set(content.mapping) - set(content.header)
    if known:
        raise ValueError(
            f"The mapping names {', '.join(sorted(known))}, which {content.path.name} does not have."
        )
    return meanings(content.header, content.mapping)


def meanings(names: Iterable[str], mapping: dict[str, str] | None) -> dict[str, tuple]:
    """Name -> (word, factor); a word that two names have stays with the first, but formats are joined."""
    found = {}
    for name in names:
        word = meaning(mapping.get(name, name))
        if word and (word[0] == "weights" or word[0] not in [one for one, _ in found.values()]):
            found[name] = word
    return found


def load(content: Content, file: str) -> frame.Audited:
    found = _meanings(content)
    if not measured(found) and (formats := _wide(content.header)):
        return _load_wide(content, file, formats)
    if not measured(found):
        return _load_with_units(content, file, *_with_units(content.header))
    places = {content.header.index(name): name for name in found}
    columns = {name: [] for name in found}
    chars = {name: [] for name, (word, _) in found.items() if word in ("question", "answer")}
    for row in content.rows():
        for place, name in places.items():
            value = row[place] if place < len(row) else ""
            if name in chars:
                chars[name].append(len(value))
                value = value[: frame.ANSWER_CHARS]
            columns[name].append(value)
    table = pd.DataFrame(columns)
    for name, lengths in chars.items():
        table[f"{found[name][0]}_chars"] = lengths
    return audited(table, found, content.header, file, content.delimiter == ";")


def _whole(content):
    """Every column of a CSV as a table of texts."""
    width = len(content.header)
    rows = [(row + [""] * width)[:width] for row in content.rows()]
    return pd.DataFrame(rows, columns=content.header)


def _reshaped(content, file, table):
    """The audit of a table that was brought into another form."""
    found = meanings(table.columns, content.mapping)
    return audited(table, found, list(table), file, content.delimiter == ";")


def _load_with_units(content, file, result, unit):
    """The audit of a table that says in each row what its number counts: one column for each such unit."""
    table = _whole(content)
    units_named = [name for name in dict.fromkeys(table[unit].str.strip()) if name]
    for name in units_named:
        table[name] = table[result].where(table[unit].str.strip() == name, "")
    found = meanings(units_named, content.mapping)
    if not measured(found):
        raise ValueError(f"{file}: {unit} names no quantity that is known ({', '.join(units_named[:6])}).")
    return _reshaped(content, file, table.drop(columns=[result, unit]))


def _with_units(names):
    """(column of numbers, column of their units) of a table that has one of each; () where it has not."""
    result = [name for name in names if hardware.slug(name) in RESULT]
    unit = [name for name in names if hardware.slug(name) in UNIT]
    return (result[0], unit[0]) if result and unit else ()


def _load_wide(content, file, formats):
    """The audit of a table with a column for each number format."""
    made = _reshaped(content, file, _long(_whole(content), formats))
    made.notes.append(
        (file, f"The columns {', '.join(formats)} were read as tokens/s in that number format.")
    )
    return made


def audited(
    table: pd.DataFrame, found: dict, header: Sequence[str], file: str, decimal_comma: bool = False
) -> frame.Audited:
    """`frame.Audited` of a table of texts whose columns mean `found` (name -> word, factor); `header` names
    all that were there."""
    table, notes = _converted(table, found, decimal_comma)
    if "requests_per_min" in table and "requests_per_s" not in table:
        table["requests_per_s"] = table["requests_per_min"] / 60
    table = _with_decode_rate(table)
    decoding = _while_decoding(table)
    if decoding.any():
        table["output_tokens_per_s"] = table["output_tokens_per_s"].mask(decoding)
        notes.append(
            f"In {int(decoding.sum())} rows of one request at a time the tokens/s are those after the first "
            "token, by TTFT and TPOT; they were read so."
        )
    requests = _are_requests(table)
    made = _requests(table, file) if requests else _levels(table, file)
    unread = [name for name in header if name not in found]
    if unread:
        notes.append(
            "Columns that were not read, because their names mean nothing here: "
            + ", ".join(str(name)[:40] for name in unread[:12])
            + "."
        )
    notes.append(f"Each row was read as {'a request' if requests else 'a load level'}.")
    made.notes += [(file, note) for note in notes]
    return made


def _with_decode_rate(table):
    """A rate of decoding alone is the TPOT of a single request, and of many the system's."""
    if "decode_rate" not in table:
        return table
    absent = pd.Series(np.nan, table.index)
    at_once = table.get("batch_size", absent).fillna(table.get("concurrency", absent)).fillna(1)
    single = (1 / table["decode_rate"]).where((at_once <= 1) & (table["decode_rate"] > 0))
    table["tpot_s"] = table.get("tpot_s", absent).fillna(single)
    table["output_tokens_per_s"] = table.get("output_tokens_per_s", absent).fillna(
        table["decode_rate"].where(at_once > 1)
    )
    return table.dropna(axis=1, how="all")


def _while_decoding(table):
    """Rows of one request at a time whose tokens/s leave the TTFT out, though it is no small part."""
    absent = pd.Series(np.nan, table.index)
    column = lambda *names: next((table[n] for n in names if n in table), absent)  # noqa: E731
    step = column("tpot_s", "tpot_mean_s", "tpot_p50_s")
    first, rate = column("ttft_s", "ttft_mean_s", "ttft_p50_s"), column("output_tokens_per_s")
    alone = (column("batch_size").fillna(column("concurrency")) == 1) & column("requests_per_s").isna()
    # A TTFT as long as all the steps together cannot be within the TPOT, which is the other reading.
    return alone & ((rate * step - 1).abs() < 0.03) & (first > step * column("output_tokens"))


def _converted(table, found, decimal_comma):
    """The table in words and units of the frame, and notes about units that had to be guessed."""
    out, unknown = {c: table[c] for c in table if c in ("question_chars", "answer_chars")}, {}
    figures = [
        n for n, (word, _) in found.items() if word not in frame.TEXTS and word not in WORDS_THEMSELVES
    ]
    # The mark is one for the whole table: 1,276 beside 12.5 are thousands.
    decimal_comma = decimal_comma and not any(
        table[name].astype(str).str.contains(POINT).any() for name in figures
    )
    for name, (word, factor) in found.items():
        values = table[name]
        if word in frame.TEXTS and word in out:
            values = (out[word].fillna("").astype(str) + " " + values.fillna("").astype(str)).str.strip()
        elif word == "succeeded" and _counts(values):
            word, values = "requests", numbers(values, decimal_comma)[0]
        elif word == "succeeded":
            good = values.fillna("").astype(str).str.strip().str.lower().isin(SUCCEEDED)
            word, values = "error", np.where(good, "", "failed")
        elif name in figures:
            values, stated = numbers(values, decimal_comma)
            if word.endswith("_s") and "per_s" not in word:
                if factor is None and stated.isna().any():
                    unknown[name] = word
                values = values * stated.fillna(1.0 if factor is None else factor)
            else:
                values = values * factor
        out[word] = values
    out = pd.DataFrame(out, index=table.index)
    return out, units.resolve(out, unknown, _are_requests(out))


def _counts(values):
    """Whether a column of successes counts them: numbers that are no 0, 1 or HTTP's 200."""
    found = pd.to_numeric(values, errors="coerce").dropna()
    return len(found) > 0.5 * len(values) and not found.isin([0, 1, 200]).all()


def numbers(values: pd.Series, decimal_comma: bool = False) -> tuple[pd.Series, pd.Series]:
    """(numbers, factors of the units that stand beside them) of texts such as 12.5, 1,234, 12,5, 191 tok/s,
    8.1 ms, 45% and 52.1 ± 0.3; NaN where there is no number or no unit."""
    if pd.api.types.is_numeric_dtype(values):
        return values.astype(float), pd.Series(np.nan, values.index)
    plain = values.fillna("").astype(str).str[:60].str.strip()
    if decimal_comma and not plain.str.contains(r"\d\.\d", regex=True).any():
        plain = plain.str.replace(",", ".")
    plain = plain.str.replace(r",(?=\d{3}(?!\d))", "", regex=True)
    parts = plain.str.extract(NUMBER)
    thousands = np.where(parts[1].str.lower() == "k", 1e3, 1.0)
    return pd.to_numeric(parts[0], errors="coerce") * thousands, parts[1].str.lower().map(UNITS)


def _wide(names):
    """The columns of a table that has one for each number format: two names at least that are formats and
    nothing else."""
    formats = [name for name in names if FORMAT.fullmatch(hardware.slug(name))]
    return formats if len(formats) >= 2 else []


def _long(table, formats):
    """A table with a column for each number format as one with a row for each, of tokens/s."""
    others = [c for c in table if c not in formats]
    return table.melt(others, formats, "weights", "tokens_per_s")


def _are_requests(table):
    level_only = [c for c in table if c.endswith(("_mean_s", "_p50_s", "_p90_s", "_p95_s", "_p99_s"))]
    # When a row was made says nothing beside means and percentiles.
    if ONLY_REQUESTS & set(table) - ({"sent_s"} if level_only else set()):
        return True
    one_time = {"ttft_s", "tpot_s", "e2e_s", "request_tokens_per_s"} & set(table)
    if (
        not one_time
        or level_only
        or {"asked", "requests_per_s", "duration_s", "requests", "total_output_tokens", "runs"} & set(table)
    ):
        return False
    conditions = _conditions(table)
    groups = table.groupby(conditions, dropna=False).ngroups if conditions else 1
    return len(table) >= SHARED * groups


def _conditions(table):
    numbers = {"tensor_parallel", "batch_size", "concurrency", "request_rate", "temperature"}
    return [c for c in table if c in frame.TEXTS or c in numbers]


def _requests(table, file):
    conditions = _conditions(table)
    if conditions:
        table = table.assign(level=table.groupby(conditions, dropna=False, sort=False).ngroup())
    else:
        table = table.assign(level=0)
    levels = table.drop_duplicates("level")[["level", *conditions]]
    if "output_tokens_per_s" in table and "request_tokens_per_s" not in table:
        table = table.rename(columns={"output_tokens_per_s": "request_tokens_per_s"})
    if "cached_share" in table and "cached_tokens" not in table:
        share = table["cached_share"].where(table["cached_share"] <= 1, table["cached_share"] / 100)
        table = table.assign(cached_tokens=share * table.get("prompt_tokens", 1))
    return frame.make(file, TOOL, levels, table)


def _levels(table, file):
    if "asked" in table and "requests" not in table:
        failed = table["failed"].fillna(0) if "failed" in table else 0
        table["requests"] = table["asked"] - failed
    if "per_gpu" in table:
        table["output_tokens_per_s_per_device"] = table["per_gpu"]
        table["output_tokens_per_s"] = table["per_gpu"] * table.get(
            "tensor_parallel", pd.Series(1, table.index)
        ).fillna(1)
    return frame.make(file, TOOL, table.rename(columns={"late_s": "late_mean_s"}))
