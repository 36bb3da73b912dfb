"""Limits of a comparison, as `--fail-if "ttft_p90 > +10%"` states them."""

import re
from dataclasses import dataclass

from llm_measured.compare.reading import ROWS, TOKENS

FORM = re.compile(r"\s*([a-z0-9_]+)\s*([<>])\s*([+-]?\d+(?:\.\d+)?)\s*%\s*")
NAMES = {
    (f"{metric}_{statistic}" if statistic else metric): (metric, statistic) for metric, statistic in ROWS
}
NAMES |= {"tokens_per_s": (TOKENS, "")}


@dataclass(frozen=True)
class Limit:
    """A limit of B against A: the true ratio must not lie above `ratio`, or below it where not `above`."""

    text: str
    row: tuple[str, str]
    ratio: float
    above: bool


def parse(text: str) -> Limit:
    """The limit that `text` states; ValueError with the form and the names for one that is none."""
    form = FORM.fullmatch(text)
    if not form or form[1] not in NAMES:
        raise ValueError(
            f'--fail-if {text!r} is no limit; write as "ttft_p90 > +10%" or "output_tokens_per_s < -5%", '
            f"with one of {', '.join(NAMES)}."
        )
    name, sign, number = form[1], form[2], float(form[3])
    ratio = 1 + number / 100
    if ratio <= 0 or number and (ratio < 1) != (sign == "<"):
        raise ValueError(
            f'--fail-if {text!r}: write "> +N%" for more than before, "< -N%" for less, N below 100.'
        )
    return Limit(text.strip(), NAMES[name], ratio, sign == ">")
