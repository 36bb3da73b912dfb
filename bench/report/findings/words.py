"""Numbers and names as words of a sentence."""

import math
from collections.abc import Callable, Sequence

import pandas as pd

from bench import html, naming
from bench.analysis import quality as quality_analysis
from bench.definitions import Fields, Value
from bench.naming import listed  # noqa: F401 (one of these words, and the packages' beside the study)

REFERENCE = quality_analysis.REFERENCE


def is_reference(table: pd.DataFrame) -> pd.Series:
    """Which rows of a summary are the reference's."""
    own = table["option"].str.replace(r" \(.*\)$", "", regex=True)  # of several versions, each
    return (table["backend"] == REFERENCE[0]) & (own == REFERENCE[1])


def on(row: pd.Series) -> str:
    """``On `epyc-zen4-2c` ``: the machine that a sentence is about."""
    return f"On `{row['gpu']}`"


def about(row: pd.Series, sentence: str) -> str:
    """`sentence` with `on` before it."""
    return f"{on(row)}, {sentence[0].lower()}{sentence[1:]}"


def within(value: float, half: float) -> str:
    """`209 ± 33`: a mean with the half width of its interval, which one run does not have."""
    return html.number(value) + ("" if math.isnan(half) else f" ± {two(half)}")


def measured(row: pd.Series, unit: str = "") -> str:
    """`**engine option** (209 ± 33)`: a configuration of a summary, and its output tokens/s."""
    rate = within(row["output_tokens_per_s"], row["output_tokens_per_s_interval"])
    return f"{name(row)} ({rate} {unit})" if unit else f"{name(row)} ({rate})"


def ratio(found: Fields) -> str:
    """`2.9 times (2.1 to 4)`: a ratio (`comparison.Fit.compare`) with its interval."""
    return f"{times(found['ratio'])}{interval(found['low'], found['high'])}"


def plural(count: float, word: str) -> str:
    """`1 run`, `3 runs`."""
    return f"{html.number(count)} {word}{'' if count == 1 else 's'}"


def name(row: pd.Series) -> str:
    """`**engine option**` of a row of a summary."""
    return f"**{naming.label(row)}**"


def times(ratio: float) -> str:
    """`3.6 times`: a ratio with two digits."""
    return f"{two(ratio)} times"


def span(values: Sequence[float] | pd.Series) -> str:
    """`37.2 to 65.1`: the smallest and the largest of some values."""
    low, high = html.number(values.min()), html.number(values.max())
    return low if low == high else f"{low} to {high}"


def percent(fraction: float) -> str:
    """`31`, `−0.13`: a fraction in percent, two digits, without the sign of percent."""
    return two(100 * fraction)


def share(fraction: float) -> str:
    """`31 %`, `0.13 %`: a fraction in percent, two digits."""
    return f"{percent(fraction)} %"


def above(row: pd.Series) -> str:
    """How far a perplexity lies from the reference's, in words."""
    apart = row["perplexity_ratio"] - 1
    return f"{share(abs(apart))} {'more' if apart > 0 else 'less'}" if abs(apart) >= 5e-5 else "the same"


def nats(row: pd.Series) -> str:
    """`+0.05`, `−0.2`: the excess NLL of a row of a summary of quality, nats per token."""
    return f"{row['excess_nll_nats']:+.2g}".replace("-", "−")


def more(value: float) -> str:
    """A difference with its sign, as a reader writes it: +3.1, −0.4."""
    return f"{'−' if value < 0 else '+'}{html.number(abs(value))}"


def two(value: float) -> str:
    """A number with two digits."""
    return html.number(float(f"{value:.2g}")).replace("-", "−")


def interval(low: float, high: float, shown: Callable[[float], str] = two) -> str:
    """` (2.1 to 4)`: the ends of an interval, as `shown` writes them; empty where it is not known."""
    return "" if pd.isna(low) else f" ({shown(low)} to {shown(high)})"


def ms(value: float) -> str:
    """`1.3 ms`: milliseconds with two digits."""
    return f"{two(value)} ms"


def range(values: Sequence[float] | pd.Series) -> str:
    """`3 times`, `3 to 40 times`: the smallest and the largest of some ratios."""
    low, high = two(values.min()), two(values.max())
    return f"{low} times" if low == high else f"{low} to {high} times"


def plain(value: Value) -> str | int | float:
    """Integers without a decimal point, words as they are."""
    return value if isinstance(value, str) else int(value) if float(value).is_integer() else float(value)
