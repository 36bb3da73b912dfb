"""Figures of the topic bandwidth."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bench import style
from bench.report import bars, captions, figures, per_machine
from bench.report.figures import latency as latency_figures
from bench.topics import latency as latency_analysis
from bench.topics import published as published_analysis
from llm_measured.core import columns, naming

MBU = columns.column("mbu").axis
MEASURED = f"{MBU}, of the measured bandwidth"


@figures.of_machines
def mbu(requests: pd.DataFrame) -> Figure | None:
    """Model bandwidth utilisation against the bandwidth of the measuring session: a bar per engine and option
    with its interval over runs, in the order of output tokens/s, for MBU ranks nobody across sessions."""
    known = requests[requests["run_id"].isin(requests.loc[requests["mbu"].notna(), "run_id"])]
    found = bars.block(known)
    if not found:
        return None
    title, rows, summary = found
    drawn, panel = bars.canvas([len(summary)])
    bars.rows(panel, bars.configurations(summary), MEASURED)
    bars.draw(panel, summary, "mbu", style.looks(requests), spread=summary["mbu_interval"], most=1.0)
    bars.fraction(panel)
    y, look = np.arange(len(summary)), {"color": "white", "edgecolor": style.INK}
    panel.scatter(summary["mbu_datasheet"], y, marker="D", s=16, zorder=5, **look)
    panel.set_title(title)
    more = [
        "1 is every byte per second of the 95\N{NO-BREAK SPACE}% quantile of the measuring session's probes. "
        "Fastest option on top: MBU is compared within a session only.",
        f"Bar: mean; {latency_figures.WHISKER}",
    ]
    if rows["mbu_datasheet"].notna().any():
        more.append("Diamond: against the datasheet's bandwidth instead.")
    return captions.titled(
        drawn, f"Share of the memory's speed in use ({MBU})", captions.caption(rows, *more)
    )


@figures.of_machines
def mbu_published(requests: pd.DataFrame) -> Figure | None:
    """MBU of published 16-bit results (grey, against the datasheet) above ours of 16 bits or more (against
    what was measured): a bar per result."""
    theirs, part = published_analysis.published_mbu(), per_machine.part()
    above = [len(theirs)] * part.first
    wide = requests[[(naming.bits(option) or 0) >= 16 for option in requests["option"]]]
    ours = bars.block(wide[wide["mbu"].notna()], above=sum(above))
    if part.label and not ours:  # the published rows stand above those of another machine
        return None
    drawn, panels = bars.canvas([*above, *([len(ours[2])] if ours else [])], squeeze=False)
    if above:
        _theirs(panels[0, 0], theirs)
    if ours:
        _, rows, summary = ours
        bars.rows(panels[-1, 0], bars.configurations(summary), f"{MBU} (measured)")
        look = style.looks(requests)
        bars.draw(panels[-1, 0], summary, "mbu", look, spread=summary["mbu_interval"], most=1.0)
        panels[-1, 0].set_title(f"Here: {captions.setting(latency_analysis.settings(rows)[0][0])}", x=-1.4)
    for panel in panels[:, 0]:
        bars.fraction(panel)
    caption = (
        "The table published_mbu gives the derivation of each published value. Ours count weights and KV "
        "cache, batch 1, with the 95\N{NO-BREAK SPACE}% interval over runs."
    )
    return captions.titled(drawn, "Bandwidth in use, published and here", caption)


def _theirs(axes, theirs):
    """The panel of the published rows."""
    labels = [f"{row['label']} · {row['model']} · {row['gpu']}" for _, row in theirs.iterrows()]
    bars.rows(axes, labels, f"{MBU} (datasheet)")
    bars.draw(axes, theirs.assign(backend=""), "mbu", {"": (style.FAINT, "")})
    axes.set_title("Published, derived: weights alone", x=-1.4)
