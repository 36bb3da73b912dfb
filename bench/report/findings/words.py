"""Numbers and names as words of a sentence."""

import math

import pandas as pd

from bench import naming
from bench.analysis import quality as quality_analysis
from bench.report import html

REFERENCE = quality_analysis.REFERENCE


def is_reference(table):
    """Which rows of a summary are the reference's."""
    own = table["option"].str.replace(r" \(.*\)$", "", regex=True)  # of several versions, each
    return (table["backend"] == REFERENCE[0]) & (own == REFERENCE[1])


def on(row):
    """``On `epyc-zen4-2c` ``: the machine that a sentence is about."""
    return f"On `{row['gpu']}`"


def about(row, sentence):
    """`sentence` with `on` before it."""
    return f"{on(row)}, {sentence[0].lower()}{sentence[1:]}"


def listed(words, most=None, last="and"):
    """`a`, `a and b`, `a, b and c`, with `last` before the last; of more than `most` the first ones, and how
    many others there are."""
    words = list(words)
    if most and len(words) > most:
        words = [*words[:most], f"{len(words) - most} more"]
    return f" {last} ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def within(value, half):
    """`209 ± 33`: a mean with the half width of its interval, which one run does not have."""
    return html.number(value) + ("" if math.isnan(half) else f" ± {two(half)}")


def measured(row, column="output_tokens_per_s", factor=1.0, unit=""):
    """`**engine option** (209 ± 33)`: a configuration of a summary, and a column with its interval."""
    unit = f" {unit}" if unit else ""
    return f"{name(row)} ({within(row[column] * factor, row[f'{column}_interval'] * factor)}{unit})"


def ratio(found):
    """`2.9 times (2.1 to 4)`: a `statistics.ratio` with its interval."""
    interval = "" if math.isnan(found["low"]) else f" ({two(found['low'])} to {two(found['high'])})"
    return f"{times(found['ratio'])}{interval}"


def plural(count, word):
    """`1 run`, `3 runs`."""
    return f"{html.number(count)} {word}{'' if count == 1 else 's'}"


def name(row):
    """`**engine option**` of a row of a summary."""
    return f"**{naming.label(row)}**"


def times(ratio):
    """`3.6 times`: a ratio with two digits."""
    return f"{html.number(float(f'{ratio:.2g}'))} times"


def span(values):
    """`37.2 to 65.1`: the smallest and the largest of some values."""
    low, high = html.number(values.min()), html.number(values.max())
    return low if low == high else f"{low} to {high}"


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
