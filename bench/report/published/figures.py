"""Figures of the page Published: redrawn from the observatory's rows alone, whatever this machine has
measured."""

import functools
from collections.abc import Callable

import matplotlib
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from bench import html, registry, style
from bench.report.published import (
    expect_figures,  # noqa: F401 - its figures join
)
from llm_measured.published import answers

TALL = 6.2  # inches: at a page's width 1,090 pixels
KINDS = {"community": ("C0", "o"), "independent": ("C2", "s"), "vendor": ("C1", "^")}
COLOURS = sns.color_palette("colorblind")


def _listed(name: str) -> Callable:
    """Decorator: a figure called `published-<name>` of no machine's runs."""

    def declared(draw: Callable[[], matplotlib.figure.Figure | None]) -> Callable:
        @functools.wraps(draw)
        def drawn(requests: pd.DataFrame | None = None) -> matplotlib.figure.Figure:
            with style.style():
                try:
                    return draw() or style.nothing()
                except answers.NoRows:
                    return style.nothing()

        drawn.parts = lambda requests: [("", drawn(requests))]
        registry.FIGURES[f"published-{name}"] = drawn
        return drawn

    return declared


def _new(height: float, key: int = 1) -> tuple[matplotlib.figure.Figure, Axes, Axes]:
    """(figure, axes, axes below them for a legend of `key` lines)."""
    inches = 0.24 * key + 0.05
    drawn = style.Figure(figsize=(style.WIDTH, min(height + inches, TALL)), layout="constrained")
    axes, last = drawn.subplots(2, 1, gridspec_kw={"height_ratios": [height - 1.2, inches]})
    last.axis("off")
    return drawn, axes, last


def _rows(axes: Axes, labels: list[str]) -> None:
    """One row for each label, the first on top; labels stand left of the axes."""
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.grid(False, axis="y")


def _kind(axes: Axes, x: pd.Series, y: object, kinds: pd.Series, size: float = 18) -> None:
    for kind, (colour, marker) in KINDS.items():
        own = (kinds == kind).to_numpy()
        if own.any():
            axes.scatter(
                np.asarray(x)[own], np.asarray(y)[own], s=size, marker=marker, label=kind,
                color=COLOURS[int(colour[1])], alpha=0.55, linewidth=0,
            )  # fmt: skip


def _legend(last: Axes, frame: pd.DataFrame) -> None:
    """Who measured, as marks, in the axes that are left for it."""
    handles = [
        Line2D([], [], marker=marker, color=COLOURS[int(colour[1])], linestyle="", label=kind)
        for kind, (colour, marker) in KINDS.items()
        if (frame["kind"] == kind).any()
    ]
    last.legend(handles=handles, loc="upper left", ncols=3, frameon=False, borderpad=0, borderaxespad=0)


def _series(last: Axes, axes: Axes, columns: int) -> None:
    """The labelled series of `axes`, in the axes that are left for them."""
    handles, labels = axes.get_legend_handles_labels()
    last.legend(
        handles, labels, loc="upper left", ncols=columns, frameon=False, fontsize=9,
        borderpad=0, borderaxespad=0, columnspacing=1.2, handletextpad=0.3,
    )  # fmt: skip


@_listed("mbu")
def published_mbu() -> matplotlib.figure.Figure:
    """How much of the datasheet's bandwidth decoding one sequence reaches, by vendor and year of the
    accelerators: a mark for each source's median of an accelerator, the line is the median over
    accelerators."""
    groups, cells = answers.mbu_by_group(), answers.of_weight(answers.decode_cells())
    drawn, axes, last = _new(1.6 + 0.27 * len(groups))
    _rows(axes, [f"{r.group} (n = {r.accelerators})" for r in groups.itertuples()])
    place = {name: k for k, name in enumerate(groups["group"])}
    points = cells.groupby(["source", "kind", "accelerator", "group"], as_index=False)["mbu"].median()
    points = points[points["group"].isin(place)]
    _kind(axes, points["mbu"], points["group"].map(place), points["kind"])
    for k, row in enumerate(groups.itertuples()):
        axes.plot([row.low, row.high], [k, k], color=style.INK, linewidth=1.4, zorder=4)
        axes.plot([row.mbu], [k], "|", color=style.INK, markersize=11, markeredgewidth=2, zorder=5)
    axes.set(xlim=(0, 1), xlabel="MBU at batch 1, of the datasheet")
    _legend(last, points)
    caption = (
        f"n: accelerators; {len(points)} medians of {cells['source'].nunique()} sources. Line: 95 % interval "
        f"of the median over accelerators. Weights alone, that take {answers.LEAST_STEP_MS:g} ms or more to "
        "read."
    )
    return style.titled(drawn, "One sequence: share of the bandwidth", caption)


