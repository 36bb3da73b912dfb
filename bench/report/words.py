"""Numbers and names as words of a sentence."""

import math
from collections.abc import Sequence

import pandas as pd

from bench import html
from llm_measured.core.definitions import Value


def about(row: pd.Series, sentence: str) -> str:
    """``On `epyc-zen4-2c`, `` before `sentence`: the machine that it is about."""
    return f"On `{row['gpu']}`, {sentence[0].lower()}{sentence[1:]}"


def within(value: float, half: float) -> str:
    """`209 ± 33`: a mean with the half width of its interval, which one run does not have."""
    return html.number(value) + ("" if math.isnan(half) else f" ± {two(half)}")


def plural(count: float, word: str) -> str:
    """`1 run`, `3 runs`."""
    return f"{html.number(count)} {word}{'' if count == 1 else 's'}"


def two(value: float) -> str:
    """A number with two digits."""
    return html.number(float(f"{value:.2g}")).replace("-", "−")


def ms(value: float) -> str:
    """`1.3 ms`: milliseconds with two digits."""
    return f"{two(value)} ms"


def ratio_range(values: Sequence[float] | pd.Series) -> str:
    """`3 times`, `3 to 40 times`, `0.8 to 0.996 times`: the smallest and the largest of some ratios, with two
    digits, and with three where two would make it even."""
    low, high = (
        f"{value:.3g}" if two(value) == "1" else two(value) for value in (values.min(), values.max())
    )
    return f"{low} times" if low == high else f"{low} to {high} times"


def plain(value: Value) -> str | int | float:
    """Integers without a decimal point, words as they are."""
    return value if isinstance(value, str) else int(value) if float(value).is_integer() else float(value)
