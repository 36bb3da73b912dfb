"""Figures of the topic sizes: models that people use, in one short form."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench import style
from bench.report import bars, captions, figures
from bench.topics import estimates, machines
from bench.topics import sizes as sizes_analysis

KEYS = ["backend", "backend_version", "bits"]


@figures.of_machines
def sizes_law(requests: pd.DataFrame) -> Figure | None:
    """What the engine costs and what the memory gives: for each engine and number of bits the cost of a
    layer and the bandwidth reached, with their 95 % intervals, and the error of the prediction of the largest
    model from the smaller ones."""
    own = machines.default_machine(requests)
    table = sizes_analysis.laws(own).sort_values("layer_s").head(bars.most_rows()).reset_index(drop=True)
    if table.empty:
        return None
    drawn, panels = bars.canvas([len(table)], columns=3, sharey=True)
    look = style.looks(requests)
    names = [f"{row['backend']}, {row['bits']} bits" for _, row in table.iterrows()]
    bars.rows(panels[0], names, "a layer, µs")
    bars.rows(panels[1], [""] * len(names), "reached, GB/s")
    bars.rows(panels[2], [""] * len(names), "error, %")
    predicted = sizes_analysis.predictions(own)
    for y, row in table.iterrows():
        colour = look[row["backend"]][0]
        _mark(panels[0], y, row, "layer_s", 1e6, colour)
        _mark(panels[1], y, row, "bandwidth_bytes_per_s", 1e-9, colour)
        errors = predicted[(predicted[KEYS] == row[KEYS]).all(axis=1)]["error"]
        panels[2].scatter(errors * 100, [y] * len(errors), s=30, marker="D", color=colour, zorder=4)
    panels[0].set_xlim(min(0, panels[0].get_xlim()[0]))
    panels[1].set_xlim(0)
    widest = max(5, predicted["error"].abs().max() * 120)
    panels[2].set_xlim(-widest, widest)
    panels[2].axvline(0, color=style.GREY, linewidth=1, zorder=1)
    for panel in panels:
        bars.ticks(panel.xaxis, 3)
    return captions.titled(drawn, "What the engine costs and what the memory gives", _caption(predicted))


def _mark(axes: Axes, y: int, row: pd.Series, name: str, factor: float, colour: object) -> None:
    """A dot at the coefficient and a line over its interval, where it has one."""
    axes.scatter(row[name] * factor, y, s=40, color=[colour], zorder=4)
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    if pd.notna(low) and pd.notna(high):
        axes.hlines(y, low * factor, high * factor, color=colour, linewidth=1.6)


def _caption(predicted: pd.DataFrame) -> str:
    per_cent = f"{100 * estimates.CONFIDENCE:.0f}\N{NO-BREAK SPACE}%"
    words = (
        "Time per token = layers × cost of a layer + bytes read ÷ bandwidth, by least squares of relative "
        f"errors over models and options; line: {per_cent} interval (none where the points do not bound it)."
    )
    if predicted.empty:
        return words
    last = predicted.sort_values("parameters_b").iloc[-1]
    largest = sizes_analysis.size_words(last["model"])
    return f"{words} Diamond: {largest} as predicted from {last['from_models']}, over measured, less 1."
