"""Figures of the topic bandwidth."""

import numpy as np

from bench import naming
from bench.analysis import latency as latency_analysis
from bench.analysis import published as published_analysis
from bench.report import bars, captions, columns, figures, sheet, style
from bench.report.figures import latency as latency_figures

MBU = columns.column("mbu").axis
MEASURED = f"{MBU}, fraction of the measured bandwidth"


@figures.of_machines
def mbu(requests):
    """Model bandwidth utilisation against the best bandwidth probed in the run: a bar per engine and option,
    the highest on top, the interval over runs, and the places that it may have."""
    chosen, blocks = bars.blocks(requests)
    if not blocks:
        return None
    drawn, axes = bars.canvas([len(summary) for *_, summary in blocks])
    for panel, (title, rows, summary) in zip(axes[:, 0], blocks):
        # The ranking of this figure's own quantity, in whose intervals the probe's spread is.
        ranked = latency_analysis.ranked(rows, "mbu")[[*latency_analysis.VERSIONED, *latency_analysis.PLACES]]
        summary = ranked.merge(summary.drop(columns=latency_analysis.PLACES), on=latency_analysis.VERSIONED)
        bars.rows(panel, bars.configurations(summary), MEASURED)
        bars.draw(panel, summary, "mbu", style.looks(requests), spread=summary["mbu_interval"], most=1.0)
        bars.fraction(panel)
        latency_figures.places(panel, summary)
        y, look = np.arange(len(summary)) + bars.BAR, {"color": "white", "edgecolor": style.INK}
        panel.scatter(summary["mbu_datasheet"], y, marker="D", s=30, zorder=5, **look)
        panel.set_title(title)
    more = [
        "1 is every byte per second that the best probe of the run could read.",
        f"Bar: mean over runs; {latency_figures.WHISKER}",
        latency_figures.PLACES,
    ]
    if chosen["mbu_datasheet"].notna().any():
        more.append("Diamond: against the datasheet's bandwidth instead.")
    return captions.titled(
        drawn, f"Share of the memory's speed in use ({MBU})", captions.caption(chosen, *more)
    )


@figures.of_machines
def mbu_published(requests):
    """MBU of published 16-bit results (grey, against the datasheet) above ours of 16 bits or more (against
    what was measured): a bar per result."""
    _, blocks = bars.blocks(requests)
    ours = [(title, _widest(summary)) for title, _, summary in blocks]
    ours, part = [(title, summary) for title, summary in ours if len(summary)], sheet.part()
    if part.label and not ours:  # the published rows stand above those of another machine
        return None
    theirs = published_analysis.published_mbu()
    above = [len(theirs)] * part.first
    drawn, axes = bars.canvas([*above, *(len(summary) for _, summary in ours)], extra=1.5)
    if above:
        _theirs(axes[0, 0], theirs)
    for panel, (title, summary) in zip(axes[len(above) :, 0], ours):
        bars.rows(panel, bars.configurations(summary), MEASURED)
        bars.draw(panel, summary, "mbu", style.looks(requests), spread=summary["mbu_interval"], most=1.0)
        panel.set_title(title or "Here")
    for panel in axes[:, 0]:
        bars.fraction(panel)
    caption = (
        "The table published_mbu gives the derivation of each published value. Ours count weights and KV "
        "cache, batch 1, with the 95\N{NO-BREAK SPACE}% interval over runs."
    )
    return captions.titled(drawn, "Bandwidth in use, published and here", caption)


def _theirs(axes, theirs):
    """The panel of the published rows."""
    labels = [f"{row['label']} · {row['model']} · {row['gpu']}" for _, row in theirs.iterrows()]
    bars.rows(axes, labels, f"{MBU}, fraction of the datasheet's bandwidth")
    bars.draw(axes, theirs.assign(backend=""), "mbu", {"": (style.FAINT, "")})
    axes.set_title("Published, derived: weights alone")


def _widest(summary):
    """Configurations whose weights have 16 bits or more, by MBU."""
    wide = summary[[(naming.bits(option) or 0) >= 16 for option in summary["option"]]]
    return wide.dropna(subset="mbu").sort_values("mbu", ascending=False, ignore_index=True)
