"""Figures of the topic quality."""

import numpy as np
import pandas as pd
from matplotlib import ticker
from matplotlib.figure import Figure

from bench import html, style
from bench.observations import schema
from bench.report import captions, curves, figures
from bench.topics import quality as quality_analysis
from llm_measured.core import columns, naming

RATE = "output_tokens_per_s"
# What is lost: a column of quality.summary, its axis, and the function from the column to percent.
LOSSES = (
    ("agreement", "tokens that differ from the reference's answers, %", lambda share: 100 * (1 - share)),
    (
        "perplexity_ratio",
        "perplexity of the fixed text above the reference's, % (log above 1)",
        lambda ratio: 100 * (ratio - 1),
    ),
)


@figures.of_machines
def quality(requests: pd.DataFrame) -> Figure | None:
    """Output tokens/s over what is lost on real weights: a panel for the share of tokens that are not the
    reference's, one for the fixed text's perplexity above the reference's.

    Filled marks with names are the frontier: nothing that was measured is faster and loses as little.
    """
    table = quality_analysis.on_default_machine(requests)
    table = table[table["agreement"].notna() & table[RATE].notna()]
    if table.empty:
        return None
    styles = curves.styles(table)
    shown = [
        (title, rows, loss)
        for title, rows in curves.sweep_blocks(table)
        for loss in LOSSES
        if rows[loss[0]].notna().sum() > 1
    ]
    drawn, axes = curves.panels(max(1, len(shown)), 3.4, styles)
    for panel, (title, rows, loss) in zip(axes, shown):
        panel.set_title(title)
        _loss(panel, rows, loss, styles)
    return captions.titled(drawn, "Quality against speed", _caption(table))


def _caption(table):
    one_setting = len(table[schema.SETTING].drop_duplicates()) == 1
    where = f"{captions.setting(table.iloc[0][schema.SETTING])}: one" if one_setting else "One"
    reference = f"The reference is {' '.join(quality_analysis.REFERENCE)}."
    marks = "Up and to the left is better. Filled and named: nothing measured is as fast and loses less."
    return f"{where} request at a time. {reference} {marks}"


def _loss(axes, rows, loss, styles):
    """One panel: output tokens/s over one of LOSSES."""
    column, words, percent = loss
    rows = rows.assign(lost=percent(rows[column])).dropna(subset="lost")
    low, high = rows["lost"].min(), rows["lost"].max()
    axes.set(
        xlabel=words,
        ylabel=columns.column(RATE).axis,
        ylim=(0, rows[RATE].max() * 1.1),
        xlim=(min(0, low) - 0.04 * (high or 1), 1.06 * (high or 1)),
    )
    if column == "perplexity_ratio":
        axes.set_xscale("symlog", linthresh=1)
        axes.set_xlim(min(-0.2, 1.5 * low), max(1, 1.6 * high))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: html.number(value)))
    best = quality_analysis.frontier(rows, "lost")
    edge = rows[best].sort_values(RATE)
    axes.step(edge["lost"], edge[RATE], where="post", color=style.FAINT, linewidth=1.4, zorder=1)
    for filled, (_, row) in zip(best, rows.iterrows()):
        mark = styles[row["backend"], row["option"]]
        look = {"facecolor": mark.colour if filled else "white", "edgecolor": mark.colour, "linewidth": 1.4}
        axes.scatter(row["lost"], row[RATE], s=52, marker=mark.marker, zorder=3, clip_on=False, **look)
    _names(axes, edge)


def _names(axes, edge):
    """The names of the frontier, from below, each at least a line above the one before."""
    place, height, line = axes.transScale + axes.transLimits, -np.inf, axes.get_ylim()[1] / 9
    for _, row in edge.iterrows():
        height = max(row[RATE], height + line)
        inwards = place.transform((row["lost"], height))[0] > 0.5
        look = style.BESIDE | {"fontsize": 9, "ha": "right" if inwards else "left", "bbox": style.OVER_MARKS}
        offset = (-9 if inwards else 9, 8)
        axes.annotate(naming.label(row), (row["lost"], height), offset, zorder=4, **look)
