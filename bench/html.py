"""Numbers, words and tables written out: HTML for pages, fixed width for the terminal."""

import os
from collections.abc import Sequence

import jinja2
import numpy as np
import pandas as pd

from llm_measured.core.definitions import Value

EMPTY = "nothing measured yet: make study"


def is_page() -> bool:
    """Return whether a page of the site is being made; the file _environment, which Quarto reads, says so."""
    return bool(os.environ.get("SHOWN_ON_A_PAGE"))


def number(value: Value) -> str:
    """A number as a reader wants it: three significant digits, no exponent, counts in full, nothing where
    it is missing."""
    if pd.isna(value):
        return ""
    if value == 0 or not np.isfinite(value) or float(value).is_integer() and abs(value) < 1e6:
        return f"{value:,.0f}"
    decimals = 2 - int(np.floor(np.log10(abs(value))))
    rounded = round(float(value), decimals)
    # A value that came with fewer digits, such as a published 1.9, does not gain any.
    return f"{rounded:,.{max(decimals, 0)}f}" if rounded != value else f"{rounded:,.15g}"


def plural(count: float, word: str) -> str:
    """`1 run`, `3 runs`."""
    return f"{number(count)} {word}{'' if count == 1 else 's'}"


def two(value: float) -> str:
    """A number with two digits."""
    return number(float(f"{value:.2g}")).replace("-", "−")


def ratio_range(values: pd.Series) -> str:
    """`3 times`, `3 to 40 times`, `0.8 to 0.996 times`: the smallest and the largest of some ratios, with two
    digits, and with three where two would make it even."""
    low, high = (
        f"{value:.3g}" if two(value) == "1" else two(value) for value in (values.min(), values.max())
    )
    return f"{low} times" if low == high else f"{low} to {high} times"


def _cell(value: Value, numeric: bool) -> tuple[str, str | None]:
    """(text, value to sort by or None) of one cell."""
    if numeric:
        return number(value), "" if pd.isna(value) else f"{float(value):.7g}"
    return "" if pd.isna(value) else str(value), None


# An empty line would end the block of HTML where a page is Markdown; Quarto must not rebuild the table, or
# data-sort is lost.
TEMPLATE = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string("""\
<div class="table-scroll" role="region" tabindex="0" aria-label="{{ caption or 'Table' }}">
<table class="sortable" data-quarto-disable-processing="true">
{% if caption %}
<caption>{{ caption }}{% if first %} <span class="of">{{ first }}</span>{% endif %}</caption>
{% endif %}
<thead><tr>
{% for name, numeric in columns %}
<th scope="col"{{ ' class="number"' | safe if numeric }}>{{ name }}</th>
{% endfor %}
</tr></thead>
<tbody>
{% for row, group in rows %}
<tr{% if group %} data-of="{{ group }}"{{ ' hidden' if group != first }}{% endif %}>
{%- for text, sort in row %}
{%- if sort is not none %}<td data-sort="{{ sort }}">{{ text }}</td>
{%- elif loop.first %}<th scope="row">{{ text }}</th>{% else %}<td>{{ text }}</td>{% endif %}{% endfor %}</tr>
{% else %}
<tr><td colspan="{{ columns | length }}">{{ empty }}</td></tr>
{% endfor %}
{% if first %}
<tr class="none" hidden><td colspan="{{ columns | length }}">not measured on this processor</td></tr>
{% endif %}
</tbody>
</table>
</div>
""")


def html(table: pd.DataFrame, caption: str = "", groups: Sequence[str] = ()) -> str:
    """Return `table` as an accessible HTML table that scrolls sideways, everything escaped; numbers carry
    their raw value in data-sort.

    `groups` has a word per row, of which a reader chooses one (tables.js); the others' rows are hidden.
    """
    numeric = [pd.api.types.is_numeric_dtype(kind) for kind in table.dtypes]
    rows = [[_cell(v, n) for v, n in zip(row, numeric)] for row in table.itertuples(index=False)]
    # One line per row of the table, whatever line breaks an answer has.
    rows = [[(" ".join(t.split()), s) for t, s in row] for row in rows]
    return TEMPLATE.render(
        columns=list(zip(table.columns, numeric)),
        rows=list(zip(rows, groups or [""] * len(rows))),
        first=next(iter(groups), ""),
        caption=caption,
        empty=EMPTY,
    )


def text(table: pd.DataFrame) -> str:
    """`table` in fixed width for the terminal, with the same numbers as `html`."""
    if table.empty:
        return EMPTY
    shown = {
        c: [_cell(v, pd.api.types.is_numeric_dtype(table[c]))[0] for v in table[c]] for c in table.columns
    }
    return pd.DataFrame(shown).to_string(index=False)