@_listed("mbu-size")
def published_mbu_size() -> matplotlib.figure.Figure:
    """MBU of one sequence over the time that its weights take to be read at the datasheet's bandwidth: short
    steps reach less, as what an engine does around each step weighs more."""
    cells = answers.decode_cells()
    drawn, axes, last = _new(4.6)
    _kind(axes, cells["bound_ms"], cells["mbu"], cells["kind"], 12)
    bins = pd.cut(np.log2(cells["bound_ms"]), 10)
    middle = cells.groupby(bins, observed=True).agg(
        x=("bound_ms", "median"), y=("mbu", "median"), n=("mbu", "size")
    )
    middle = middle[middle["n"] >= 10]
    axes.plot(middle["x"], middle["y"], color=style.INK, linewidth=2)
    axes.axvline(answers.LEAST_STEP_MS, color=style.GREY, linewidth=1, linestyle=":")
    axes.set(
        ylim=(0, 1.05),
        xlabel="weights ÷ bandwidth of the datasheet, ms",
        ylabel="MBU at batch 1",
        xscale="log",
    )
    axes.xaxis.set_major_formatter(lambda value, _: html.number(value))
    _legend(last, cells)
    caption = (
        f"n = {len(cells)} medians (source, accelerator, model, format, engine). Line: median of a tenth of "
        f"the axis. Dotted: from there on a step counts as limited by memory ({answers.LEAST_STEP_MS:g} ms)."
    )
    return style.titled(drawn, "Short steps reach less", caption)


@_listed("disagreement")
def published_disagreement() -> matplotlib.figure.Figure:
    """How many times one source's median is another's, for each setting that two sources measured; sources of
    one origin apart."""
    pairs, summary = answers.disagreement(), answers.disagreement_summary()
    summary = summary[summary["settings"] >= answers.MANY]
    labels = [
        f"{r.level}{', one origin' if r.one_origin else ''}\n{r.settings} settings"
        for r in summary.itertuples()
    ]
    drawn, axes, _ = _new(1.9 + 0.6 * len(labels), 0)
    _rows(axes, labels)
    draws = np.random.default_rng(answers.SEED)
    for k, row in enumerate(summary.itertuples()):
        own = pairs[(pairs["level"] == row.level) & (pairs["one_origin"] == row.one_origin)]
        axes.scatter(
            own["ratio"],
            k + draws.uniform(-0.25, 0.25, len(own)),
            s=14,
            alpha=0.5,
            linewidth=0,
            color=COLOURS[0],
        )
        axes.plot([row.low, row.high], [k, k], color=style.INK, linewidth=1.4)
        axes.plot([row.median], [k], "|", color=style.INK, markersize=16, markeredgewidth=2)
    axes.set(xscale="log", xlabel="larger ÷ smaller of two medians")
    axes.set_xticks([1, 1.5, 2, 3, 5, 10, 20], ["1", "1.5", "2", "3", "5", "10", "20"])
    axes.minorticks_off()
    caption = (
        "One mark is one pair of sources at one setting. Line: median over settings, "
        "95 % interval (bootstrap)."
    )
    return style.titled(drawn, "Two sources, one setting", caption)


