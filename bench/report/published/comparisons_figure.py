"""The figure of the page Comparisons."""

import numpy as np
import pandas as pd

from bench import style
from bench.report.published import comparisons


@style.of_no_machine
def published_comparisons(requests: pd.DataFrame) -> style.Figure | None:
    """Published speed of one user (or of many, per accelerator), B over A, one dot per setting that somebody
    measured with both, on a logarithmic axis; the line at 1 says as fast."""
    rows = [
        (f"{name} ÷ {each.names[0]}{', many users' * each.many}", part["ratio"].astype(float))
        for each in comparisons.COMPARISONS
        for name, part in comparisons.pairs(each).groupby("against", sort=False)
    ]
    if not rows:
        return None
    drawn = style.Figure(figsize=(style.WIDTH, 0.3 * len(rows) + 1.2), layout="constrained")
    axes = drawn.subplots()
    for place, (_, ratios) in enumerate(rows):
        axes.plot(ratios, np.full(len(ratios), place), "o", color="#0173b2", alpha=0.5, markeredgewidth=0)
        axes.plot(ratios.median(), place, "|", color="black", markersize=14, markeredgewidth=2)
    axes.axvline(1, color="black", linewidth=1)
    axes.set(xscale="log", ylim=(len(rows) - 0.4, -0.6))
    axes.set_yticks(range(len(rows)), [f"{label} ({len(ratios)})" for label, ratios in rows])
    axes.grid(False, axis="y")
    ticks = [0.1, 0.25, 0.5, 1, 2, 4, 8]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    caption = "Bar: median. Number: settings that somebody measured with both."
    return style.titled(drawn, "B ÷ A, tokens/s", caption)
