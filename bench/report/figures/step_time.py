"""Figures of the topic step time."""

from matplotlib import ticker

from bench.analysis import batching as batching_analysis
from bench.analysis import machines
from bench.analysis import step_time as step_time_analysis
from bench.observations import schema
from bench.report import curves, figures
from bench.report import style as style_report


@figures.listed
def step_time(requests):
    """Time of a decode step over batch size: measured (marks) and the fitted step-time model (lines), per engine and option."""
    chosen = machines.here(requests, "batching")
    fitted = step_time_analysis.models(chosen)
    if fitted.empty:
        return None
    table, styles = batching_analysis.uniform(requests), curves.styles(fitted, requests)
    blocks = curves.sweep_blocks(table)
    drawn, axes = curves.panels(len(blocks), 4.2, styles)
    for panel, (title, rows) in zip(axes, blocks):
        for key, mine in curves.curves(rows):
            if key in styles:
                _fitted(panel, mine.sort_values("batch_size"), fitted, key, styles[key])
        panel.set(xlabel="batch size", ylabel="ms per decode step", title=title)
        curves.plain_logs(panel)
        panel.xaxis.set_major_locator(ticker.FixedLocator(sorted(rows["batch_size"].unique())))
    marks = "Mark: median gap between tokens; line: overhead + max(bytes / bandwidth, FLOPs / peak), fitted."
    return style_report.words(
        drawn, "What a decode step takes", f"{style_report.setting(table.iloc[0][schema.SETTING])}. {marks}"
    )


def _fitted(axes, mine, fitted, key, style):
    """The marks of one configuration and the line of its model."""
    row = fitted[
        (fitted["backend"] == key[0]) & (fitted["option"] == key[1]) & (fitted["gpu"] == mine["gpu"].iloc[0])
    ].iloc[0]
    terms = step_time_analysis.terms_of(row)
    _, colour, marker = style
    axes.plot(mine["batch_size"], mine["step_s"] * 1e3, marker, color=colour, markersize=6)
    axes.plot(
        mine["batch_size"],
        step_time_analysis.predict(terms, mine["step_bytes"], mine["step_flops"]) * 1e3,
        color=colour,
        linewidth=1.2,
    )
