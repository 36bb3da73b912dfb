"""Figures of the topic batching."""

import textwrap

import numpy as np
import pandas as pd
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench import html, style
from bench.observations import derived, schema
from bench.report import captions, curves, figures
from bench.topics import batching as batching_analysis
from llm_measured.core import columns, metrics, naming

GIGA = 1e9
INTENSITY = columns.column("arithmetic_intensity")
RATE, TTFT = columns.column("output_tokens_per_s"), columns.column("ttft_s")


@figures.of_machines
def frontier(requests: pd.DataFrame) -> Figure | None:
    """Output tokens/s of a batch over the time of a whole request: one line per engine and option, a mark per
    batch size."""
    table = batching_analysis.uniform(requests)
    if table.empty:
        return None
    styles, blocks = curves.styles(table), curves.sweep_blocks(table)
    drawn, axes = curves.panels(len(blocks), 4.2, styles)
    for panel, (title, rows) in zip(axes, blocks):
        _published_sweep(panel)
        for key, curve in curves.each(rows):
            curve = curve.sort_values("batch_size")
            curves.joined(panel, curve["e2e_s"], curve["output_tokens_per_s"], styles[key])
            _whiskers(panel, curve, styles[key])
            last = curve.iloc[-1]
            curves.note(panel, f"×{last['batch_size']:.0f}", (last["e2e_s"], last["output_tokens_per_s"]))
        panel.set(
            xlabel="seconds per request, first token to last included",
            ylabel=f"{RATE.axis} of the batch",
            title=title,
        )
        curves.plain_logs(panel)
    one = table.iloc[0]
    lengths = f"{html.number(one['prompt_tokens'])} tokens in, {html.number(one['max_new_tokens'])} out"
    marks = "a mark per batch size, from 1 to the last."
    grey = "Grey: another model and other hardware, latency derived as batch / (requests/s)."
    caption = f"{captions.setting(one[schema.SETTING])}: {lengths}; {marks} {_intervals(table)} {grey}"
    return captions.titled(drawn, "Throughput against latency", caption)


def _whiskers(axes, curve, mark):
    """The 95 % interval over runs of each point's output tokens/s, where there are several runs."""
    known = curve[curve["runs"] > 1]
    half = known["output_tokens_per_s_interval"]
    look = {"fmt": "none", "ecolor": mark.colour, "elinewidth": 1, "capsize": 2}
    if len(known):
        axes.errorbar(known["e2e_s"], known["output_tokens_per_s"], yerr=half, **look)


def _intervals(table):
    """What the figure says of its intervals: none where every point is one run."""
    if (table["runs"] == 1).all():
        return "One run each: no intervals, so no ranking."
    return "Whisker: 95\N{NO-BREAK SPACE}% interval over runs, none for one run."


def _published_sweep(axes: Axes) -> None:
    """The published sweep in grey, a line per GPU, named above its last mark."""
    for gpu, points in batching_analysis.published_sweep().groupby("gpu"):
        x, y = points["e2e_s"], points["output_tokens_per_s"]
        axes.plot(x, y, "o-", color=style.FAINT, markersize=4, linewidth=1)
        name = f"{points['model'].iloc[-1]} on {gpu}, published"
        place = x.iloc[-1], y.iloc[-1]
        axes.annotate(name, place, (0, 6), **style.ABOVE, ha="center", color=style.GREY)


@figures.of_machines
def roofline(requests: pd.DataFrame) -> Figure | None:
    """Every measured batch under the measured peaks of its machine: FLOP/s over FLOPs per byte, prefill above
    and decode below."""
    table = batching_analysis.sweeps(requests).dropna(subset=["peak_flops_per_s", "step_flops"])
    if table.empty:
        return None
    styles, blocks = curves.styles(table), curves.sweep_blocks(table)
    drawn, axes = curves.panels(2 * len(blocks), 3.4, styles)
    for k, (title, rows) in enumerate(blocks):
        for panel, phase in zip(axes[2 * k : 2 * k + 2], ("prefill", "decode")):
            _under_peaks(panel, rows, phase, styles)
            panel.set_title(f"{phase.capitalize()}{', ' + title if title else ''}")
    caption = (
        f"{captions.setting(table.iloc[0][schema.SETTING])}. "
        "Slope: best bandwidth read in any run; level lines: best matrix multiply in the format that an "
        "engine computes in. Nothing measured can lie above."
    )
    return captions.titled(drawn, "Roofline: under the measured peaks", caption)


