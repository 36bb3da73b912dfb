"""Figures of the topic overhead."""

import numpy as np

from bench.analysis import latency as latency_analysis
from bench.analysis import machines
from bench.observations import schema
from bench.report import figures, style


@figures.listed
def overhead(requests):
    """What measuring costs: harness / the engine's own loop - 1, a dot per pair, the median with its 95 % interval, the 1 % line."""
    pairs, table = latency_analysis.pairs(requests), latency_analysis.overhead_summary(requests)
    if pairs.empty:
        return None
    drawn, axes = style.canvas([len(table)])
    panel, look = axes[0, 0], style.looks(requests)
    style.rows(panel, style.configurations(table), "extra time under the harness, %")
    for y, row in table.iterrows():
        colour = look[row["backend"]][0]
        own = pairs[(pairs[schema.CONFIGURATION] == row[schema.CONFIGURATION]).all(axis=1)]
        panel.scatter(
            own["cost"] * 100, np.full(len(own), y + style.BAR), s=22, color=[colour], alpha=0.55, linewidth=0
        )
        panel.hlines(
            y + style.BAR, row["low"] * 100, row["high"] * 100, color=style.INK, linewidth=1.6, zorder=4
        )
        panel.scatter(
            row["median"] * 100,
            y + style.BAR,
            s=46,
            color="white",
            edgecolor=style.INK,
            linewidth=1.6,
            zorder=5,
        )
    panel.axvline(0, color=style.FAINT, linewidth=1, zorder=1)
    panel.axvline(1, color=style.GREY, linewidth=1.2, linestyle="--", zorder=1)
    panel.annotate(
        "1 %",
        (1, 1),
        (3, 0),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        va="bottom",
        color=style.GREY,
    )
    style.ticks(panel.xaxis, 5)
    marks = "Dot: one pair of requests, the same prompt with and without the harness; ring and line: median and its 95 % interval."
    return style.words(
        drawn, "What measuring costs", style.caption(machines.here(requests, "overhead"), marks)
    )