@_listed("software")
def published_software() -> matplotlib.figure.Figure | None:
    """What the same setting of the same source gained between its first and its last date, by engine and
    accelerator."""
    table = answers.software_summary()
    table = table[table["settings"] >= answers.MANY].reset_index(drop=True)
    if table.empty:
        return None
    drawn, axes, last = _new(1.5 + 0.27 * len(table))
    _rows(axes, [f"{r.source}: {r.engine}, {r.accelerator} (n = {r.settings})" for r in table.itertuples()])
    for k, row in enumerate(table.itertuples()):
        colour = COLOURS[int(KINDS[row.kind][0][1])]
        axes.plot([row.low, row.high], [k, k], color=colour, linewidth=1.6)
        axes.plot([row.gain], [k], KINDS[row.kind][1], color=colour, markersize=6)
        axes.annotate(
            f"{html.number(row.days)} days",
            (row.high, k),
            (6, 0),
            fontsize=9,
            color=style.GREY,
            **style.BESIDE,
        )
    axes.axvline(1, color=style.GREY, linewidth=1)
    axes.set(xlabel="output tokens/s, last date ÷ first", xlim=(None, table["high"].max() * 1.12))
    axes.tick_params(axis="y", labelsize=9)
    _legend(last, table)
    caption = (
        f"n: settings of one source with two dates at least {answers.APART_DAYS} days apart, everything but "
        "the software as it was. Geometric mean, 95 % interval over settings (bootstrap)."
    )
    return style.titled(drawn, "The same hardware, later", caption)


@_listed("exchange")
def published_exchange() -> matplotlib.figure.Figure:
    """Output tokens/s of one accelerator over output tokens/s of one user, the best of all configurations,
    for one model on all accelerators that one source has."""
    points = answers.exchange_points()
    drawn, axes, last = _new(5.0, 6)
    cards = sorted(points["accelerator"].unique())
    formats = sorted(points["weights_format"].unique())
    for k, card in enumerate(cards):
        for fmt in formats:
            own = points[(points["accelerator"] == card) & (points["weights_format"] == fmt)]
            edge = answers.front(own)
            if len(edge) < answers.MANY:
                continue
            dashed = "--" if fmt != formats[-1] else "-"
            axes.plot(
                edge["speed"], edge["throughput"], dashed, marker=style.MARKERS[k % 7], markersize=4,
                color=COLOURS[k % 10], label=f"{card} {fmt}, n = {len(own)}",
            )  # fmt: skip
    axes.set(
        xlabel="output tokens/s of one user (1 ÷ median TPOT)", ylabel="output tokens/s of one accelerator"
    )
    style.plain_logs(axes)
    _series(last, axes, 2)
    first = points.iloc[0]
    caption = (
        f"{first['source']}, {first['model']}, prompts up to {first['input_tokens']:g} and answers up to "
        f"{first['output_tokens']:g} tokens, no speculation. Configurations are sampled: a front is a "
        "lower bound."
    )
    return style.titled(drawn, "Speed of a user against throughput", caption)


@_listed("quantization")
def published_quantization() -> matplotlib.figure.Figure:
    """How many times as fast fewer bits are as 16 bits, over how many times fewer bytes they are, one
    sequence, by engine."""
    table = answers.quantization()
    drawn, axes, last = _new(4.6, 4)
    engines = table["engine_family"].value_counts().index
    for k, engine in enumerate(engines):
        own = table[table["engine_family"] == engine]
        axes.scatter(
            own["promised"], own["gained"], s=18, alpha=0.6, linewidth=0, color=COLOURS[k % 10],
            marker=style.MARKERS[k % 7], label=f"{engine}, n = {len(own)}",
        )  # fmt: skip
    most = table["promised"].max()
    axes.plot([1, most], [1, most], color=style.GREY, linewidth=1)
    axes.axhline(1, color=style.FAINT, linewidth=1)
    axes.set(xlabel="bytes in 16 bits ÷ bytes in fewer", ylabel="output tokens/s ÷ those in 16 bits")
    _series(last, axes, 3)
    caption = (
        f"n = {len(table)} settings of {table['source'].nunique()} sources: same source, accelerator, "
        "engine, model and lengths, one sequence. On the line the whole promise is kept."
    )
    return style.titled(drawn, "Fewer bits: bytes and speed", caption)


