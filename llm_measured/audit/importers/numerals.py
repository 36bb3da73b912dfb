"""Texts of a table as numbers: each is read whole or not at all, and the marks for decimals and thousands are
decided once for a column.

`1.198,89`, `1,198.89`, `1'198.89`, `1 198,89` and `1,00,000` say themselves which mark is which; `1.000` and
`403,316` do not, and follow the rest of their column, then of their table.
"""

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd

from llm_measured.audit import frame
from llm_measured.audit.quantities import UNITS, is_time

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
BESIDE = {  # quantity -> factors of the units that may stand beside its numbers
    **dict.fromkeys(("model_bytes", "weight_bytes"), SIZES),
    "model_parameters": {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12},
    "power_w": {"w": 1.0, "watt": 1.0, "watts": 1.0, "kw": 1e3, "mw": 1e-3},
}
NOTHING = {"", "-", "–", "—", "n/a", "na", "nan", "none", "null", "inf", "infinity", "unlimited", "auto"}
WHEN = re.compile(r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d")
# `1m8s`, `2m 3.5s`, `204.563ms`: a number and a unit, or several of them.
PART = re.compile(r"(\d+(?:\.\d+)?)\s?(h|ms|m|s|us|µs|ns)\s?")
SPAN = re.compile(f"(?:{PART.pattern})+")
SECONDS = UNITS | {"m": 60.0}
# From so many on, a moment that counts from 1970 is in milliseconds, microseconds, nanoseconds.
SINCE_1970 = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3))


def _proven(digits: str) -> str:
    """The decimal mark that one number proves, "." or ","; empty where its mark may be either."""
    points, commas = digits.count("."), digits.count(",")
    if points and commas:
        return "." if digits.rfind(".") > digits.rfind(",") else ","
    if points + commas != 1:  # only thousands come more than once: 1.000.000, 1,00,000
        return "," if points else "." if commas else ""
    mark = "." if points else ","
    before, _, after = digits.partition(mark)
    whole = re.sub(r"\D", "", before)
    spaced = re.search(rf"[ '’_{SPACES}]", digits)
    thousands = len(after) == 3 and 0 < len(whole) <= 3 and not whole.startswith("0") and not spaced
    return "" if thousands else mark


def of_table(columns: Mapping[str, pd.Series], comma_file: bool) -> tuple[dict[str, str], list[str]]:
    """({column: decimal mark}, sentences about marks that are not plain English) of a table's columns of
    texts; `comma_file`: its fields are separated by semicolons, as where the comma is the decimal mark."""
    digits = {name: _digits(values) for name, values in columns.items()}
    own = {name: {*map(_proven, some)} - {""} for name, some in digits.items()}
    proven = set().union(*own.values())
    comma = comma_file and any("," in one for some in digits.values() for one in some)
    usual = next(iter(proven)) if len(proven) == 1 else "," if comma else "."
    decimals = {name: next(iter(marks)) if len(marks) == 1 else usual for name, marks in own.items()}
    notes = []
    commas = [name for name, mark in decimals.items() if mark == "," and _marked(digits[name])]
    if commas:
        example = next((one for name in commas for one in digits[name] if "," in one), "")
        shown = f" ({example} is {_value(example, ','):,.10g})" if example else ""
        notes.append(
            f"The comma was read as the decimal mark and the point as that of thousands{shown}, in "
            f"{_listed(commas)}."
        )
    doubted = [name for name, marks in own.items() if len(marks) > 1]
    if doubted:
        notes.append(
            f"Points and commas are both decimal marks in {_listed(doubted)}: what may be either was read "
            f"with {usual!r}."
        )
    return decimals, notes


def _marked(digits: list[str]) -> bool:
    return any(re.search(r"\d[.,]\d", one) for one in digits)


def _listed(names: list[str]) -> str:
    shown = ", ".join(str(name)[:40] for name in names[:6])
    return shown + (f" and {len(names) - 6} more columns" if len(names) > 6 else "")


def _digits(values: pd.Series) -> list[str]:
    """The digits of a column's texts that are numbers."""
    if pd.api.types.is_numeric_dtype(values):
        return []
    texts = (str(value)[:TEXT_CHARS].strip() for value in values if isinstance(value, str))
    return [match["digits"] for text in texts if (match := NUMBER.match(text))]


def _value(digits: str, decimal: str) -> float:
    """Return the number that is written so, NaN where its groups are none. Decimals come after `decimal`,
    unless the digits themselves prove the other mark."""
    decimal = _proven(digits) or decimal
    other = "," if decimal == "." else "."
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
    read, strange = [], []
    for value in values:
        if isinstance(value, str):
            text = value[:TEXT_CHARS].strip()
            read.append(_read(text, decimal, word))
            if np.isnan(read[-1][0]) and text.lower() not in NOTHING:
                strange.append(text)
        else:
            plain = float(value) if isinstance(value, (int, float)) else float("nan")
            read.append((plain, float("nan"), frame.decimals(plain) if np.isfinite(plain) else 0))
    found, factors = (pd.Series([one[k] for one in read], values.index, float) for k in (0, 1))
    decimals = max((places for one, _, places in read if np.isfinite(one)), default=float("nan"))
    return found, factors, 10.0**-decimals, strange


def number(value: object, word: str) -> float:
    """The number of one text such as `4.58 GiB` that means `word` in the frame, NaN where it is none."""
    return float(numbers(pd.Series([value], dtype=object), word=word)[0].iloc[0])


def spreads(values: pd.Series) -> pd.Series | None:
    """What stands behind the ± of each text, NaN where none does; None of a column without any."""
    found = values.astype(str).str.extract(r"(?:±|\+/-|\+-)\s*(\d+(?:\.\d+)?)")[0]
    return pd.to_numeric(found) if found.notna().any() else None


def _read(text: str, decimal: str, word: str) -> tuple[float, float, int]:
    """(number, factor of a unit of time beside it, decimals printed) of one text; NaN for what is none."""
    none = float("nan"), float("nan"), 0
    text = text.replace("μ", "µ")
    if is_time(word) and len(PART.findall(text)) > 1:
        seconds = span(text)
        return (seconds, 1.0, 0) if seconds is not None else none
    match = NUMBER.match(text)
    if not match:
        return none
    number = _value(match["digits"], decimal)
    scale = _scale((match["unit"] or "").strip().lower(), word)
    if scale is None or number != number:
        return none
    rest = match["digits"].partition(_proven(match["digits"]) or decimal)[2]
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
    if is_time(word):
        unit = unit.removesuffix("/tok").removesuffix("/token").strip()
        return (1.0, SECONDS[unit]) if unit in SECONDS else None
    if "per_s" in word or word in ("decode_rate", "request_rate"):
        rate = PER_SECOND.fullmatch(unit)
        return (1e3 if rate[1] else 1.0, nothing) if rate else (1e3, nothing) if unit == "k" else None
    if word in BESIDE:
        return (BESIDE[word][unit], nothing) if unit in BESIDE[word] else None
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
