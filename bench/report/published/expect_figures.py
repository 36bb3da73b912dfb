"""Figures of the page *What to expect*."""

import numpy as np
import pandas as pd

from bench import style
from llm_measured.predict import proof


@style.of_no_machine
def expect_errors(requests: pd.DataFrame) -> style.Figure | None:
    """Predicted over measured rate of every case of one user of each source, predicted by a fit that had left
    out its family: median and middle half as a bar, all cases as points, sources from the best to the
    worst."""
    table = proof.one_user()
    table["ratio"] = table["predicted"] / table["rate"]
    order = (table["ratio"] - 1).abs().groupby(table["source"]).median().sort_values(ascending=False).index
    drawn = style.Figure(
        figsize=(style.WIDTH, min(0.24 * len(order) + 1.4, style.TALLEST)), layout="constrained"
    )
    axes = drawn.subplots()
    places = np.random.default_rng(29)
    for place, source in enumerate(order):
        part = table[table["source"] == source]
        inside = part["rate"].between(part["low"], part["high"])
        shift = place + places.uniform(-0.25, 0.25, len(part))
        for mask, colour in ((inside, "#0173b2"), (~inside, "#d55e00")):
            axes.plot(
                part.loc[mask, "ratio"],
                shift[mask],
                ".",
                color=colour,
                alpha=0.45,
                markersize=4,
                markeredgewidth=0,
            )
        low, middle, high = part["ratio"].quantile([0.25, 0.5, 0.75])
        axes.plot([low, high], [place, place], color="black", linewidth=2.5, solid_capstyle="butt")
        axes.plot(middle, place, "o", color="white", markeredgecolor="black", markersize=5)
    axes.axvline(1, color=style.GREY, linewidth=1, zorder=0)
    axes.axvspan(1 / 1.15, 1.15, color=style.GREY, alpha=0.2, linewidth=0, zorder=0)
    axes.set(xscale="log", xlabel="predicted ÷ measured tokens/s of one user", ylim=(-0.7, len(order) - 0.3))
    axes.set_yticks(range(len(order)), order)
    ticks = [0.25, 0.5, 1, 2, 4, 8]
    axes.set_xlim(max(0.15, table["ratio"].min() / 1.1), min(12, table["ratio"].max() * 1.1))
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.minorticks_off()
    caption = "Ring: median, bar: middle half; grey: within 15 %; orange: outside its own 95 % interval."
    return style.titled(drawn, "Sources that were left out, predicted", caption)
