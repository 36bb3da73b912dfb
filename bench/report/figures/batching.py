"""Figures of the topic batching."""

import textwrap

import numpy as np
from matplotlib import ticker

from bench import metrics, naming
from bench.analysis import batching as batching_analysis
from bench.observations import derived, schema
from bench.report import curves, figures, html, style


@figures.listed
def frontier(requests):
    """Output tokens/s of a batch over the time of a whole request, one line per engine and option, a mark per batch size."""
    table = batching_analysis.uniform(requests)
    if table.empty:
        return None
    styles, theirs = curves.styles(table, requests), batching_analysis.published_sweep()
    blocks = curves.sweep_blocks(table)
    drawn, axes = curves.panels(len(blocks), 4.2, styles)
    for panel, (title, rows) in zip(axes, blocks):
        for gpu, points in theirs.groupby("gpu"):
            panel.plot(
                points["e2e_s"],
                points["output_tokens_per_s"],
                "o-",
                color=style.FAINT,
                markersize=4,
                linewidth=1,
            )
            name = f"{points['model'].iloc[-1]} on {gpu}, published"
            panel.annotate(
                name,
                tuple(points.iloc[-1][["e2e_s", "output_tokens_per_s"]]),
                (0, 6),
                **style.ABOVE,
                ha="center",
                color=style.GREY,
            )
        for key, mine in curves.curves(rows):
            mine = mine.sort_values("batch_size")
            curves.joined(panel, mine["e2e_s"], mine["output_tokens_per_s"], styles[key])
            last = mine.iloc[-1]
            panel.annotate(
                f"×{last['batch_size']:.0f}",
                (last["e2e_s"], last["output_tokens_per_s"]),
                (6, 0),
                **style.BESIDE,
                fontsize=9,
                color=style.GREY,
            )
        panel.set(
            xlabel="seconds per request, first token to last included",
            ylabel="output tokens/s of the batch",
            title=title,
        )
        curves.plain_logs(panel)
    one = table.iloc[0]
    what = f"{html.number(one['prompt_tokens'])} tokens in, {html.number(one['max_new_tokens'])} out; a mark per batch size, from 1 to the last."
    grey = "Grey: another model and other hardware, latency derived as batch / (requests/s)."
    return style.words(
        drawn, "Throughput against latency", f"{style.setting(one[schema.SETTING])}: {what} {grey}"
    )


@figures.listed
def roofline(requests):
    """Every measured batch under the measured roofs of its machine: FLOP/s over FLOPs per byte, prefill above and decode below."""
    table = batching_analysis.sweeps(requests).dropna(subset=["peak_flops_per_s", "step_flops"])
    if table.empty:
        return None
    styles = curves.styles(table, requests)
    blocks = curves.sweep_blocks(table)
    drawn, axes = curves.panels(2 * len(blocks), 3.4, styles)
    for k, (title, rows) in enumerate(blocks):
        for panel, phase in zip(axes[2 * k : 2 * k + 2], ("prefill", "decode")):
            _under_roofs(panel, rows, phase, styles)
            panel.set_title(f"{phase.capitalize()}{', ' + title if title else ''}")
    caption = "Slope: best bandwidth read in any run; level lines: best matrix multiply in the format that an engine computes in."
    return style.words(
        drawn,
        "Under the roofs",
        f"{style.setting(table.iloc[0][schema.SETTING])}. {caption} Nothing measured can lie above.",
    )


