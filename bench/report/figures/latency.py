"""Figures of the topic latency."""

import numpy as np
import pandas as pd
from matplotlib import ticker

from bench import naming
from bench.analysis import latency as latency_analysis
from bench.observations import schema
from bench.report import figures, html, style


@figures.listed
def latency(requests):
    """Output tokens/s per engine and option on the machine in focus, the fastest on top, a dot per run, the t-interval over runs."""
    chosen, blocks = style.blocks(requests)
    if not blocks:
        return None
    drawn, axes = style.canvas([len(summary) for *_, summary in blocks])
    for panel, (title, rows, summary) in zip(axes[:, 0], blocks):
        style.rows(panel, style.configurations(summary), "output tokens/s")
        runs = latency_analysis.runs(rows)
        fastest = runs.groupby(["backend", "option"])["output_tokens_per_s"].max()
        reach = fastest.reindex(pd.MultiIndex.from_frame(summary[["backend", "option"]])).to_numpy()
        style.bars(
            panel,
            summary,
            "output_tokens_per_s",
            style.looks(requests),
            spread=summary["interval"],
            reach=reach,
        )
        _dots(panel, runs, summary)
        panel.set_title(title)
    marks = "Bar: mean over runs; dot: one run; whisker: 95 % interval over runs."
    return style.words(drawn, "Output speed, one request at a time", style.caption(chosen, marks))


def _dots(axes, runs, summary):
    """One dot per run on the row of its configuration."""
    place = {(row["backend"], row["option"]): y + style.BAR for y, row in summary.iterrows()}
    at = [place[key] for key in zip(runs["backend"], runs["option"])]
    style.small_dots(axes, runs["output_tokens_per_s"], at)


@figures.listed
def ttft_tpot(requests):
    """Time to first token and time per output token, side by side, in milliseconds; rows in the order of `latency`."""
    chosen, blocks = style.blocks(requests)
    if not blocks:
        return None
    drawn, axes = style.canvas([len(summary) for *_, summary in blocks], columns=2, sharey="row")
    for (left, right), (title, _, summary) in zip(axes, blocks):
        for panel, column, unit in ((left, "ttft_s", "TTFT, ms"), (right, "tpot_s", "TPOT, ms")):
            style.rows(panel, style.configurations(summary) if panel is left else [""] * len(summary), unit)
            style.bars(panel, summary, column, style.looks(requests), factor=1e3)
            panel.set_xlim(0, panel.get_xlim()[1] * 1.12)
        left.set_title(title)
    caption = style.caption(chosen, "Medians over requests and runs; the fastest is on top.")
    return style.words(drawn, "First token (TTFT) and each later one (TPOT)", caption)


@figures.listed
def itl(requests):
    """Spread of inter-token latency per engine and option: median, 99th percentile and longest gap, on a log axis."""
    chosen, blocks = style.blocks(requests[requests["itl_p50_s"].notna()])
    if not blocks:
        return None
    drawn, axes = style.canvas([len(summary) for *_, summary in blocks])
    for panel, (title, rows, summary) in zip(axes[:, 0], blocks):
        style.rows(panel, style.configurations(summary), "inter-token latency, ms (log)")
        _gaps(panel, rows, summary, style.looks(requests))
        panel.set_title(title)
    style.legend(drawn, [("p50", "o"), ("p99", "D"), ("max", "|")])
    caption = style.caption(
        chosen, "p50 and p99: medians over requests; max: the longest gap of any request."
    )
    return style.words(drawn, "Gaps between tokens (ITL)", caption)


def _gaps(axes, rows, summary, look):
    """The three marks of each row of `itl`, joined by a line."""
    grouped = rows.groupby(["backend", "option"])
    gaps = (
        grouped.agg(p50=("itl_p50_s", "median"), p99=("itl_p99_s", "median"), longest=("itl_max_s", "max"))
        * 1e3
    )
    for y, row in summary.iterrows():
        colour, values = look[row["backend"]][0], gaps.loc[(row["backend"], row["option"])]
        axes.hlines(y + style.BAR, values.min(), values.max(), color=colour, linewidth=2, alpha=0.5)
        for value, marker, size in zip(values, ("o", "D", "|"), (52, 30, 110)):
            axes.scatter(
                value,
                y + style.BAR,
                s=size,
                marker=marker,
                color=[colour],
                linewidth=2.4 if marker == "|" else 0,
                zorder=4,
            )
    axes.set_xscale("log")
    low, high = gaps.min().min() / 1.3, gaps.max().max() * 1.3
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 3) if high / low < 100 else (1,)))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: html.number(value)))
    axes.xaxis.set_minor_locator(ticker.NullLocator())


@style.styled
def run(requests):
    """One executed run: output tokens/s and TTFT per request, for the notebook that measured it."""
    drawn = style.Figure(figsize=(style.WIDTH, 3.6), layout="constrained")
    panels = drawn.subplots(2, 1, sharex=True)
    colour = style.looks(requests)[requests["backend"].iloc[0]][0]
    for panel, column, factor, unit in zip(
        panels, ("output_tokens_per_s", "ttft_s"), (1, 1e3), ("output tokens/s", "TTFT, ms")
    ):
        values = requests[column] * factor
        panel.plot(requests["request"], values, "o", color=colour, markersize=7)
        panel.axhline(values.median(), color=style.FAINT, linewidth=1.2, zorder=1)
        panel.set(ylim=(0, (np.nan_to_num(values.max()) or 1) * 1.25), ylabel=unit)
        if values.isna().all():
            panel.text(0.5, 0.5, "not measured", transform=panel.transAxes, ha="center", color=style.GREY)
        style.ticks(panel.yaxis, 3)
        panel.grid(False, axis="x")
    drawn.align_ylabels(panels)
    panels[1].set_xlabel("request")
    panels[1].xaxis.set_major_locator(ticker.MaxNLocator(9, integer=True))
    row, failed = naming.named(requests).iloc[0], int((requests["error"] != "").sum())
    caption = f"{style.setting(row[schema.SETTING])}. Line: median." + (
        f" {failed} failed." if failed else ""
    )
    return style.words(drawn, naming.label(row), caption)
