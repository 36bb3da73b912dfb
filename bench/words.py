"""Numbers and names as words of a sentence."""

from collections.abc import Sequence

import pandas as pd

from bench import html


def plural(count: float, word: str) -> str:
    """`1 run`, `3 runs`."""
    return f"{html.number(count)} {word}{'' if count == 1 else 's'}"


def two(value: float) -> str:
    """A number with two digits."""
    return html.number(float(f"{value:.2g}")).replace("-", "−")


def ratio_range(values: Sequence[float] | pd.Series) -> str:
    """`3 times`, `3 to 40 times`, `0.8 to 0.996 times`: the smallest and the largest of some ratios, with two
    digits, and with three where two would make it even."""
    low, high = (
        f"{value:.3g}" if two(value) == "1" else two(value) for value in (values.min(), values.max())
    )
    return f"{low} times" if low == high else f"{low} to {high} times"
