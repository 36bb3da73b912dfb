"""Words of figures: the title, and the small print that says what ran where and how often."""

import math
from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from bench import html, style
from bench.analysis import latency as latency_analysis
from bench.analysis.comparison import MOST_ROUNDS as MOST
from bench.observations import schema
from bench.report import per_machine


def titled(drawn: Figure, title: str, caption: str) -> Figure:
    """Title on top and the small print below, both from the left edge; of several machines each part is
    named, and its small print ends with a note on the others."""
    part = per_machine.part()
    title = "\n".join(word for word in (title, part.label) if word)
    return style.titled(drawn, title, f"{caption} {part.others}".strip())


def _spell(values):
    """Distinct `values` as words, few of them: `1`, `1 to 3`."""
    low, high = min(values), max(values)
    return html.number(low) if low == high else f"{html.number(low)} to {html.number(high)}"


def plural(values: Sequence[float], word: str) -> str:
    """`1 run`, `1 to 3 runs`: distinct `values` and what they count."""
    return f"{_spell(values)}\N{NO-BREAK SPACE}{word}" + ("" if max(values) == min(values) == 1 else "s")


def group(row: pd.Series) -> str:
    """`1–4 (+6 rounds)`: the ranks that a row of a ranking may have, and how many more rounds would settle
    whether it is the first where that is open; why it has none, where it has none."""
    if row["reason"]:
        return row["reason"]
    first, last = f"{row['rank_from']:.0f}", f"{row['rank_to']:.0f}"
    places = first if first == last else f"{first}–{last}"
    rounds = row.get("rounds_to_settle", math.nan)
    if math.isnan(rounds):
        return places
    return f"{places} (+{rounds:.0f} rounds)" if math.isfinite(rounds) else f"{places} (over +{MOST} rounds)"


def setting(key: Sequence[str]) -> str:
    """`model (synthetic weights) on gpu` for one (gpu, model, weights)."""
    gpu, model, weights = key
    return f"{model} ({weights} weights) on {gpu}"


def caption(requests: pd.DataFrame, *more: str) -> str:
    """The small print under a figure: what ran where and how often, then the sentences `more`."""
    settings = latency_analysis.settings(requests)
    where = f"{setting(settings[0][0])}: batch" if len(settings) == 1 else "Batch"
    counts = latency_analysis.runs(requests).groupby(schema.CONFIGURATION).size()
    good = requests[requests["error"] == ""]
    size, tokens, threads = good["batch_size"], good["max_new_tokens"], good["threads"]
    ran = f"{where} {_spell(size)}, {_spell(tokens)} output tokens, {plural(threads, 'thread')}"
    return " ".join([f"{ran}, {plural(counts, 'run')} each.", *more])
