"""Which unit a column of times has that names none: the one in which the table's own arithmetic holds."""

import itertools

import numpy as np
import pandas as pd

from llm_measured.audit import quantities
from llm_measured.audit.checks import identities

FACTORS = {"seconds": 1.0, "milliseconds": 1e-3, "microseconds": 1e-6}
RARE = 200  # hundredths of a natural logarithm by which microseconds without a word must fit better
GUESSED = "guessed"  # begins what the report says first of a reading
SURELY = 0.5  # of a natural logarithm by which any other unit must fit worse


def resolve(table: pd.DataFrame, unknown: dict[str, str], requests: bool = False) -> list[str]:
    """Bring the columns of `unknown` (name in the file -> column of `table`) to seconds, in place; a sentence
    for each unit that says what was read so and why. `requests`: each row is one, and so is its rate.

    Columns of one quantity share a unit. Of all combinations the one counts in which the identities between
    a result's own figures fit best and no part is longer than its whole.
    """
    kind_of = {
        word: next((kind for kind in quantities.longest() if word.startswith(kind)), "")
        for word in unknown.values()
    }
    kinds = sorted({kind for word, kind in kind_of.items() if kind and table[word].notna().any()})
    if not kinds:
        return []
    asked = [one for one in identities.IDENTITIES if not one.assumed and {*kinds} & {*one.terms}]
    misfits, unlikely = {}, {}
    for factors in itertools.product(FACTORS.values(), repeat=len(kinds)):
        scale = dict(zip(kinds, factors, strict=True))
        scaled = table.assign(**{word: table[word] * scale.get(kind, 1.0) for word, kind in kind_of.items()})
        f = identities.of_table(scaled, requests)
        misfits[factors] = identities.distance(f, asked) + _parts_of_less(f)
        unlikely[factors] = sum(
            _unlikely(table[[word for word in kind_of if kind_of[word] == kind]], kind, factor)
            for kind, factor in scale.items()
        )
    best = min(misfits, key=lambda factors: misfits[factors] + 0.01 * unlikely[factors])
    rivals = [
        (*best[:k], factor, *best[k + 1 :])
        for k in range(len(kinds))
        for factor in (1.0, 1e-3)
        if factor != best[k]
    ]
    decided = all(misfits[rival] > misfits[best] + SURELY for rival in rivals)
    scale = dict(zip(kinds, best, strict=True))
    notes = []
    for unit, factor in FACTORS.items():
        read = {name: word for name, word in unknown.items() if scale.get(kind_of[word], 1.0) == factor}
        if read:
            notes.append(_said(unit, decided, {name: _shown(table[word]) for name, word in read.items()}))
        for word in dict.fromkeys(read.values()):
            table[word] = table[word] * factor
    return notes


def _said(unit: str, decided: bool, ranges: dict[str, str]) -> str:
    """A sentence about columns (name -> range of its figures) that were read as `unit`."""
    read = f"{', '.join(ranges)} {'has' if len(ranges) == 1 else 'have'} no unit in the name; read as {unit}"
    if decided:
        return read + (", as the table's own rates and times fit only so." if unit != "seconds" else ".")
    other = "milliseconds" if unit == "seconds" else "seconds"
    shown = "; ".join([*ranges.values()][:3])
    return f"{read}, which is {GUESSED}: nothing decides whether {shown} are {unit} or {other}."


def _shown(values):
    """The range of a column as the file prints it."""
    known = values.dropna()
    if known.empty:
        return "its figures"
    return f"{known.min():g} to {known.max():g}" if len(known) > 1 else f"{known.iloc[0]:g}"


def _unlikely(times: pd.DataFrame, kind: str, factor: float) -> float:
    """How far a factor is from what the size of the figures alone would say."""
    shortest = times.where(times > 0).min().min()
    likely = 1e-3 if shortest > quantities.longest()[kind] else 1.0
    sure = 3 if kind in ("tpot", "itl") else 1  # no engine takes half a second for a token
    return sure * abs(np.log10(factor / likely)) + RARE * (factor < 1e-5)


@np.errstate(all="ignore")
def _parts_of_less(f: identities.Facts) -> float:
    """By how much parts are longer than their whole: the median of logarithms."""
    step = np.where(np.isnan(f["tpot"]), f["itl"], f["tpot"])
    parts = [
        f["ttft"] / f["e2e"],
        f["e2e"] / f["duration"],
        step * 5 / np.where(f["tokens"] > 10, f["e2e"], np.nan),
    ]
    known = [ratio[np.isfinite(ratio) & (ratio > 0)] for ratio in parts]
    return sum(max(float(np.median(np.log(ratio))), 0.0) for ratio in known if len(ratio))
