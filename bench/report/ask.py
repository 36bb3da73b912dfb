"""The fields of the pages Start and How much, answered at once; assets/ask.js answers every other choice from
the same files (bench/report/cards.py, bench/report/expect_tables.py).

    ask.form("pages/how-much.qmd")    HTML: the fields, the one line of answer, the command to copy
    ask.most_asked()                  forty questions with their answers, as a table
"""

import jinja2
import pandas as pd

from bench.report import cards, expect_tables

DEVICE, MODEL, FORMAT, BITS = "RTX 4090", "llama-3.1-8b", "Q4_K_M", 4  # what the fields begin with
FORTY = 40


def answers() -> pd.DataFrame:
    """Return what one user is to expect on one card in a short context, with what was measured there."""
    if not (expect_tables.folder() / expect_tables.SHORT).exists():
        expect_tables.main([])
    short = pd.read_csv(expect_tables.folder() / expect_tables.SHORT)
    measured = cards.cells().rename(columns={"low": "number", "high": "number_high"})
    return short.merge(measured, on=cards.CELL, how="left")


def line(row: pd.Series) -> str:
    """Return the answer of a row of `answers` as HTML, word for word as assets/ask.js says it."""
    parts = []
    number = (
        (row["number"], row["number_high"]) if row["number"] == row["number"] else (row["least"], row["most"])
    )
    if row["rows"] > 0:
        of_all = (
            f" (all {row['rows']:.0f}: {cards.rate(row['least'], row['most'])})" if row["rows"] > 1 else ""
        )
        parts.append(f"measured <b>{cards.rate(*number)} tokens/s</b>{of_all}")
    rate, users = row["tokens_per_s_user"], row["users_at_10"]
    spread = cards.rate(*(float(f"{row[end]:.2g}") for end in ("low", "high")))
    parts.append(f"expect <b>{cards.rate(rate, rate)}</b> ({spread}) with {row['engine']}")
    parts.append(f"fits, {float(f'{row.needs_gb:.3g}'):g} of {row['gb']:g} GB")
    parts.append(f"{users:,.0f} user{'' if users == 1 else 's'} at 10 tokens/s")
    return " · ".join(parts)


def form(page: str) -> str:
    """Return the fields of a page as HTML: seven of How much, five of Start, where one user asks in a short
    context."""
    found = answers()
    start = found[(found["device"] == DEVICE) & (found["model"] == MODEL) & (found["format"] == FORMAT)]
    root = "../" if "/" in page else ""
    first, whole = start.iloc[0], page.endswith("how-much.qmd")
    command = (
        f'llm-measured expect "{DEVICE}" {MODEL} {FORMAT} {first["engine"]} --context {cards.CONTEXTS[0]}'
    )
    return FORM.render(
        device=DEVICE, address=cards.address(DEVICE), model=MODEL, form=FORMAT, gb=f"{first['gb']:g}",
        counts=_twice(cards.COUNTS), users=_twice(cards.USERS if whole else ()),
        contexts=_twice(cards.CONTEXTS if whole else ()),
        said=line(first), command=command, root=root, context=cards.CONTEXTS[0],
    )  # fmt: skip


def _twice(values: tuple[int, ...]) -> list[tuple[int, str]]:
    """Each value of a list, and its words."""
    return [(value, f"{value:,}") for value in values]


FORM = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string("""\
<form id="ask" aria-label="How fast will it run?" data-root="{{ root }}" data-users="1"
 data-context="{{ context }}">
{% macro field(name, label, options) %}
<div><label for="ask-{{ name }}">{{ label }}</label><select id="ask-{{ name }}" name="{{ name }}" disabled>
{% for value, text in options %}<option value="{{ value }}">{{ text }}</option>{% endfor %}</select></div>
{% endmacro %}
{{ field("accelerator", "Accelerator", [(address, device)]) }}
{{ field("count", "How many", counts) }}
{{ field("memory", "Memory of each", [(gb, gb ~ " GB")]) }}
{{ field("model", "Model", [(model, model)]) }}
{{ field("format", "Format", [(form, form)]) }}
{% if users %}{{ field("users", "Users at once", users) }}{% endif %}
{% if contexts %}{{ field("context", "Context, tokens", contexts) }}{% endif %}
</form>
<p id="said" role="status" aria-live="polite">{{ said | safe }}</p>
<p class="ask-command"><code id="command">{{ command }}</code> ·
<a id="rows" href="{{ root }}pages/cards.html?{{ address }}">the rows</a></p>
<script src="{{ root }}downloads/cards.js" defer></script>
<script src="{{ root }}assets/ask.js" defer></script>
""")


def most_asked() -> pd.DataFrame:
    """Return the FORTY cards and models in 4 bits with most published rows, with what was measured and what
    is to be expected in words."""
    rows = answers()
    rows = rows[(rows["bits"] == BITS) & rows["number"].notna()]
    rows = rows.sort_values(["rows", "format"], ascending=[False, True])
    rows = rows.drop_duplicates(["device", "model"]).head(FORTY).sort_values(["device", "model"])
    expected = []
    for rate, low, high in zip(rows["tokens_per_s_user"], rows["low"], rows["high"]):
        expected.append(
            "does not fit" if rate != rate else f"{cards.rate(rate, rate)} ({cards.rate(low, high)})"
        )
    measured = [cards.rate(low, high) for low, high in zip(rows["number"], rows["number_high"])]
    return rows.assign(measured=measured, expect=expected, needs_gb=rows["needs_gb"].round(1))
