"""Figures of the topic step time."""

import pandas as pd
from matplotlib import ticker
from matplotlib.figure import Figure

from bench.analysis import batching as batching_analysis
from bench.analysis import machines
from bench.analysis import step_time as step_time_analysis
from bench.observations import schema
from bench.report import captions, curves, figures
from llm_measured.core import columns

STEP = columns.column("step_s")


@figures.of_machines
def step_time(requests: pd.DataFrame) -> Figure | None:
    """Time of a decode step over batch size: measured (marks) and by the fitted step-time model (lines), per
    engine and option."""
    fitted = step_time_analysis.models(machines.on_default_machine(requests, "batching"))
    if fitted.empty:
        return None
    table, styles = batching_analysis.uniform(requests), curves.styles(fitted)
    blocks = curves.sweep_blocks(table)
    drawn, axes = curves.panels(len(blocks), 4.2, styles)
    for panel, (title, rows) in zip(axes, blocks):
        for key, curve in curves.each(rows):
            if key in styles:
                _fitted(panel, curve.sort_values("batch_size"), fitted, key, styles[key])
        panel.set(
            xlabel=columns.column("batch_size").axis, ylabel=f"{STEP.unit} per {STEP.title}", title=title
        )
        curves.plain_logs(panel)
        panel.xaxis.set_major_locator(ticker.FixedLocator(sorted(rows["batch_size"].unique())))
    marks = "Mark: median gap between tokens; line: overhead + max(bytes / bandwidth, FLOPs / peak), fitted."
    caption = f"{captions.setting(table.iloc[0][schema.SETTING])}. {marks}"
    return captions.titled(drawn, "What a decode step takes", caption)


def _fitted(axes, curve, fitted, key, mark):
    """The marks of one configuration and the line of its model."""
    backend, option = key
    same = (fitted["backend"] == backend) & (fitted["option"] == option)
    row = fitted[same & (fitted["gpu"] == curve["gpu"].iloc[0])].iloc[0]
    terms = step_time_analysis.terms_of(row)
    predicted = step_time_analysis.predict(terms, curve["step_bytes"], curve["step_flops"])
    look = {"color": mark.colour, "linewidth": 1.2, "linestyle": mark.dash}
    axes.plot(
        curve["batch_size"], columns.values(curve, "step_s"), mark.marker, color=mark.colour, markersize=6
    )
    axes.plot(curve["batch_size"], predicted * STEP.factor, **look)
