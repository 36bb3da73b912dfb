"""Figures of the topic bandwidth."""

import numpy as np

from bench import naming
from bench.analysis import published as published_analysis
from bench.report import bars, captions, columns, figures, style

MBU = columns.column("mbu").axis
MEASURED = f"{MBU}, fraction of the measured bandwidth"


@figures.listed
def mbu(requests):
    """Model bandwidth utilisation against the best bandwidth probed in the run: a bar per engine and option,
    the highest on top."""
    chosen, blocks = bars.blocks(requests)
    if not blocks:
        return None
    drawn, axes = bars.canvas([len(summary) for *_, summary in blocks])
    for panel, (title, _, summary) in zip(axes[:, 0], blocks):
        summary = summary.sort_values("mbu", ascending=False, ignore_index=True)
        bars.rows(panel, bars.configurations(summary), MEASURED)
        bars.draw(panel, summary, "mbu", style.looks(requests))
        bars.fraction(panel)
        y, look = np.arange(len(summary)) + bars.BAR, {"color": "white", "edgecolor": style.INK}
        panel.scatter(summary["mbu_datasheet"], y, marker="D", s=30, zorder=5, **look)
        panel.set_title(title)
    more = ["1 is every byte per second that the best probe of the run could read."]
    if chosen["mbu_datasheet"].notna().any():
        more.append("Diamond: against the datasheet's bandwidth instead.")
    return captions.titled(
        drawn, f"Share of the memory's speed in use ({MBU})", captions.caption(chosen, *more)
    )


@figures.listed
def mbu_published(requests):
    """MBU of published 16-bit results (grey, against the datasheet) above ours of 16 bits or more (against
    what was measured): a bar per result."""
    _, blocks = bars.blocks(requests)
    theirs = published_analysis.published_mbu()
    ours = [(title, _widest(summary)) for title, _, summary in blocks]
    ours = [(title, summary) for title, summary in ours if len(summary)]
    drawn, axes = bars.canvas([len(theirs), *(len(summary) for _, summary in ours)], extra=1.5)
    labels = [f"{row['label']} · {row['model']} · {row['gpu']}" for _, row in theirs.iterrows()]
    bars.rows(axes[0, 0], labels, f"{MBU}, fraction of the datasheet's bandwidth")
    bars.draw(axes[0, 0], theirs.assign(backend=""), "mbu", {"": (style.FAINT, "")})
    for panel, (title, summary) in zip(axes[1:, 0], ours):
        bars.rows(panel, bars.configurations(summary), MEASURED)
        bars.draw(panel, summary, "mbu", style.looks(requests))
        panel.set_title(title or "Here")
    for panel in axes[:, 0]:
        bars.fraction(panel)
    axes[0, 0].set_title("Published, derived: weights alone")
    caption = (
        "The table published_mbu gives the derivation of each published value. Ours count weights and KV "
        "cache, batch 1."
    )
    return captions.titled(drawn, "Bandwidth in use, published and here", caption)


def _widest(summary):
    """Configurations whose weights have 16 bits or more, by MBU."""
    wide = summary[[(naming.bits(option) or 0) >= 16 for option in summary["option"]]]
    return wide.dropna(subset="mbu").sort_values("mbu", ascending=False, ignore_index=True)