@_listed("energy")
def published_energy() -> matplotlib.figure.Figure:
    """Energy of one output token over the requests in flight, by source and what the power is of: a mark for
    each setting, the median of its rows."""
    every = answers.energy()
    every["in_flight"] = every["in_flight"].map("{:.2g}".format).astype(float)
    setting = ["source", "scope", "accelerator", "model", "weights_format", "in_flight"]
    table = every.groupby(setting, dropna=False)["joules"].median().reset_index()
    drawn, axes, last = _new(4.4, 8)
    for k, ((source, scope), own) in enumerate(table.groupby(["source", "scope"])):
        axes.scatter(
            own["in_flight"], own["joules"], s=14, alpha=0.5, linewidth=0, color=COLOURS[k % 10],
            marker=style.MARKERS[k % 7], label=f"{source}, {scope}, n = {len(own)}",
        )  # fmt: skip
    axes.set(xlabel="requests in flight", ylabel="J per output token")
    style.plain_logs(axes)
    _series(last, axes, 1)
    caption = (
        f"n: settings (accelerator, model, format, requests in flight), {len(every):,} rows together. What "
        "the power is of differs by source: all accelerators, a chip's package, or not stated. No source "
        "here measured a whole server at the wall beside its accelerators."
    )
    return style.titled(drawn, "Energy of one output token", caption)


@_listed("prompt")
def published_prompt() -> matplotlib.figure.Figure:
    """How many times as fast prompts are read as answers are written, one sequence, by vendor and kind of
    hardware."""
    table, points = answers.prompt_summary(), answers.prompt_against_decode()
    drawn, axes, last = _new(1.7 + 0.36 * len(table))
    _rows(axes, [f"{r.group} (n = {r.accelerators})" for r in table.itertuples()])
    place = {name: k for k, name in enumerate(table["group"])}
    _kind(axes, points["ratio"], points["group"].map(place), points["kind"])
    for k, row in enumerate(table.itertuples()):
        axes.plot([row.low, row.high], [k, k], color=style.INK, linewidth=1.4)
        axes.plot([row.ratio], [k], "|", color=style.INK, markersize=12, markeredgewidth=2)
    axes.set(xscale="log", xlabel="prompt ÷ output tokens/s")
    axes.xaxis.set_major_formatter(lambda value, _: html.number(value))
    _legend(last, points)
    caption = (
        "n: accelerators. A mark is a source's median of one accelerator. Line: median over accelerators, 95 "
        "% interval (bootstrap). Few prompt tokens for one of the answer: short of arithmetic."
    )
    return style.titled(drawn, "Prompts against answers", caption)


@_listed("mlperf")
def published_mlperf() -> matplotlib.figure.Figure:
    """MLPerf alone: the fastest submitter's result as a multiple of the slowest's, where at least four
    submitted the same accelerators, count, benchmark, scenario, division and round."""
    table = answers.mlperf_groups()
    table = table.assign(what=table["round"] + " " + table["scenario"])
    whats = sorted(table["what"].unique())
    drawn, axes, _ = _new(2.2 + 0.3 * len(whats), 0)
    _rows(axes, [f"{what} (n = {(table['what'] == what).sum()})" for what in whats])
    for k, what in enumerate(whats):
        own = table.loc[table["what"] == what, "ratio"]
        axes.scatter(own, [k] * len(own), s=16, alpha=0.5, linewidth=0, color=COLOURS[3])
        axes.plot([own.median()], [k], "|", color=style.INK, markersize=12, markeredgewidth=2)
    axes.set(xlim=(0.98, table["ratio"].max() * 1.03), xlabel="tokens/s, fastest submitter ÷ slowest")
    caption = (
        "n: groups of one benchmark, system and division, each with four submitters or more; derived from "
        "MLPerf results, unverified. MLPerf is a trademark of MLCommons Association; result ids stand in the "
        "tables."
    )
    return style.titled(drawn, "MLPerf: submitters of one system", caption)
