"""Figures of the planner."""

import pandas as pd
import seaborn as sns
from matplotlib import ticker
from matplotlib.figure import Figure

from bench import style
from llm_measured.core import columns
from llm_planner import accuracy, page, studies, tradeoffs

FOUND = {"tpot_ms": "TPOT, ms", "ttft_ms": "TTFT, ms"}


def _scatter(axes, groups, label):
    """Predicted over measured, one colour and mark per group ({name: (measured, predicted)}), and the line on
    which both are equal.
    """
    colours = sns.color_palette("colorblind")
    for k, (name, (measured, predicted)) in enumerate(groups.items()):
        mark = style.MARKERS[k % len(style.MARKERS)]
        axes.plot(measured, predicted, mark, color=colours[k % 10], markersize=4, alpha=0.75, label=name)
    every = [v for pair in groups.values() for part in pair for v in part if v > 0]
    low, high = min(every) * 0.8, max(every) * 1.25
    axes.plot([low, high], [low, high], color=style.GREY, linewidth=1, zorder=0)
    axes.set(xlim=(low, high), ylim=(low, high), xlabel=f"{label}, measured", ylabel=f"{label}, predicted")
    style.plain_logs(axes)


def _stacked(count, height, key):
    """Figure and axes: panels one above the other, `key` inches for a legend below; lower ones where a screen
    has no more."""
    height = min(height, (style.TALLEST - key - 1.2) / count)
    drawn = style.Figure(figsize=(style.WIDTH, count * height + key + 1.2), layout="constrained")
    *axes, last = drawn.subplots(count + 1, 1, gridspec_kw={"height_ratios": [height] * count + [key]})
    last.axis("off")
    return drawn, axes, last


def _legend(last, axes, ncols=2):
    handles, labels = axes.get_legend_handles_labels()
    last.legend(handles, labels, loc="upper left", ncols=ncols, frameon=False, borderpad=0, borderaxespad=0)


@style.of_no_machine
def plan_published(requests: pd.DataFrame) -> Figure | None:
    """Predicted over measured TPOT and TTFT of the published serving points on GPUs, every point once, from
    fits that did not see its configuration."""
    table = accuracy.predicted()
    drawn, axes, last = _stacked(2, 4.6, 1.2)
    for panel, name in zip(axes, FOUND):
        groups = {
            f"{engine}, {gpu}": (part[name], part[f"predicted_{name}"])
            for (engine, gpu), part in table.groupby(["engine", "gpu"])
        }
        _scatter(panel, groups, FOUND[name])
    _legend(last, axes[0])
    caption = f"{len(table)} points; ten folds over configurations. On the line both are equal."
    return style.titled(drawn, "Published points on GPUs, predicted", caption)


@style.of_no_machine
def plan_studies(requests: pd.DataFrame) -> Figure | None:
    """Predicted over published values of MLC's curves on H100, for three assumptions on lengths, and of
    MosaicML's tables on A10 and A100; nothing was fitted to either."""
    table, batches = page.mlc(), studies.mosaicml().dropna(subset=["predicted_requests_per_s"])
    drawn, axes, last = _stacked(2, 4.2, 0.6)
    parts = dict(list(table.groupby("lengths", sort=False)))
    _scatter(
        axes[0],
        {f"lengths: {name}": (p["tpot_ms"], p["predicted_tpot_ms"]) for name, p in parts.items()},
        "MLC: TPOT, ms",
    )
    devices = {
        f"{gpu} × {number}": (part["requests_per_s"], part["predicted_requests_per_s"])
        for (gpu, number), part in batches.groupby(["gpu", "gpus"])
    }
    _scatter(axes[1], devices, "requests/s")
    _legend(last, axes[0])
    axes[1].legend(title="MosaicML", frameon=False, loc="upper left")
    caption = "MLC published no lengths: the first is an assumption, the others show what it decides."
    return style.titled(drawn, "Two published studies, predicted", caption)


