"""Figures of the topic bandwidth."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bench import style
from bench.report import bars, captions, figures
from bench.report.figures import latency as latency_figures
from llm_measured.core import columns

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
