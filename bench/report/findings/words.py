"""Numbers and names as words of a sentence."""

import pandas as pd

from bench import naming
from bench.analysis import quality as quality_analysis
from bench.report import html

REFERENCE = quality_analysis.REFERENCE
SAME = 0.1  # a speed-up within a tenth of what the bytes promise is explained by them


def is_reference(table):
    """Which rows of a summary are the reference's."""
    return (table["backend"] == REFERENCE[0]) & (table["option"] == REFERENCE[1])


def name(row):
    """`**engine option**` of a row of a summary."""
    return f"**{naming.label(row)}**"


def times(ratio):
    """`3.6 times`: a ratio with two digits."""
    return f"{html.number(float(f'{ratio:.2g}'))} times"


def rate(row):
    """`**engine option** (95.2)`: a configuration and its output tokens/s."""
    return f"{name(row)} ({html.number(row['output_tokens_per_s'])})"


def percent(fraction):
    """`31`, `−0.13`: a fraction in percent, two digits, without the sign of percent."""
    return html.number(float(f"{fraction * 100:.2g}")).replace("-", "−")


def between(row, name, factor):
    """` (1.2 to 1.4)` where the interval is known."""
    low, high = row[f"{name}_low"] * factor, row[f"{name}_high"] * factor
    return f" ({html.number(low)} to {html.number(high)})" if pd.notna(low) else ""


def share(fraction):
    """`31 %`, `0.13 %`: a fraction in percent, two digits."""
    return f"{html.number(float(f'{100 * fraction:.2g}'))} %".replace("-", "−")


def above(row):
    """How far a perplexity lies from the reference's, in words."""
    apart = row["perplexity_ratio"] - 1
    return f"{share(abs(apart))} {'more' if apart > 0 else 'less'}" if abs(apart) >= 5e-5 else "the same"


def nats(row):
    """`+0.05`, `−0.2`: the excess NLL of a row of a summary of quality, nats per token."""
    return f"{row['excess_nll_nats']:+.2g}".replace("-", "−")


def more(value):
    """A difference with its sign, as a reader writes it: +3.1, −0.4."""
    return f"{'−' if value < 0 else '+'}{html.number(abs(value))}"


def two(value):
    """A number with two digits."""
    return html.number(float(f"{value:.2g}")).replace("-", "−")


def ms(value):
    """`1.3 ms`: milliseconds with two digits."""
    return f"{two(value)} ms"


def range(values):
    """`3 times`, `3 to 40 times`: the smallest and the largest of some ratios."""
    low, high = two(values.min()), two(values.max())
    return f"{low} times" if low == high else f"{low} to {high} times"


def plain(value):
    """Integers without a decimal point, words as they are."""
    return value if isinstance(value, str) else int(value) if float(value).is_integer() else float(value)
