"""Words of figures: the title, and the small print that says what ran where and how often."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from bench import html, style
from bench.observations import schema
from bench.report import per_machine
from bench.topics import latency as latency_analysis
from llm_measured.core import naming

MOST_NAMED = 3  # runs that shared their machine which small print names


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


def compared(row: pd.Series) -> str:
    """Return `may be best`, why a row of `estimates.rank` was not compared, or nothing where it is worse."""
    return row["reason"] or ("may be best" if row["may_be_best"] else "")


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
    return " ".join([f"{ran}, {plural(counts, 'run')} each.", *more, *_shared(requests)])


def _shared(requests: pd.DataFrame) -> list[str]:
    """The sentence on runs that shared their machine, where there are any: with what, and whose they are."""
    marked = requests[requests["shared_by"] != ""].drop_duplicates("run_id")
    if marked.empty:
        return []
    each = [f"{row['shared_by']} ({naming.label(row)})" for _, row in marked.head(MOST_NAMED).iterrows()]
    more = f" and {len(marked) - MOST_NAMED} more" if len(marked) > MOST_NAMED else ""
    return [f"Hatched, shared: no measurement, for {'; '.join(each)}{more}."]