def _under_roofs(axes, rows, phase, styles):
    """The points of one phase, joined per engine and option, and the roofs over them."""
    x, y = f"{phase}_intensity", f"{phase}_flops_per_s"
    for key, mine in curves.curves(rows):
        curves.joined(axes, mine.sort_values(x)[x], mine.sort_values(x)[y] / 1e9, styles[key])
    bandwidth, peaks = (
        rows["bandwidth_bytes_per_s"].max() / 1e9,
        rows.groupby("arithmetic")["peak_flops_per_s"].max() / 1e9,
    )
    low, high = rows[x].min() / 1.5, max(rows[x].max(), metrics.ridge_point(peaks.max(), bandwidth)) * 2
    slope = np.array([low, metrics.ridge_point(peaks.max(), bandwidth)])
    axes.plot(slope, slope * bandwidth, color=style.INK, linewidth=1.3)
    axes.annotate(
        f"{html.number(bandwidth)} GB/s",
        (low, low * bandwidth),
        (4, 8),
        **style.ABOVE,
        fontsize=9,
        rotation=0,
    )
    for arithmetic, peak in peaks.items():
        axes.plot([metrics.ridge_point(peak, bandwidth), high], [peak, peak], color=style.INK, linewidth=1.3)
        axes.annotate(
            f"{arithmetic}, {html.number(peak)} GFLOP/s",
            (high, peak),
            (0, 2),
            **style.ABOVE,
            ha="right",
            fontsize=9,
        )
    axes.set(xlabel="FLOPs per byte read", ylabel="GFLOP/s", xlim=(low, high))
    curves.plain_logs(axes)
    axes.set_ylim(top=peaks.max() * 2)


@figures.listed
def ttft_prompt(requests):
    """Time to first token over the length of the prompt at batch size 1, one line per engine and option."""
    table = batching_analysis.alone(requests)
    if table.empty:
        return None
    styles = curves.styles(table, requests)
    blocks = curves.sweep_blocks(table)
    drawn, axes = curves.panels(len(blocks), 3.8, styles)
    for panel, (title, rows) in zip(axes, blocks):
        for key, mine in curves.curves(rows):
            curves.joined(panel, mine["prompt_tokens"], mine["ttft_s"] * 1e3, styles[key])
        panel.set(xlabel="prompt tokens", ylabel="TTFT, ms", title=title)
        curves.plain_logs(panel)
        panel.xaxis.set_major_locator(ticker.FixedLocator(sorted(rows["prompt_tokens"].unique())))
    return style.words(
        drawn,
        "The wait grows with the prompt",
        f"{style.setting(table.iloc[0][schema.SETTING])}: batch 1, medians.",
    )


@style.styled
def sweep(requests):
    """One executed sweep: output tokens/s over batch size, and TTFT over prompt length at batch 1, for the notebook that measured it."""
    batches = derived.batches(requests)
    failed, batches = batches[batches["error"] != ""], batches[batches["error"] == ""]
    drawn = style.Figure(figsize=(style.WIDTH, 5), layout="constrained")
    upper, lower = drawn.subplots(2, 1)
    colour = style.looks(requests)[requests["backend"].iloc[0]][0]
    usual = requests["prompt_tokens"].mode()[0]
    wide = (
        batches[batches["prompt_tokens"] == usual]
        .sort_values("max_new_tokens")
        .drop_duplicates("batch_size", keep="last")
    )
    alone = batches[batches["batch_size"] == 1].drop_duplicates("prompt_tokens")
    _line(upper, wide.sort_values("batch_size"), "batch_size", "output_tokens_per_s", colour, 1)
    _line(lower, alone.sort_values("prompt_tokens"), "prompt_tokens", "ttft_s", colour, 1e3)
    upper.set(xlabel="batch size", ylabel="output tokens/s")
    lower.set(xlabel="prompt tokens", ylabel="TTFT, ms")
    row, caption = naming.named(requests).iloc[0], f"{style.setting(requests.iloc[0][schema.SETTING])}."
    caption += "".join(
        f" Batch {size:.0f} failed: {textwrap.shorten(why, 90)}"
        for size, why in zip(failed["batch_size"], failed["error"])
    )
    return style.words(drawn, naming.label(row), caption)


def _line(axes, table, x, y, colour, factor):
    """Marked line on two log axes whose ticks are the measured values of x."""
    axes.plot(table[x], table[y] * factor, "o-", color=colour, markersize=6)
    curves.plain_logs(axes)
    axes.xaxis.set_major_locator(ticker.FixedLocator(sorted(table[x].unique())))
