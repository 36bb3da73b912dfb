"""Figures of the topic quality."""

import numpy as np
from matplotlib import ticker

from bench import naming
from bench.analysis import quality as quality_analysis
from bench.observations import schema
from bench.report import curves, figures, html, style

# What is lost: a column of quality.summary, what its axis says, and from the column to percent.
LOSSES = (
    ("agreement", "tokens that differ from the reference's answers, %", lambda share: 100 * (1 - share)),
    (
        "perplexity_ratio",
        "perplexity of the fixed text above the reference's, % (log above 1)",
        lambda ratio: 100 * (ratio - 1),
    ),
)


@figures.listed
def quality(requests):
    """Output tokens/s over what is lost on real weights: the share of tokens that are not the reference's, and the fixed text's perplexity
    above the reference's. Filled marks with names are the frontier: nothing that was measured is faster and loses as little."""
    table = quality_analysis.here(requests)
    table = table[table["agreement"].notna() & table["output_tokens_per_s"].notna()]
    if table.empty:
        return None
    styles = curves.styles(table, requests)
    shown = [
        (title, rows, loss)
        for title, rows in curves.sweep_blocks(table)
        for loss in LOSSES
        if rows[loss[0]].notna().sum() > 1
    ]
    drawn, axes = curves.panels(max(1, len(shown)), 3.4, styles)
    for panel, (title, rows, (column, axis, percent)) in zip(axes, shown):
        rows = rows.assign(lost=percent(rows[column])).dropna(subset="lost")
        top, low, high = rows["output_tokens_per_s"].max() * 1.1, rows["lost"].min(), rows["lost"].max()
        panel.set(
            xlabel=axis,
            ylabel="output tokens/s",
            title=title,
            ylim=(0, top),
            xlim=(min(0, low) - 0.04 * (high or 1), 1.06 * (high or 1)),
        )
        if column == "perplexity_ratio":
            panel.set_xscale("symlog", linthresh=1)
            panel.set_xlim(min(-0.2, 1.5 * low), max(1, 1.6 * high))
        panel.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: html.number(value)))
        _lost(panel, rows, styles)
    where = (
        f"{style.setting(table.iloc[0][schema.SETTING])}: one"
        if len(set(map(tuple, table[schema.SETTING].to_numpy()))) == 1
        else "One"
    )
    marks = "Up and to the left is better. Filled and named: nothing measured is as fast and loses less."
    return style.words(
        drawn,
        "Quality against speed",
        f"{where} request at a time. The reference is {' '.join(quality_analysis.REFERENCE)}. {marks}",
    )


def _lost(axes, rows, styles):
    """One mark per row at (lost, tokens/s); the frontier filled, joined by steps and named, its names kept apart."""
    best = quality_analysis.frontier(rows, "lost")
    edge = rows[best].sort_values("output_tokens_per_s")
    axes.step(
        edge["lost"], edge["output_tokens_per_s"], where="post", color=style.FAINT, linewidth=1.4, zorder=1
    )
    for filled, (_, row) in zip(best, rows.iterrows()):
        _, colour, marker = styles[row["backend"], row["option"]]
        face = colour if filled else "white"
        axes.scatter(
            row["lost"],
            row["output_tokens_per_s"],
            s=52,
            marker=marker,
            facecolor=face,
            edgecolor=colour,
            linewidth=1.4,
            zorder=3,
            clip_on=False,
        )
    place, height, line = axes.transScale + axes.transLimits, -np.inf, axes.get_ylim()[1] / 15
    for _, row in edge.iterrows():  # from below, each name at least a line above the one before
        height = max(row["output_tokens_per_s"], height + line)
        inwards = place.transform((row["lost"], height))[0] > 0.5
        behind = {"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.5}
        axes.annotate(
            naming.label(row),
            (row["lost"], height),
            (-9 if inwards else 9, 8),
            **style.BESIDE,
            ha="right" if inwards else "left",
            zorder=4,
            bbox=behind,
        )
