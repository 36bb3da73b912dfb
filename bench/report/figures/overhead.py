"""Figures of the topic overhead."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bench import style
from bench.analysis import latency as latency_analysis
from bench.analysis import machines
from bench.observations import schema
from bench.report import bars, captions, figures

PERCENT = 100


@figures.of_machines
def overhead(requests: pd.DataFrame) -> Figure | None:
    """What measuring costs, time with the harness against the engine's own loop: a dot per pair, the mean
    with its 95 % interval over pairs, the 1 % line."""
    pairs, table = latency_analysis.pairs(requests), latency_analysis.overhead_summary(requests)
    table = table.head(bars.most_rows())
    if pairs.empty:
        return None
    drawn, panel = bars.canvas([len(table)])
    look = style.looks(requests)
    bars.rows(panel, bars.configurations(table), "extra time under the harness, %")
    for y, row in table.iterrows():
        own = pairs[(pairs[schema.CONFIGURATION] == row[schema.CONFIGURATION]).all(axis=1)]
        costs = own["cost"] * PERCENT
        # A dot per pair; mean and interval of the configuration on top.
        panel.scatter(
            costs, np.full(len(costs), y), s=16, color=[look[row["backend"]][0]], alpha=0.55, linewidth=0
        )
        panel.hlines(y, row["low"] * PERCENT, row["high"] * PERCENT, color=style.INK, linewidth=1.6, zorder=4)
        ring = {"color": "white", "edgecolor": style.INK, "linewidth": 1.6}
        panel.scatter(row["mean"] * PERCENT, y, s=34, zorder=5, **ring)
    panel.axvline(0, color=style.FAINT, linewidth=1, zorder=1)
    panel.axvline(1, color=style.GREY, linewidth=1.2, linestyle="--", zorder=1)
    top = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "va": "bottom"}
    panel.annotate("1 %", (1, 1), (3, 0), color=style.GREY, **top)
    bars.ticks(panel.xaxis, 5)
    marks = (
        "Dot: one pair of requests, the same prompt with and without the harness; ring and line: mean and "
        "its 95\N{NO-BREAK SPACE}% interval over pairs. Where the line crosses 0, the cost cannot be "
        "distinguished from nothing."
    )
    caption = captions.caption(machines.on_default_machine(requests, "overhead"), marks)
    return captions.titled(drawn, "What measuring costs", caption)
