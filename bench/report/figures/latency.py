"""Figures of the topic latency."""

import functools

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench import style
from bench.report import bars, captions, figures, shared
from bench.topics import latency as latency_analysis
from bench.topics import quality as quality_analysis
from llm_measured.core import columns

WHISKER = "whisker: its 95\N{NO-BREAK SPACE}% interval, over runs and measuring sessions."
ANSWERS = (
    "Right: what it answers to 9 × 8 if not 72, and the perplexity of the fixed text above the reference's; "
    "as the reference: every prompt token for token."
)


@functools.partial(figures.of_machines, prepare=shared.added)
def latency(requests: pd.DataFrame) -> Figure | None:
    """Output tokens/s on the default machine: a bar per engine and option, the fastest on top, a dot per
    run, the interval over runs, and what its answers cost."""
    found = bars.block(requests)
    if not found:
        return None
    (title, rows, summary), rate = found, latency_analysis.RATE
    drawn, panel = bars.canvas([len(summary)])
    bars.rows(panel, bars.configurations(summary), columns.column(rate).axis)
    runs = latency_analysis.runs(rows)
    fastest = runs.groupby(["backend", "option"])[rate].max()
    reach = fastest.reindex(pd.MultiIndex.from_frame(summary[["backend", "option"]])).to_numpy()
    look = style.looks(requests)
    bars.draw(panel, summary, rate, look, spread=summary[f"{rate}_interval"], reach=reach)
    # One dot per run on the row of its configuration.
    place = {(row["backend"], row["option"]): y for y, row in summary.iterrows()}
    at = pd.Series([place.get(key) for key in zip(runs["backend"], runs["option"])], runs.index, dtype=float)
    bars.small_dots(panel, runs.loc[at.notna(), rate], at.dropna())
    _answers(panel, summary, requests)
    panel.set_title(title)
    marks = f"Bar: the regression's mean (measuring sessions taken out); dot: one run; {WHISKER} {ANSWERS}"
    return captions.titled(drawn, "Output speed, one request at a time", captions.caption(rows, marks))


def _answers(axes: Axes, summary: pd.DataFrame, requests: pd.DataFrame) -> None:
    """Write at the right of each bar what its answers cost (`quality.verdict`), in red where they are
    worse than the reference's."""
    axes.set_xlim(0, axes.get_xlim()[1] * 1.75)
    for y, row in quality_analysis.beside(summary, requests).iterrows():
        colour = style.WORSE if row["worse"] == 1 else style.GREY
        at = axes.get_yaxis_transform()
        axes.text(
            1, y, row["verdict"], color=colour, transform=at, ha="right", va="center_baseline", fontsize=8
        )


@functools.partial(figures.of_machines, prepare=shared.added)
def ttft_tpot(requests: pd.DataFrame) -> Figure | None:
    """Time to first token and time per output token side by side: a bar per engine and option, in the order
    of `latency`."""
    found = bars.block(requests)
    if not found:
        return None
    title, rows, summary = found
    drawn, panels = bars.canvas([len(summary)], columns=2, sharey=True)
    for panel, name in zip(panels, ("ttft_s", "tpot_s")):
        column = columns.column(name)
        labels = bars.configurations(summary) if panel is panels[0] else [""] * len(summary)
        bars.rows(panel, labels, column.axis)
        spread = summary[f"{name}_interval"]
        bars.draw(panel, summary, name, style.looks(requests), factor=column.factor, spread=spread)
        panel.set_xlim(0, panel.get_xlim()[1] * 1.12)
    panels[0].set_title(title)
    order = "in the order of their output tokens/s"
    marks = f"Bar: adjusted mean of the median over requests, {order}; {WHISKER}"
    caption = captions.caption(rows, marks)
    return captions.titled(drawn, "First token (TTFT) and each later one (TPOT)", caption)
