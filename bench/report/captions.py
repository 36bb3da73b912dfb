"""Words of figures: the title, and the small print that says what ran where and how often."""

import textwrap

from bench.analysis import latency as latency_analysis
from bench.observations import schema
from bench.report import html, sheet
from bench.report.style import GREY


def titled(drawn, title, caption):
    """Title on top and the small print below, both from the left edge; of several machines each part is
    named, and the last one says who is missing."""
    part = sheet.part()
    title = "\n".join(word for word in (title if part.first or not part.slot else "", part.label) if word)
    caption = f"{caption} {part.missing}".strip()
    drawn.suptitle(title, x=0.01, ha="left")
    drawn.supxlabel(
        "\n".join(textwrap.wrap(caption, 74)), x=0.01, ha="left", fontsize=10, color=GREY, linespacing=1.35
    )
    return drawn


def _spell(values):
    """Distinct `values` as words, few of them: `1`, `1 to 3`."""
    low, high = min(values), max(values)
    return html.number(low) if low == high else f"{html.number(low)} to {html.number(high)}"


def plural(values, word):
    """`1 run`, `1 to 3 runs`: distinct `values` and what they count."""
    return f"{_spell(values)}\N{NO-BREAK SPACE}{word}" + ("" if max(values) == min(values) == 1 else "s")


def group(row):
    """`1–4`: the places that a row of a ranking may have; why it has none, where it has none."""
    if row["reason"]:
        return row["reason"]
    first, last = f"{row['rank_from']:.0f}", f"{row['rank_to']:.0f}"
    return first if first == last else f"{first}–{last}"


def setting(key):
    """`model (synthetic weights) on gpu` for one (gpu, model, weights)."""
    gpu, model, weights = key
    return f"{model} ({weights} weights) on {gpu}"


def caption(requests, *more):
    """The small print under a figure: what ran where and how often, then the sentences `more`."""
    settings = latency_analysis.settings(requests)
    where = f"{setting(settings[0][0])}: batch" if len(settings) == 1 else "Batch"
    counts = latency_analysis.runs(requests).groupby(schema.CONFIGURATION).size()
    good = requests[requests["error"] == ""]
    size, tokens, threads = good["batch_size"], good["max_new_tokens"], good["threads"]
    ran = f"{where} {_spell(size)}, {_spell(tokens)} output tokens, {plural(threads, 'thread')}"
    return " ".join([f"{ran}, {plural(counts, 'run')} each.", *more])