@style.of_no_machine
def plan_parallel(requests: pd.DataFrame) -> Figure | None:
    """Pace over throughput of eight H100 that serve Llama-3.1-8B as replicas of 1, 2, 4 or 8 GPUs: simulated
    closed loops, from little load to much."""
    spread = tradeoffs.parallelism(page.loops("h100_sxm", "bf16"))
    drawn, axes, last = _stacked(1, 4.4, 0.6)
    colours = sns.color_palette("colorblind")
    for k, (tp, rows) in enumerate(spread.groupby("tensor_parallel")):
        look = dict(color=colours[k], marker=style.MARKERS[k], markersize=5, linewidth=1.4)
        label = f"{8 // tp} × TP {tp}"
        axes[0].plot(rows["output_tokens_per_s"], 1e3 * rows["tpot_s"], label=label, **look)
    axes[0].set(xlabel="output tokens/s of eight GPUs", ylabel=columns.column("tpot_s").axis)
    style.plain_logs(axes[0])
    _legend(last, axes[0], 4)
    caption = "Llama-3.1-8B in 16 bits on vLLM, 1000 tokens in and 1000 out; simulated, not measured."
    return style.titled(drawn, "One fast replica or many cheap ones", caption)


@style.of_no_machine
def plan_cost(requests: pd.DataFrame) -> Figure | None:
    """Dollars per million output tokens over TPOT: the cheapest configuration at each pace, of every GPU with
    a price and two precisions; simulated closed loops."""
    drawn, axes, last = _stacked(1, 4.4, 0.9)
    colours = sns.color_palette("colorblind")
    for k, gpu in enumerate(page.PRICED):
        for weights, look in (("bf16", "-"), ("fp8", "--")):
            best = page.frontier(page.loops(gpu, weights))
            label = f"{gpu} {weights}"
            axes[0].plot(
                1e3 * best["tpot_s"],
                best["usd_per_million_output"],
                look,
                color=colours[k],
                marker=style.MARKERS[k],
                markersize=4,
                label=label,
            )
    axes[0].set(xlabel=columns.column("tpot_s").axis, ylabel="dollars per million output tokens")
    style.plain_logs(axes[0])
    _legend(last, axes[0])
    caption = (
        "Llama-3.1-8B on vLLM, 1000 tokens in and 1000 out, replicas of 1 to 8 GPUs, the lowest price of "
        "the list each; all dollars over output tokens. Simulated, not measured."
    )
    return style.titled(drawn, "Cost against pace", caption)


@style.of_no_machine
def plan_speculation(requests: pd.DataFrame) -> Figure | None:
    """The least share of drafted tokens that must be accepted for speculation to pay, over the batch size,
    for two, four and eight drafts that cost nothing, or a tenth of a step each."""
    drawn, axes, last = _stacked(1, 4.2, 0.6)
    colours = sns.color_palette("colorblind")
    for k, (share, rows) in enumerate(page.speculated().groupby("draft_share")):
        for drafts, curve in rows.groupby("drafts"):
            look = dict(color=colours[k], marker=style.MARKERS[k], markersize=4)
            style_of = {2: ":", 4: "--", 8: "-"}[drafts]
            drafting = "n-grams" if share == 0 else f"a draft model ({share:.0%} of a step)"
            label = f"{drafts} drafts, {drafting}"
            axes[0].plot(curve["batch_size"], 100 * curve["accept"], style_of, label=label, **look)
    axes[0].set(xscale="log", xlabel="requests at once", ylabel="must be accepted, %", ylim=(0, 100))
    axes[0].xaxis.set_major_locator(ticker.FixedLocator(tradeoffs.BATCHES))
    axes[0].xaxis.set_major_formatter(ticker.FormatStrFormatter("%d"))
    axes[0].xaxis.set_minor_locator(ticker.NullLocator())
    _legend(last, axes[0])
    caption = (
        "Llama-3.1-8B in 16 bits on one H100 with vLLM at 1500 tokens of context; computed, not measured."
    )
    return style.titled(drawn, "What speculation must accept to pay", caption)