def _under_peaks(axes, rows, phase, styles):
    """The points of one phase, joined per engine and option, and the peaks over them; rates in 10^9 per s."""
    x, y = f"{phase}_intensity", f"{phase}_flops_per_s"
    for key, curve in curves.each(rows):
        curve = curve.sort_values(x)
        curves.joined(axes, curve[x], curve[y] / GIGA, styles[key])
    bandwidth = rows["bandwidth_bytes_per_s"].max() / GIGA
    peaks = rows.groupby("arithmetic")["peak_flops_per_s"].max() / GIGA
    ridge = metrics.ridge_point(peaks.max(), bandwidth)
    low, high = rows[x].min() / 1.5, max(rows[x].max(), ridge) * 2
    slope = np.array([low, ridge])
    axes.plot(slope, slope * bandwidth, color=style.INK, linewidth=1.3)
    small = style.ABOVE | {"fontsize": 9, "bbox": style.OVER_MARKS, "zorder": 6}
    middle = np.sqrt(low * ridge)  # of the slope, on log axes
    name, under = f"{html.number(bandwidth)} GB/s", small | {"va": "top"}
    axes.annotate(name, (middle, middle * bandwidth), (5, -2), **under)
    for arithmetic, peak in peaks.items():
        level = [metrics.ridge_point(peak, bandwidth), high]
        axes.plot(level, [peak, peak], color=style.INK, linewidth=1.3)
        axes.annotate(f"{arithmetic}, {html.number(peak)} GFLOP/s", (high, peak), (0, 2), **small, ha="right")
    axes.set(xlabel=INTENSITY.axis, ylabel="GFLOP/s", xlim=(low, high))
    curves.plain_logs(axes)
    axes.set_ylim(top=peaks.max() * 2)


@figures.of_machines
def ttft_prompt(requests: pd.DataFrame) -> Figure | None:
    """Time to first token over the length of the prompt at batch size 1: one line per engine and option."""
    table = batching_analysis.alone(requests)
    if table.empty:
        return None
    styles, blocks = curves.styles(table), curves.sweep_blocks(table)
    drawn, axes = curves.panels(len(blocks), 3.8, styles)
    for panel, (title, rows) in zip(axes, blocks):
        for key, curve in curves.each(rows):
            curves.joined(panel, curve["prompt_tokens"], columns.values(curve, "ttft_s"), styles[key])
        panel.set(xlabel=columns.column("prompt_tokens").axis, ylabel=TTFT.axis, title=title)
        curves.plain_logs(panel)
        panel.xaxis.set_major_locator(ticker.FixedLocator(sorted(rows["prompt_tokens"].unique())))
    where = captions.setting(table.iloc[0][schema.SETTING])
    caption = f"{where}: batch 1, means over runs of medians over requests."
    return captions.titled(drawn, "The wait grows with the prompt", caption)


@style.styled
def sweep(requests: pd.DataFrame) -> Figure | None:
    """One executed sweep, for the notebook that measured it: output tokens/s over batch size, and TTFT over
    prompt length at batch size 1."""
    batches = derived.medians(derived.batches(requests))
    failed, batches = batches[batches["error"] != ""], batches[batches["error"] == ""]
    drawn = style.Figure(figsize=(style.WIDTH, 5), layout="constrained")
    upper, lower = drawn.subplots(2, 1)
    wide = batches[batches["prompt_tokens"] == requests["prompt_tokens"].mode()[0]]
    wide = wide.sort_values("max_new_tokens").drop_duplicates("batch_size", keep="last")
    alone = batches[batches["batch_size"] == 1].drop_duplicates("prompt_tokens")
    colour = style.colour(requests)
    _line(upper, wide, "batch_size", "output_tokens_per_s", colour)
    _line(lower, alone, "prompt_tokens", "ttft_s", colour)
    row, caption = naming.named(requests).iloc[0], f"{captions.setting(requests.iloc[0][schema.SETTING])}."
    caption += "".join(
        f" Batch {size:.0f} failed: {textwrap.shorten(why, 90)}"
        for size, why in zip(failed["batch_size"], failed["error"])
    )
    return captions.titled(drawn, naming.label(row), caption)


def _line(axes, table, x, y, colour):
    """A line with marks on two log axes whose ticks along x are the measured values."""
    table = table.sort_values(x)
    axes.plot(table[x], columns.values(table, y), "o-", color=colour, markersize=6)
    curves.plain_logs(axes)
    axes.xaxis.set_major_locator(ticker.FixedLocator(sorted(table[x].unique())))
    axes.set(xlabel=columns.column(x).axis, ylabel=columns.column(y).axis)
