"""Figures of the topic bandwidth."""

import numpy as np

from bench import naming
from bench.analysis import batching as batching_analysis
from bench.report import figures, style


@figures.listed
def mbu(requests):
    """Model bandwidth utilisation per engine and option against the best bandwidth probed in the run, the highest on top."""
    chosen, blocks = style.blocks(requests)
    if not blocks:
        return None
    drawn, axes = style.canvas([len(summary) for *_, summary in blocks])
    for panel, (title, _, summary) in zip(axes[:, 0], blocks):
        summary = summary.sort_values("mbu", ascending=False, ignore_index=True)
        style.rows(panel, style.configurations(summary), "MBU, fraction of the measured bandwidth")
        style.bars(panel, summary, "mbu", style.looks(requests))
        panel.set(xlim=(0, 1), xticks=(0, 0.25, 0.5, 0.75, 1), xticklabels=("0", "0.25", "0.5", "0.75", "1"))
        style.turn_inwards(panel)
        panel.scatter(
            summary["mbu_datasheet"],
            np.arange(len(summary)) + style.BAR,
            marker="D",
            s=30,
            color="white",
            edgecolor=style.INK,
            zorder=5,
        )
        panel.set_title(title)
    more = ["1 is every byte per second that the best probe of the run could read."]
    if chosen["mbu_datasheet"].notna().any():
        more.append("Diamond: against the datasheet's bandwidth instead.")
    return style.words(drawn, "Share of the memory's speed in use (MBU)", style.caption(chosen, *more))


@figures.listed
def mbu_published(requests):
    """MBU of published 16-bit results (grey, against the datasheet) above ours of 16 bits or more (against what was measured)."""
    chosen, blocks = style.blocks(requests)
    theirs = batching_analysis.published_mbu()
    ours = [(title, _widest(summary)) for title, _, summary in blocks]
    ours = [(title, summary) for title, summary in ours if len(summary)]
    drawn, axes = style.canvas([len(theirs), *(len(summary) for _, summary in ours)], extra=1.5)
    style.rows(
        axes[0, 0],
        [f"{row['label']} · {row['model']} · {row['gpu']}" for _, row in theirs.iterrows()],
        "MBU, fraction of the datasheet's bandwidth",
    )
    style.bars(axes[0, 0], theirs.assign(backend=""), "mbu", {"": (style.FAINT, "")})
    for panel, (title, summary) in zip(axes[1:, 0], ours):
        style.rows(panel, style.configurations(summary), "MBU, fraction of the measured bandwidth")
        style.bars(panel, summary, "mbu", style.looks(requests))
        panel.set_title(title or "Here")
    for panel in axes[:, 0]:
        panel.set(xlim=(0, 1), xticks=(0, 0.25, 0.5, 0.75, 1), xticklabels=("0", "0.25", "0.5", "0.75", "1"))
        style.turn_inwards(panel)
    axes[0, 0].set_title("Published, derived: weights alone")
    caption = "The table published_mbu gives the derivation of each published value. Ours count weights and KV cache, batch 1."
    return style.words(drawn, "Bandwidth in use, published and here", caption)


def _widest(summary):
    """Configurations whose weights have 16 bits or more, by MBU."""
    wide = summary[[(naming.bits(option) or 0) >= 16 for option in summary["option"]]]
    return wide.dropna(subset="mbu").sort_values("mbu", ascending=False, ignore_index=True)
