"""Texts of a table as numbers: each is read whole or not at all, and the marks for decimals and thousands are
decided once for a column.

`1.198,89`, `1,198.89`, `1'198.89`, `1 198,89` and `1,00,000` say themselves which mark is which; `1.000` and
`403,316` do not, and follow the rest of their column, then of their table.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from llm_measured.audit import frame
from llm_measured.audit.quantities import UNITS

TEXT_CHARS = 60  # of a cell that are looked at
SPACES = "\u00a0\u2007\u2009\u202f"  # that typesetters put between thousands
DIGITS = rf"\d[\d.,'’_{SPACES}]*(?: \d{{3}}(?![\d.,]*\d{{4}}))*(?:[.,]\d+)?|[.,]\d+"
# A number, the spread or the change that may follow it, and what it counts; what has anything else beside it
# is no number.
NUMBER = re.compile(
    rf"^[~≈∼]?\s*(?P<sign>[-+−]?)(?P<digits>{DIGITS})(?P<power>[eE][-+]?\d+)?\s*"
    r"(?:(?:±|\+/-|\+-)\s*[\d.,]+(?:[eE][-+]?\d+)?\s*%?|\(\s*(?:±|\+/-|[-+−])?\s*[\d.,]+\s*%?\s*\))?\s*"
    r"(?P<unit>[A-Za-zµμ%/°×][A-Za-zµμ%/ ²()·×]*)?$"
)
PER_SECOND = re.compile(
    r"(?:(k)\s?)?(?:(?:output |total )?(?:tokens?|toks?|t|reqs?|requests?|it|samples?|queries)\s?(?:/|per)\s?"
    r"(?:s|secs?|seconds?)|tps|tok/sec/user|tok/s/user|rps|qps|/s)"
)
SIZES = {"b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}
SIZES |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
COUNTED = re.compile(
    r"(?:(k)\s?)?(?:tokens?|toks?|requests?|reqs?|prompts?|runs?|gpus?|devices?|users?|x|×)?"
)
BILLIONS = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
WATTS = {"w": 1.0, "watt": 1.0, "watts": 1.0, "kw": 1e3, "mw": 1e-3}
NOTHING = {"", "-", "–", "—", "n/a", "na", "nan", "none", "null", "inf", "infinity", "unlimited", "auto"}
WHEN = re.compile(r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d")
# `1m8s`, `2m 3.5s`, `204.563ms`: a number and a unit, or several of them.
SPAN = re.compile(r"(?:\d+(?:\.\d+)?\s?(?:h|ms|m|s|us|µs|μs|ns)\s?)+")
PART = re.compile(r"(\d+(?:\.\d+)?)\s?(h|ms|m|s|us|µs|μs|ns)")
SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
# From so many on, a moment that counts from 1970 is in milliseconds, microseconds, nanoseconds.
SINCE_1970 = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3))


@dataclass(frozen=True)
class Marks:
    """Which mark separates decimals in a column: "." or ","; "" where the column itself does not say, and
    both where values contradict each other."""

    decimal: str = ""
    grouped: bool = False  # whether thousands are separated, and so told from the decimals


def marks(texts: Iterable[str]) -> Marks:
    """What the numbers among `texts` say themselves about their decimal mark."""
    decimals, grouped = set(), False
    for text in texts:
        match = NUMBER.match(text)
        if match:
            decimal, groups = _evidence(match["digits"])
            decimals |= {decimal} - {""}
            grouped |= groups
    return Marks("".join(sorted(decimals)), grouped)


def _evidence(digits: str) -> tuple[str, bool]:
    """(decimal mark that one number proves, whether it proves a mark of thousands)."""
    points, commas = digits.count("."), digits.count(",")
    spaced = bool(re.search(rf"[ '’_{SPACES}]", digits))
    if points and commas:
        return ("." if digits.rfind(".") > digits.rfind(",") else ","), True
    mark = "." if points else "," if commas else ""
    if not mark:
        return "", spaced
    if points + commas > 1:  # only thousands come more than once: 1.000.000, 1,00,000
        return (",", True) if mark == "." else (".", True)
    before, _, after = digits.partition(mark)
    whole = re.sub(r"\D", "", before)
    if spaced or len(after) != 3 or len(whole) > 3 or whole.startswith("0") or not whole:
        return mark, spaced
    return "", False


def of_table(columns: Mapping[str, pd.Series], comma_file: bool) -> tuple[dict[str, str], list[str]]:
    """({column: decimal mark}, sentences about marks that are not plain English) of a table's columns of
    texts; `comma_file`: its fields are separated by semicolons, as where the comma is the decimal mark."""
    own = {name: marks(_texts(values)) for name, values in columns.items()}
    proven = "".join(sorted({mark for found in own.values() for mark in found.decimal}))
    usual = proven if len(proven) == 1 else "," if comma_file and proven != "." else "."
    if not proven and comma_file and not any(_has_comma(values) for values in columns.values()):
        usual = "."
    decimals = {name: found.decimal if len(found.decimal) == 1 else usual for name, found in own.items()}
    notes = []
    commas = [name for name, mark in decimals.items() if mark == "," and _has_mark(columns[name])]
    if commas:
        example = next((text for name in commas for text in _texts(columns[name]) if "," in text), "")
        shown = f" ({example} is {_shown(example)})" if example else ""
        notes.append(
            f"The comma was read as the decimal mark and the point as that of thousands{shown}, in "
            f"{_listed(commas)}."
        )
    doubted = [name for name, found in own.items() if len(found.decimal) > 1]
    if doubted:
        notes.append(
            f"Points and commas are both decimal marks in {_listed(doubted)}: what may be either was read "
            f"with {usual!r}."
        )
    return decimals, notes


def _has_comma(values: pd.Series) -> bool:
    return any("," in text and NUMBER.match(text) for text in _texts(values))


def _has_mark(values: pd.Series) -> bool:
    return any(re.search(r"\d[.,]\d", text) for text in _texts(values) if NUMBER.match(text))


def _shown(example: str) -> str:
    match = NUMBER.match(example)
    return f"{_value(match['digits'], ','):,.10g}" if match else example


def _listed(names: list[str]) -> str:
    shown = ", ".join(str(name)[:40] for name in names[:6])
    return shown + (f" and {len(names) - 6} more columns" if len(names) > 6 else "")


def _texts(values: pd.Series) -> list[str]:
    if pd.api.types.is_numeric_dtype(values):
        return []
    return [str(value)[:TEXT_CHARS].strip() for value in values if isinstance(value, str)]


def _value(digits: str, decimal: str) -> float:
    """Return the number that is written so, NaN where its groups are none. Decimals come after `decimal`,
    unless the digits themselves prove the other mark (`_evidence`)."""
    other = "," if decimal == "." else "."
    proven, _ = _evidence(digits)
    if proven and proven != decimal:
        decimal, other = other, decimal
    whole, mark, rest = digits.partition(decimal)
    if decimal in rest or other in rest:
        return float("nan")
    groups = re.split(rf"[ '’_{SPACES}{re.escape(other)}]", whole)
    if len(groups) > 1 and not (len(groups[-1]) == 3 and all(len(g) in (2, 3) for g in groups[1:-1])):
        return float("nan")
    return float(f"{''.join(groups) or '0'}.{rest or '0'}")


def numbers(
    values: pd.Series, decimal: str = ".", word: str = ""
) -> tuple[pd.Series, pd.Series, float, list[str]]:
    """(numbers, factors of the units of time that stand beside them, the step in which the numbers are
    printed, texts that are no number) of a column that means `word` in the frame.

    A text is read whole: 12.5, 191 tok/s, 8.1 ms, 45 %, 52.1 ± 0.3. What has more in it (a range, a date,
    `8B` where no parameters are counted) is NaN.
    """
    if pd.api.types.is_numeric_dtype(values):
        found = values.astype(float)
        return found, pd.Series(np.nan, values.index), frame.step(found), []
    out, factors, decimals, strange = [], [], [], []
    for value in values:
        text = str(value)[:TEXT_CHARS].strip() if isinstance(value, str) else value
        if not isinstance(text, str):
            plain = float(text) if isinstance(text, (int, float)) else float("nan")
            out.append(plain)
            factors.append(float("nan"))
            if plain == plain and plain not in (float("inf"), float("-inf")):
                decimals.append(frame.decimals(plain))
            continue
        read = _read(text, decimal, word)
        out.append(read[0])
        factors.append(read[1])
        if read[0] == read[0]:
            decimals.append(read[2])
        elif text.lower() not in NOTHING:
            strange.append(text)
    printed = 10.0 ** -max(decimals) if decimals else float("nan")
    return pd.Series(out, values.index, float), pd.Series(factors, values.index, float), printed, strange


def spreads(values: pd.Series) -> pd.Series | None:
    """What stands behind the ± of each text, NaN where none does; None of a column without any."""
    found = values.astype(str).str.extract(r"(?:±|\+/-|\+-)\s*(\d+(?:\.\d+)?)")[0]
    return pd.to_numeric(found) if found.notna().any() else None


def _read(text: str, decimal: str, word: str) -> tuple[float, float, int]:
    """(number, factor of a unit of time beside it, decimals printed) of one text; NaN for what is none."""
    none = float("nan"), float("nan"), 0
    if word.endswith("_s") and "per_s" not in word and len(PART.findall(text)) > 1:
        seconds = span(text)
        return (seconds, 1.0, 0) if seconds is not None else none
    match = NUMBER.match(text)
    if not match:
        return none
    number = _value(match["digits"], decimal)
    scale = _scale((match["unit"] or "").strip().lower().replace("μ", "µ"), word)
    if scale is None or number != number:
        return none
    proven, _ = _evidence(match["digits"])
    _, mark, rest = match["digits"].partition(proven or decimal)
    power = match["power"] or ""
    number = float(f"{number!r}{power}") if power and "e" not in repr(number) else number
    number = -number if match["sign"] in ("-", "−") else number
    places = len(rest) - int(power[1:] or 0) if power else len(rest)
    factor, of_time = scale
    return number * factor, of_time, places - round(np.log10(factor)) if factor > 0 else places


def span(text: str) -> float | None:
    """Seconds of a time that names its units (`1m8s`); None of anything else."""
    if not SPAN.fullmatch(text.strip()):
        return None
    return sum(float(number) * SECONDS[unit] for number, unit in PART.findall(text))


def _scale(unit: str, word: str) -> tuple[float, float] | None:
    """(factor of the number, factor of its unit of time) of a unit beside a number that means `word`; None
    for a unit that counts something else."""
    nothing = float("nan")
    if not unit:
        return 1.0, nothing
    if word.endswith("_s") and "per_s" not in word:
        unit = unit.removesuffix("/tok").removesuffix("/token").strip()
        return (1.0, UNITS[unit]) if unit in UNITS else (1.0, 1e-6) if unit == "µs" else None
    if "per_s" in word or word in ("decode_rate", "request_rate"):
        rate = PER_SECOND.fullmatch(unit)
        return (1e3 if rate[1] else 1.0, nothing) if rate else (1e3, nothing) if unit == "k" else None
    if word.endswith("bytes"):
        return (SIZES[unit], nothing) if unit in SIZES else None
    if word == "model_parameters":
        return (BILLIONS[unit], nothing) if unit in BILLIONS else None
    if word == "power_w":
        return (WATTS[unit], nothing) if unit in WATTS else None
    if unit == "%":
        return (0.01 if word == "cached_share" else 1.0), nothing
    counted = COUNTED.fullmatch(unit)
    return (1e3 if counted[1] else 1.0, nothing) if counted else None


def moments(values: pd.Series, decimal: str = ".") -> pd.Series:
    """Seconds on one clock of texts that are moments: dates with a time of day, or seconds, milliseconds or
    more since 1970; NaN for a day without its time."""
    if not pd.api.types.is_numeric_dtype(values):
        texts = values.fillna("").astype(str).str.strip()
        if texts.str.match(WHEN).mean() > 0.5:
            parsed = pd.to_datetime(texts, utc=True, errors="coerce", format="ISO8601")
            since = (parsed - pd.Timestamp("1970-01-01", tz="UTC")) / pd.Timedelta(seconds=1)
            return since.astype(float)
        values = numbers(values, decimal)[0]
    values = values.astype(float)
    middle = values.abs().median()
    return values * next((factor for least, factor in SINCE_1970 if middle >= least), 1.0)
