"""Figures: one function per figure, all requests in, a matplotlib Figure out; pages and `figure.ipynb` call the same functions.

A figure is drawn for a page as narrow as a phone's: a row's label stands above its bar, inside the axes, so that the bar has the whole
width. What a figure compares shares one panel: a device, a model and its kind of weights; another setting gets a panel of its own.
"""

import functools
import io
import os
import re
import tempfile
import textwrap
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import figure as _figure
from matplotlib import ticker
from matplotlib.lines import Line2D

from bench import FIGURES, backends, batching
from bench import client_accuracy as accuracy
from bench import clients, metrics, results, tables
from bench import quality as scores
from bench import serving_tables
from bench import step_time as step_model

DRAWN = {}
WIDTH = 5.8  # inches; what is 11 points here is still 9 on a phone
ROW = 0.46  # inches per row: its label and its bar
LABEL, BAR, THICK = -0.22, 0.17, 0.36  # where in a row its label and its bar stand, and how thick the bar is
INK, GREY, FAINT = "0.15", "0.45", "0.72"
BESIDE = {"textcoords": "offset points", "va": "center_baseline"}
ABOVE = {"textcoords": "offset points", "va": "bottom"}
HATCHES = "", "///", "...", "xxx", "\\\\\\"
PREFIXES = (1e-12, "T"), (1e-9, "G"), (1e-6, "M"), (1, "")
# Text stays text in an SVG, and the same data give the same file.
STYLE = {
    "font.size": 11, "axes.titlesize": 11, "axes.labelsize": 11, "xtick.labelsize": 10, "ytick.labelsize": 10, "legend.fontsize": 10,
    "figure.titlesize": 13, "figure.titleweight": "bold", "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"],
    "axes.spines.left": False, "axes.spines.right": False, "axes.spines.top": False, "axes.edgecolor": FAINT, "grid.color": "0.92",
    "text.color": INK, "axes.labelcolor": INK, "xtick.color": GREY, "ytick.color": GREY, "axes.titlelocation": "left",
    "hatch.linewidth": 0.6, "figure.facecolor": "white", "savefig.facecolor": "white",
    "svg.fonttype": "none", "svg.hashsalt": "llm-inference-measured",
}  # fmt: skip


def style():
    """Context manager with the study's look: seaborn's white grid, sizes that a phone can show, text kept as text."""
    return matplotlib.rc_context(sns.axes_style("whitegrid") | STYLE)


class Figure(_figure.Figure):
    """A figure that shows itself in a notebook (SVG for pages, PNG for viewers without it) and keeps its style wherever it is saved."""

    def savefig(self, *arguments, **keywords):
        with style():
            return super().savefig(*arguments, **keywords)

    def _repr_svg_(self):
        out = io.StringIO()
        self.savefig(out, format="svg", metadata={"Date": None})
        return out.getvalue()

    def _repr_png_(self):
        out, width, height = io.BytesIO(), *(int(side * 96) for side in self.get_size_inches())
        self.savefig(out, format="png", dpi=192)
        return out.getvalue(), {"width": width, "height": height}


def _styled(draw):
    """Decorator: draw within the style; no rows, or none that the figure needs (None), give a figure that says so."""

    @functools.wraps(draw)
    def drawn(rows):
        with style():
            return (None if rows.empty else draw(rows)) or _nothing()

    return drawn


def _listed(draw):
    """Decorator: a styled figure that `names` lists and figure.ipynb can draw."""
    DRAWN[draw.__name__] = _styled(draw)
    return DRAWN[draw.__name__]


def names():
    """Names of the figures that are drawn from all requests."""
    return list(DRAWN)


def _nothing():
    drawn = Figure(figsize=(WIDTH, 1.2))
    drawn.text(0.5, 0.5, tables.EMPTY, ha="center", va="center", color=GREY)
    return drawn


def looks(requests):
    """Backend -> (colour, hatch), by its place in the sorted list of all backends; after ten colours the hatch changes.

    A line has no hatch: of the measured ones, a backend whose colour another has already takes one that none has, as long as there is one.
    """
    every, measured = sorted({*backends.names(), *requests["backend"]}), sorted(set(requests["backend"]))
    colours = sns.color_palette("colorblind")
    look = {name: (colours[i % len(colours)], HATCHES[i // len(colours) % len(HATCHES)]) for i, name in enumerate(every)}
    free = [colour for colour in colours if colour not in [look[name][0] for name in measured]]
    for k, name in enumerate(measured):
        if free and look[name][0] in [look[other][0] for other in measured[:k]]:
            look[name] = free.pop(0), ""
    return look


def _canvas(rows, columns=1, extra=1.3, **shared):
    """Figure with one panel row per entry of `rows` (numbers of bars), each as tall as its bars need; axes as a 2-D array."""
    drawn = Figure(figsize=(WIDTH, ROW * sum(rows) + 0.75 * len(rows) + extra), layout="constrained")
    drawn.get_layout_engine().set(h_pad=0.06, w_pad=0.08)
    return drawn, drawn.subplots(len(rows), columns, squeeze=False, gridspec_kw={"height_ratios": [n + 0.4 for n in rows]}, **shared)


def _words(drawn, title, caption):
    """Title on top and the small print below, both from the left edge."""
    drawn.suptitle(title, x=0.01, ha="left")
    drawn.supxlabel("\n".join(textwrap.wrap(caption, 74)), x=0.01, ha="left", fontsize=10, color=GREY, linespacing=1.35)
    return drawn


def _rows(axes, labels, unit=""):
    """Prepare `axes` for one row per label, the first on top; labels stand above their bars, at the left edge."""
    for y, name in enumerate(labels):
        axes.text(0, y + LABEL, name, transform=axes.get_yaxis_transform(), va="center", ha="left", zorder=5)
    axes.set(ylim=(len(labels) - 0.45, -0.55), yticks=[], xlabel=unit)
    axes.grid(False, axis="y")


def _bars(axes, table, column, look, factor=1.0, spread=None, reach=0.0):
    """One bar per row of `table`, its value behind it: behind the whisker of half width `spread` and whatever else ends at `reach`."""
    values = (table[column] * factor).to_numpy(dtype=float)
    half = np.zeros(len(table)) if spread is None else spread.fillna(0).to_numpy() * factor
    ends = np.fmax(np.nan_to_num(values + half), reach)
    for y, (backend, value, margin, end) in enumerate(zip(table["backend"], values, half, ends)):
        colour, hatch = look[backend]
        axes.barh(y + BAR, np.nan_to_num(value), THICK, color=colour, hatch=hatch, edgecolor="white", linewidth=0)
        if margin:
            axes.errorbar(value, y + BAR, xerr=margin, color=INK, capsize=3, elinewidth=1.2, capthick=1.2, zorder=4)
        axes.annotate(tables.number(value) or "not measured", (end, y + BAR), (5, 0), **BESIDE)
    axes.set_xlim(0, (max(ends) or 1) * 1.2)
    _ticks(axes.xaxis, 4)


def _ticks(axis, most):
    """At most `most` intervals between round numbers, written as in the tables."""
    axis.set_major_locator(ticker.MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: tables.number(value)))


def _spell(values):
    """Distinct `values` as words, few of them: `1`, `1 to 3`."""
    low, high = min(values), max(values)
    return tables.number(low) if low == high else f"{tables.number(low)} to {tables.number(high)}"


def _plural(values, word):
    return f"{_spell(values)} {word}" + ("" if max(values) == min(values) == 1 else "s")


def _setting(key):
    """`model (synthetic weights) on gpu` for one (gpu, model, weights)."""
    gpu, model, weights = key
    return f"{model} ({weights} weights) on {gpu}"


def _caption(requests, *more):
    """The small print: what ran where and how often, then what the marks mean."""
    settings = tables.settings(requests)
    where = f"{_setting(settings[0][0])}: batch" if len(settings) == 1 else "Batch"
    counts = results.runs(requests).groupby(results.CONFIGURATION).size()
    good = requests[requests["error"] == ""]
    words = f"{where} {_spell(good['batch_size'])}, {_spell(good['max_new_tokens'])} output tokens, {_plural(good['threads'], 'thread')}"
    return " ".join([f"{words}, {_plural(counts, 'run')} each.", *more])


def _blocks(requests, experiment="latency"):
    """(requests of the machine in focus, [(title, requests, summary)]), one block per setting; the title is empty if there is one only."""
    chosen = results.here(requests, experiment)
    settings = tables.settings(chosen)
    return chosen, [(_setting(key) if len(settings) > 1 else "", rows, results.summary(rows)) for key, rows in settings]


def _configurations(summary):
    failures = summary.get("failed", pd.Series(0, summary.index))
    return [tables.label(row) + (f" · {n} requests failed" if n else "") for (_, row), n in zip(summary.iterrows(), failures)]


@_listed
def latency(requests):
    """Output tokens/s per engine and option on the machine in focus, the fastest on top, a dot per run, the t-interval over runs."""
    chosen, blocks = _blocks(requests)
    if not blocks:
        return None
    drawn, axes = _canvas([len(summary) for *_, summary in blocks])
    for panel, (title, rows, summary) in zip(axes[:, 0], blocks):
        _rows(panel, _configurations(summary), "output tokens/s")
        runs = results.runs(rows)
        fastest = runs.groupby(["backend", "option"])["output_tokens_per_s"].max()
        reach = fastest.reindex(pd.MultiIndex.from_frame(summary[["backend", "option"]])).to_numpy()
        _bars(panel, summary, "output_tokens_per_s", looks(requests), spread=summary["interval"], reach=reach)
        _dots(panel, runs, summary)
        panel.set_title(title)
    marks = "Bar: mean over runs; dot: one run; whisker: 95 % interval over runs."
    return _words(drawn, "Output speed, one request at a time", _caption(chosen, marks))


def _dots(axes, runs, summary):
    """One dot per run on the row of its configuration."""
    place = {(row["backend"], row["option"]): y + BAR for y, row in summary.iterrows()}
    at = [place[key] for key in zip(runs["backend"], runs["option"])]
    _small_dots(axes, runs["output_tokens_per_s"], at)


def _small_dots(axes, x, y):
    axes.scatter(x, y, s=16, color="white", edgecolor=INK, linewidth=0.9, zorder=6)


@_listed
def ttft_tpot(requests):
    """Time to first token and time per output token, side by side, in milliseconds; rows in the order of `latency`."""
    chosen, blocks = _blocks(requests)
    if not blocks:
        return None
    drawn, axes = _canvas([len(summary) for *_, summary in blocks], columns=2, sharey="row")
    for (left, right), (title, _, summary) in zip(axes, blocks):
        for panel, column, unit in ((left, "ttft_s", "TTFT, ms"), (right, "tpot_s", "TPOT, ms")):
            _rows(panel, _configurations(summary) if panel is left else [""] * len(summary), unit)
            _bars(panel, summary, column, looks(requests), factor=1e3)
            panel.set_xlim(0, panel.get_xlim()[1] * 1.12)
        left.set_title(title)
    caption = _caption(chosen, "Medians over requests and runs; the fastest is on top.")
    return _words(drawn, "First token (TTFT) and each later one (TPOT)", caption)


@_listed
def itl(requests):
    """Spread of inter-token latency per engine and option: median, 99th percentile and longest gap, on a log axis."""
    chosen, blocks = _blocks(requests[requests["itl_p50_s"].notna()])
    if not blocks:
        return None
    drawn, axes = _canvas([len(summary) for *_, summary in blocks])
    for panel, (title, rows, summary) in zip(axes[:, 0], blocks):
        _rows(panel, _configurations(summary), "inter-token latency, ms (log)")
        _gaps(panel, rows, summary, looks(requests))
        panel.set_title(title)
    _legend(drawn, [("p50", "o"), ("p99", "D"), ("max", "|")])
    caption = _caption(chosen, "p50 and p99: medians over requests; max: the longest gap of any request.")
    return _words(drawn, "Gaps between tokens (ITL)", caption)


def _gaps(axes, rows, summary, look):
    """The three marks of each row of `itl`, joined by a line."""
    grouped = rows.groupby(["backend", "option"])
    gaps = grouped.agg(p50=("itl_p50_s", "median"), p99=("itl_p99_s", "median"), longest=("itl_max_s", "max")) * 1e3
    for y, row in summary.iterrows():
        colour, values = look[row["backend"]][0], gaps.loc[(row["backend"], row["option"])]
        axes.hlines(y + BAR, values.min(), values.max(), color=colour, linewidth=2, alpha=0.5)
        for (value, marker, size) in zip(values, ("o", "D", "|"), (52, 30, 110)):
            axes.scatter(value, y + BAR, s=size, marker=marker, color=[colour], linewidth=2.4 if marker == "|" else 0, zorder=4)
    axes.set_xscale("log")
    low, high = gaps.min().min() / 1.3, gaps.max().max() * 1.3
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 3) if high / low < 100 else (1,)))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: tables.number(value)))
    axes.xaxis.set_minor_locator(ticker.NullLocator())


def _legend(drawn, marks):
    """Grey marks with their names, beside the title."""
    shape = {"color": GREY, "markersize": 7, "markeredgewidth": 2, "linestyle": ""}
    handles = [Line2D([], [], marker=marker, label=name, **shape) for name, marker in marks]
    drawn.legend(handles=handles, loc="outside upper right", ncols=len(marks), frameon=False, borderpad=0, handletextpad=0.2)


@_listed
def mbu(requests):
    """Model bandwidth utilisation per engine and option against the best bandwidth probed in the run, the highest on top."""
    chosen, blocks = _blocks(requests)
    if not blocks:
        return None
    drawn, axes = _canvas([len(summary) for *_, summary in blocks])
    for panel, (title, _, summary) in zip(axes[:, 0], blocks):
        summary = summary.sort_values("mbu", ascending=False, ignore_index=True)
        _rows(panel, _configurations(summary), "MBU, fraction of the measured bandwidth")
        _bars(panel, summary, "mbu", looks(requests))
        panel.set(xlim=(0, 1), xticks=(0, 0.25, 0.5, 0.75, 1), xticklabels=("0", "0.25", "0.5", "0.75", "1"))
        _turn_inwards(panel)
        panel.scatter(summary["mbu_datasheet"], np.arange(len(summary)) + BAR, marker="D", s=30, color="white", edgecolor=INK, zorder=5)
        panel.set_title(title)
    more = ["1 is every byte per second that the best probe of the run could read."]
    if chosen["mbu_datasheet"].notna().any():
        more.append("Diamond: against the datasheet's bandwidth instead.")
    return _words(drawn, "Share of the memory's speed in use (MBU)", _caption(chosen, *more))


def _turn_inwards(axes, beyond=0.86):
    """Values of bars that end near the right edge move into the bar."""
    for note in axes.texts:
        if isinstance(note, matplotlib.text.Annotation) and note.xy[0] > beyond:
            note.set(ha="right", x=-5)


@_listed
def published(requests):
    """The published table (grey) and our own bars, one above the other, each on its own axis: another model on other hardware."""
    return _published(*_blocks(requests)) if (requests["experiment"] == "latency").any() else None


def _published(chosen, blocks):
    theirs = tables.published()
    usual = theirs["GPU"].mode()[0]
    drawn, axes = _canvas([len(theirs), *(len(summary) for *_, summary in blocks)], extra=1.6)
    first = theirs.assign(backend="", value=theirs["tokens/s"])
    _rows(axes[0, 0], [_published_label(row, usual) for _, row in theirs.iterrows()], "tokens/s, as published")
    _bars(axes[0, 0], first, "value", {"": (FAINT, "")})
    axes[0, 0].set_title(f"Published {theirs['edition'].max()}: Llama-2-7B on {usual} unless the label says so")
    for panel, (_, rows, summary) in zip(axes[1:, 0], blocks):
        _rows(panel, _configurations(summary), "output tokens/s, measured here (another axis)")
        _bars(panel, summary, "output_tokens_per_s", looks(chosen), spread=summary["interval"])
        panel.set_title(f"Here: {_setting(tables.settings(rows)[0][0])}")
    differ = "Not to be compared across panels: models, hardware and axes differ, and the published rows count and sample in several ways."
    return _words(drawn, "The published table, and this study", f"{differ} {_caption(chosen)}")


def _published_label(row, usual):
    """Platform and options without remarks in brackets; the GPU where it is not the usual one."""
    words = [re.sub(r"\s*\(.*?\)", "", row["platform"]), row["options"], row["GPU"]]
    return textwrap.shorten(" · ".join(word for word in words if word not in ("-", usual)), 66, placeholder=" …")


@_listed
def overhead(requests):
    """What measuring costs: harness / the engine's own loop - 1, a dot per pair, the median with its 95 % interval, the 1 % line."""
    pairs, table = tables.pairs(requests), tables.overhead_summary(requests)
    if pairs.empty:
        return None
    drawn, axes = _canvas([len(table)])
    panel, look = axes[0, 0], looks(requests)
    _rows(panel, _configurations(table), "extra time under the harness, %")
    for y, row in table.iterrows():
        colour = look[row["backend"]][0]
        own = pairs[(pairs[results.CONFIGURATION] == row[results.CONFIGURATION]).all(axis=1)]
        panel.scatter(own["cost"] * 100, np.full(len(own), y + BAR), s=22, color=[colour], alpha=0.55, linewidth=0)
        panel.hlines(y + BAR, row["low"] * 100, row["high"] * 100, color=INK, linewidth=1.6, zorder=4)
        panel.scatter(row["median"] * 100, y + BAR, s=46, color="white", edgecolor=INK, linewidth=1.6, zorder=5)
    panel.axvline(0, color=FAINT, linewidth=1, zorder=1)
    panel.axvline(1, color=GREY, linewidth=1.2, linestyle="--", zorder=1)
    panel.annotate("1 %", (1, 1), (3, 0), xycoords=("data", "axes fraction"), textcoords="offset points", va="bottom", color=GREY)
    _ticks(panel.xaxis, 5)
    marks = "Dot: one pair of requests, the same prompt with and without the harness; ring and line: median and its 95 % interval."
    return _words(drawn, "What measuring costs", _caption(results.here(requests, "overhead"), marks))


@_styled
def run(requests):
    """One executed run: output tokens/s and TTFT per request, for the notebook that measured it."""
    drawn = Figure(figsize=(WIDTH, 3.6), layout="constrained")
    panels = drawn.subplots(2, 1, sharex=True)
    colour = looks(requests)[requests["backend"].iloc[0]][0]
    for panel, column, factor, unit in zip(panels, ("output_tokens_per_s", "ttft_s"), (1, 1e3), ("output tokens/s", "TTFT, ms")):
        values = requests[column] * factor
        panel.plot(requests["request"], values, "o", color=colour, markersize=7)
        panel.axhline(values.median(), color=FAINT, linewidth=1.2, zorder=1)
        panel.set(ylim=(0, (np.nan_to_num(values.max()) or 1) * 1.25), ylabel=unit)
        if values.isna().all():
            panel.text(0.5, 0.5, "not measured", transform=panel.transAxes, ha="center", color=GREY)
        _ticks(panel.yaxis, 3)
        panel.grid(False, axis="x")
    drawn.align_ylabels(panels)
    panels[1].set_xlabel("request")
    panels[1].xaxis.set_major_locator(ticker.MaxNLocator(9, integer=True))
    row, failed = results.named(requests).iloc[0], int((requests["error"] != "").sum())
    caption = f"{_setting(row[tables.SETTING])}. Line: median." + (f" {failed} failed." if failed else "")
    return _words(drawn, tables.label(row), caption)


MARKERS = "o", "s", "^", "D", "v", "P", "X"


def _styles(table, requests):
    """(backend, option) of `table` -> (label, colour of the engine, marker of the option)."""
    look, styles = looks(requests), {}
    for backend, rows in table.groupby("backend", sort=True):
        for k, (_, row) in enumerate(rows.drop_duplicates("option").sort_values("option").iterrows()):
            styles[backend, row["option"]] = tables.label(row), look[backend][0], MARKERS[k % len(MARKERS)]
    return styles


def _key(axes, styles, also=()):
    """One legend for all panels in two columns, in axes of its own: the marks of `styles`, then the Line2D of `also`."""
    handles = [Line2D([], [], color=colour, marker=marker, markersize=6, label=label) for label, colour, marker in styles.values()] + list(also)
    axes.legend(handles=handles, loc="upper left", ncols=2, frameon=False, borderpad=0, borderaxespad=0, columnspacing=1.2)
    axes.axis("off")


def _curves(table):
    """((backend, option), rows) of a table of sweeps."""
    return table.groupby(["backend", "option"], sort=True)


def _sweep_blocks(chosen):
    """[(title, rows)] of the table `chosen`, one per setting; the title is empty if there is one only."""
    groups = list(chosen.groupby(tables.SETTING, sort=True))
    return [(_setting(key) if len(groups) > 1 else "", rows) for key, rows in groups]


def _panels(count, height, styles, extra=1.2, also=()):
    """Figure and axes: `count` panels, one above the other, and below them the legend of `styles` and of the Line2D `also`."""
    key = 0.24 * np.ceil((len(styles) + len(also)) / 2)
    drawn = Figure(figsize=(WIDTH, count * height + key + extra), layout="constrained")
    drawn.get_layout_engine().set(h_pad=0.08, w_pad=0.08)
    *panels, last = drawn.subplots(count + 1, 1, gridspec_kw={"height_ratios": [height] * count + [key]})
    _key(last, styles, also)
    return drawn, panels


def _joined(axes, x, y, style, **more):
    _, colour, marker = style
    axes.plot(x, y, marker=marker, color=colour, markersize=6, linewidth=1.4, **more)


def _plain_logs(axes):
    """Two log axes with plain numbers at 1, 2 and 5 of each power of ten, fewer where there is much to span."""
    axes.set(xscale="log", yscale="log")
    for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if high / low < 100 else (1, 3) if high / low < 1000 else (1,)))
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: tables.number(value)))
        axis.set_minor_locator(ticker.NullLocator())


@_listed
def frontier(requests):
    """Output tokens/s of a batch over the time of a whole request, one line per engine and option, a mark per batch size."""
    table = batching.uniform(requests)
    if table.empty:
        return None
    styles, theirs = _styles(table, requests), batching.published_sweep()
    blocks = _sweep_blocks(table)
    drawn, axes = _panels(len(blocks), 4.2, styles)
    for panel, (title, rows) in zip(axes, blocks):
        for gpu, points in theirs.groupby("gpu"):
            panel.plot(points["e2e_s"], points["output_tokens_per_s"], "o-", color=FAINT, markersize=4, linewidth=1)
            name = f"{points['model'].iloc[-1]} on {gpu}, published"
            panel.annotate(name, tuple(points.iloc[-1][["e2e_s", "output_tokens_per_s"]]), (0, 6), **ABOVE, ha="center", color=GREY)
        for key, mine in _curves(rows):
            mine = mine.sort_values("batch_size")
            _joined(panel, mine["e2e_s"], mine["output_tokens_per_s"], styles[key])
            last = mine.iloc[-1]
            panel.annotate(f"×{last['batch_size']:.0f}", (last["e2e_s"], last["output_tokens_per_s"]), (6, 0), **BESIDE, fontsize=9, color=GREY)
        panel.set(xlabel="seconds per request, first token to last included", ylabel="output tokens/s of the batch", title=title)
        _plain_logs(panel)
    one = table.iloc[0]
    what = f"{tables.number(one['prompt_tokens'])} tokens in, {tables.number(one['max_new_tokens'])} out; a mark per batch size, from 1 to the last."
    grey = "Grey: another model and other hardware, latency derived as batch / (requests/s)."
    return _words(drawn, "Throughput against latency", f"{_setting(one[tables.SETTING])}: {what} {grey}")


@_listed
def roofline(requests):
    """Every measured batch under the measured roofs of its machine: FLOP/s over FLOPs per byte, prefill above and decode below."""
    table = batching.sweeps(requests).dropna(subset=["peak_flops_per_s", "step_flops"])
    if table.empty:
        return None
    styles = _styles(table, requests)
    blocks = _sweep_blocks(table)
    drawn, axes = _panels(2 * len(blocks), 3.4, styles)
    for k, (title, rows) in enumerate(blocks):
        for panel, phase in zip(axes[2 * k : 2 * k + 2], ("prefill", "decode")):
            _under_roofs(panel, rows, phase, styles)
            panel.set_title(f"{phase.capitalize()}{', ' + title if title else ''}")
    caption = "Slope: best bandwidth read in any run; level lines: best matrix multiply in the format that an engine computes in."
    return _words(drawn, "Under the roofs", f"{_setting(table.iloc[0][tables.SETTING])}. {caption} Nothing measured can lie above.")


def _under_roofs(axes, rows, phase, styles):
    """The points of one phase, joined per engine and option, and the roofs over them."""
    x, y = f"{phase}_intensity", f"{phase}_flops_per_s"
    for key, mine in _curves(rows):
        _joined(axes, mine.sort_values(x)[x], mine.sort_values(x)[y] / 1e9, styles[key])
    bandwidth, peaks = rows["bandwidth_bytes_per_s"].max() / 1e9, rows.groupby("arithmetic")["peak_flops_per_s"].max() / 1e9
    low, high = rows[x].min() / 1.5, max(rows[x].max(), metrics.ridge_point(peaks.max(), bandwidth)) * 2
    slope = np.array([low, metrics.ridge_point(peaks.max(), bandwidth)])
    axes.plot(slope, slope * bandwidth, color=INK, linewidth=1.3)
    axes.annotate(f"{tables.number(bandwidth)} GB/s", (low, low * bandwidth), (4, 8), **ABOVE, fontsize=9, rotation=0)
    for arithmetic, peak in peaks.items():
        axes.plot([metrics.ridge_point(peak, bandwidth), high], [peak, peak], color=INK, linewidth=1.3)
        axes.annotate(f"{arithmetic}, {tables.number(peak)} GFLOP/s", (high, peak), (0, 2), **ABOVE, ha="right", fontsize=9)
    axes.set(xlabel="FLOPs per byte read", ylabel="GFLOP/s", xlim=(low, high))
    _plain_logs(axes)
    axes.set_ylim(top=peaks.max() * 2)


@_listed
def step_time(requests):
    """Time of a decode step over batch size: measured (marks) and the fitted step-time model (lines), per engine and option."""
    chosen = results.here(requests, "batching")
    fitted = step_model.models(chosen)
    if fitted.empty:
        return None
    table, styles = batching.uniform(requests), _styles(fitted, requests)
    blocks = _sweep_blocks(table)
    drawn, axes = _panels(len(blocks), 4.2, styles)
    for panel, (title, rows) in zip(axes, blocks):
        for key, mine in _curves(rows):
            if key in styles:
                _fitted(panel, mine.sort_values("batch_size"), fitted, key, styles[key])
        panel.set(xlabel="batch size", ylabel="ms per decode step", title=title)
        _plain_logs(panel)
        panel.xaxis.set_major_locator(ticker.FixedLocator(sorted(rows["batch_size"].unique())))
    marks = "Mark: median gap between tokens; line: overhead + max(bytes / bandwidth, FLOPs / peak), fitted."
    return _words(drawn, "What a decode step takes", f"{_setting(table.iloc[0][tables.SETTING])}. {marks}")


def _fitted(axes, mine, fitted, key, style):
    """The marks of one configuration and the line of its model."""
    row = fitted[(fitted["backend"] == key[0]) & (fitted["option"] == key[1]) & (fitted["gpu"] == mine["gpu"].iloc[0])].iloc[0]
    terms = step_model.terms_of(row)
    _, colour, marker = style
    axes.plot(mine["batch_size"], mine["step_s"] * 1e3, marker, color=colour, markersize=6)
    axes.plot(mine["batch_size"], step_model.predict(terms, mine["step_bytes"], mine["step_flops"]) * 1e3, color=colour, linewidth=1.2)


@_listed
def ttft_prompt(requests):
    """Time to first token over the length of the prompt at batch size 1, one line per engine and option."""
    table = batching.alone(requests)
    if table.empty:
        return None
    styles = _styles(table, requests)
    blocks = _sweep_blocks(table)
    drawn, axes = _panels(len(blocks), 3.8, styles)
    for panel, (title, rows) in zip(axes, blocks):
        for key, mine in _curves(rows):
            _joined(panel, mine["prompt_tokens"], mine["ttft_s"] * 1e3, styles[key])
        panel.set(xlabel="prompt tokens", ylabel="TTFT, ms", title=title)
        _plain_logs(panel)
        panel.xaxis.set_major_locator(ticker.FixedLocator(sorted(rows["prompt_tokens"].unique())))
    return _words(drawn, "The wait grows with the prompt", f"{_setting(table.iloc[0][tables.SETTING])}: batch 1, medians.")


@_listed
def mbu_published(requests):
    """MBU of published 16-bit results (grey, against the datasheet) above ours of 16 bits or more (against what was measured)."""
    chosen, blocks = _blocks(requests)
    theirs = batching.published_mbu()
    ours = [(title, _widest(summary)) for title, _, summary in blocks]
    ours = [(title, summary) for title, summary in ours if len(summary)]
    drawn, axes = _canvas([len(theirs), *(len(summary) for _, summary in ours)], extra=1.5)
    _rows(axes[0, 0], [f"{row['label']} · {row['model']} · {row['gpu']}" for _, row in theirs.iterrows()], "MBU, fraction of the datasheet's bandwidth")
    _bars(axes[0, 0], theirs.assign(backend=""), "mbu", {"": (FAINT, "")})
    for panel, (title, summary) in zip(axes[1:, 0], ours):
        _rows(panel, _configurations(summary), "MBU, fraction of the measured bandwidth")
        _bars(panel, summary, "mbu", looks(requests))
        panel.set_title(title or "Here")
    for panel in axes[:, 0]:
        panel.set(xlim=(0, 1), xticks=(0, 0.25, 0.5, 0.75, 1), xticklabels=("0", "0.25", "0.5", "0.75", "1"))
        _turn_inwards(panel)
    axes[0, 0].set_title("Published, derived: weights alone")
    caption = "The table published_mbu gives the derivation of each published value. Ours count weights and KV cache, batch 1."
    return _words(drawn, "Bandwidth in use, published and here", caption)


def _widest(summary):
    """Configurations whose weights have 16 bits or more, by MBU."""
    wide = summary[[(tables.bits(option) or 0) >= 16 for option in summary["option"]]]
    return wide.dropna(subset="mbu").sort_values("mbu", ascending=False, ignore_index=True)


# What is lost: a column of quality.summary, what its axis says, and from the column to percent.
LOSSES = (
    ("agreement", "tokens that differ from the reference's answers, %", lambda share: 100 * (1 - share)),
    ("perplexity_ratio", "perplexity of the fixed text above the reference's, % (log above 1)", lambda ratio: 100 * (ratio - 1)),
)


@_listed
def quality(requests):
    """Output tokens/s over what is lost on real weights: the share of tokens that are not the reference's, and the fixed text's perplexity
    above the reference's. Filled marks with names are the frontier: nothing that was measured is faster and loses as little."""
    table = tables.quality_here(requests)
    table = table[table["agreement"].notna() & table["output_tokens_per_s"].notna()]
    if table.empty:
        return None
    styles = _styles(table, requests)
    shown = [(title, rows, loss) for title, rows in _sweep_blocks(table) for loss in LOSSES if rows[loss[0]].notna().sum() > 1]
    drawn, axes = _panels(max(1, len(shown)), 3.4, styles)
    for panel, (title, rows, (column, axis, percent)) in zip(axes, shown):
        rows = rows.assign(lost=percent(rows[column])).dropna(subset="lost")
        top, low, high = rows["output_tokens_per_s"].max() * 1.1, rows["lost"].min(), rows["lost"].max()
        panel.set(xlabel=axis, ylabel="output tokens/s", title=title, ylim=(0, top), xlim=(min(0, low) - 0.04 * (high or 1), 1.06 * (high or 1)))
        if column == "perplexity_ratio":
            panel.set_xscale("symlog", linthresh=1)
            panel.set_xlim(min(-0.2, 1.5 * low), max(1, 1.6 * high))
        panel.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: tables.number(value)))
        _lost(panel, rows, styles)
    where = f"{_setting(table.iloc[0][tables.SETTING])}: one" if len(set(map(tuple, table[tables.SETTING].to_numpy()))) == 1 else "One"
    marks = "Up and to the left is better. Filled and named: nothing measured is as fast and loses less."
    return _words(drawn, "Quality against speed", f"{where} request at a time. The reference is {' '.join(scores.REFERENCE)}. {marks}")


def _lost(axes, rows, styles):
    """One mark per row at (lost, tokens/s); the frontier filled, joined by steps and named, its names kept apart."""
    best = scores.frontier(rows, "lost")
    edge = rows[best].sort_values("output_tokens_per_s")
    axes.step(edge["lost"], edge["output_tokens_per_s"], where="post", color=FAINT, linewidth=1.4, zorder=1)
    for filled, (_, row) in zip(best, rows.iterrows()):
        _, colour, marker = styles[row["backend"], row["option"]]
        face = colour if filled else "white"
        axes.scatter(row["lost"], row["output_tokens_per_s"], s=52, marker=marker, facecolor=face, edgecolor=colour, linewidth=1.4, zorder=3, clip_on=False)
    place, height, line = axes.transScale + axes.transLimits, -np.inf, axes.get_ylim()[1] / 15
    for _, row in edge.iterrows():  # from below, each name at least a line above the one before
        height = max(row["output_tokens_per_s"], height + line)
        inwards = place.transform((row["lost"], height))[0] > 0.5
        behind = {"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.5}
        axes.annotate(tables.label(row), (row["lost"], height), (-9 if inwards else 9, 8), **BESIDE, ha="right" if inwards else "left", zorder=4, bbox=behind)


@_styled
def sweep(requests):
    """One executed sweep: output tokens/s over batch size, and TTFT over prompt length at batch 1, for the notebook that measured it."""
    batches = results.batches(requests)
    failed, batches = batches[batches["error"] != ""], batches[batches["error"] == ""]
    drawn = Figure(figsize=(WIDTH, 5), layout="constrained")
    upper, lower = drawn.subplots(2, 1)
    colour = looks(requests)[requests["backend"].iloc[0]][0]
    usual = requests["prompt_tokens"].mode()[0]
    wide = batches[batches["prompt_tokens"] == usual].sort_values("max_new_tokens").drop_duplicates("batch_size", keep="last")
    alone = batches[batches["batch_size"] == 1].drop_duplicates("prompt_tokens")
    _line(upper, wide.sort_values("batch_size"), "batch_size", "output_tokens_per_s", colour, 1)
    _line(lower, alone.sort_values("prompt_tokens"), "prompt_tokens", "ttft_s", colour, 1e3)
    upper.set(xlabel="batch size", ylabel="output tokens/s")
    lower.set(xlabel="prompt tokens", ylabel="TTFT, ms")
    row, caption = results.named(requests).iloc[0], f"{_setting(requests.iloc[0][tables.SETTING])}."
    caption += "".join(f" Batch {size:.0f} failed: {textwrap.shorten(why, 90)}" for size, why in zip(failed["batch_size"], failed["error"]))
    return _words(drawn, tables.label(row), caption)


def _line(axes, table, x, y, colour, factor):
    """Marked line on two log axes whose ticks are the measured values of x."""
    axes.plot(table[x], table[y] * factor, "o-", color=colour, markersize=6)
    _plain_logs(axes)
    axes.xaxis.set_major_locator(ticker.FixedLocator(sorted(table[x].unique())))


# How a curve of levels is drawn: a closed loop filled, an open loop hollow and dashed; a tail hollow and dotted.
LOOPS = {"closed": {"linestyle": "-"}, "open": {"linestyle": "--", "markerfacecolor": "white"}}
TAILS = {50: {"linestyle": "-"}, 99: {"linestyle": ":", "markerfacecolor": "white"}}
LOADS = {"closed": "requests at once (closed loop)", "open": "requests/s (open loop)"}
GREYS = FAINT, "0.58", GREY
PUBLISHED_LOADS = "Last panel: another model on other hardware, read off figures (± 0.05 ms)."


def _levels(requests, x, y):
    """The levels of load of the machine in focus of which both `x` and `y` are known; a model on several devices is an option of its own."""
    return results.named(serving_tables.levels(requests)).dropna(subset=[x, y])


def _where(blocks, table):
    """What ran where, for a caption, where the panels have no titles that say it."""
    return f"{_setting(table.iloc[0][tables.SETTING])}. " if len(blocks) == 1 else ""


def _plain_key(looks, words):
    """Line2D without an engine's colour for a legend, one per entry of `looks`, named by `words`."""
    return [Line2D([], [], color=INK, marker="o", markersize=6, label=word, **look) for look, word in zip(looks.values(), words)]


def _load_curve(axes, rows, x, y, style, look):
    """One curve of levels, from little load to much; y in ms."""
    rows = rows.dropna(subset=[x, y]).sort_values("load")
    _joined(axes, rows[x], rows[y] * 1e3, style, **look)


def _last_loads(axes, table, x, y):
    """The load of the last level of each curve behind its mark, unless another mark is there. After the limits are set."""
    last = table.dropna(subset=[x, y]).sort_values("load").drop_duplicates(["backend", "option", "loop"], keep="last")
    place, taken = axes.transScale + axes.transLimits, []
    for _, row in last.sort_values(x, ascending=False).iterrows():
        at = place.transform((row[x], row[y] * 1e3))
        if all(abs(at - other)[0] > 0.09 or abs(at - other)[1] > 0.045 for other in taken):
            word = f"×{row['load']:.0f}" if row["loop"] == "closed" else f"{tables.number(row['load'])}/s"
            axes.annotate(word, (row[x], row[y] * 1e3), (6, 0), **BESIDE, fontsize=9, color=GREY)
        taken.append(at)


def _published_loads(axes, x, y):
    """The published curves of one GPU, in greys, each named at its first level."""
    for grey, marker, (engine, rows) in zip(GREYS, MARKERS, serving_tables.published_single().groupby("backend", sort=True)):
        for loop, look in LOOPS.items():
            curve = rows[(rows["loop"] == loop) & rows[y].notna() & ((loop == "closed") | (x != "load"))].sort_values("load")
            axes.plot(curve[x], curve[y] * 1e3, color=grey, marker=marker, markersize=5, linewidth=1.2, **look)
        first = rows[(rows["loop"] == "closed") & rows[y].notna()].sort_values("load").iloc[0]
        axes.annotate(engine, (first[x], first[y] * 1e3), (-8, 0), **BESIDE, ha="right", fontsize=9, color=GREY)
    one = rows.iloc[0]
    axes.set_title(f"Published: {one['model']} on one {one['gpu'].split()[0]}, other axes")


def _load_limits(axes, left=1.3, right=1.25):
    """Two log axes with room for the words beside the first (`left`) and the last mark (`right`): factors on the limits along x."""
    axes.set(xscale="log", yscale="log")
    low, high = axes.get_xlim()
    axes.set_xlim(low / left, high * right)
    _fine_logs(axes)


def _fine_logs(axes):
    """Two log axes; an axis that spans little has more ticks."""
    _plain_logs(axes)
    for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        if high / low < 6:
            axis.set_major_locator(ticker.LogLocator(subs=(1, 1.5, 2, 3, 4, 6, 8)))


@_listed
def serving_frontier(requests):
    """TPOT over output tokens/s per device for every level of load, one line per engine and option; below, three published engines on H100."""
    table = _levels(requests, "per_device", "tpot_p50_s")
    if table.empty:
        return None
    styles, blocks = _styles(table, requests), _sweep_blocks(table)
    drawn, axes = _panels(len(blocks) + 1, 3.5, styles, 1.5, _plain_key(LOOPS, ("closed loop", "open loop")))
    for panel, (title, rows) in zip(axes, blocks):
        for key, curve in _curves(rows):
            for loop, look in LOOPS.items():
                _load_curve(panel, curve[curve["loop"] == loop], "per_device", "tpot_p50_s", styles[key], look)
        panel.set_title(title)
        _load_limits(panel, left=1)
        _last_loads(panel, rows, "per_device", "tpot_p50_s")
    _published_loads(axes[-1], "per_device", "tpot_p50_s")
    _load_limits(axes[-1], left=4)
    for panel in axes:
        panel.set(xlabel="output tokens/s per device", ylabel="TPOT, ms (median)")
    marks = f"A mark per level of load; the last one's is written beside it. Down and to the right is better. {PUBLISHED_LOADS}"
    return _words(drawn, "Servers: pace against throughput", f"{_where(blocks, table)}{marks}")


@_listed
def serving_ttft(requests):
    """Median and 99th percentile of TTFT over the load, concurrency and request rate apart, one line per engine and option; below, the published
    TTFT of three engines on H100."""
    table = _levels(requests, "load", "ttft_p50_s")
    if table.empty:
        return None
    styles, blocks = _styles(table, requests), _sweep_blocks(table)
    shown = [(title, rows[rows["loop"] == loop], loop) for title, rows in blocks for loop in LOADS if (rows["loop"] == loop).any()]
    drawn, axes = _panels(len(shown) + 1, 3.0, styles, 1.5, _plain_key(TAILS, ("median", "99th percentile")))
    for panel, (title, rows, loop) in zip(axes, shown):
        for key, curve in _curves(rows):
            for q, look in TAILS.items():
                _joined(panel, curve.sort_values("load")["load"], curve.sort_values("load")[f"ttft_p{q}_s"] * 1e3, styles[key], **look)
        panel.set(xlabel=LOADS[loop], title=title)
        _load_ticks(panel, rows["load"])
    _published_loads(axes[-1], "load", "ttft_p50_s")
    axes[-1].set_xlabel(LOADS["closed"])
    loads = serving_tables.published_single().query("loop == 'closed'")["load"]
    _load_ticks(axes[-1], loads)
    axes[-1].set_xlim(loads.min() / 6, loads.max() * 1.25)
    for panel in axes:
        panel.set_ylabel("TTFT, ms")
    return _words(drawn, "Servers: the wait for the first token", f"{_where(blocks, table)}{PUBLISHED_LOADS}")


def _load_ticks(axes, loads):
    """Two log axes; along x the loads themselves, those left out that would touch the one before."""
    axes.set(xscale="log", yscale="log")
    _fine_logs(axes)
    kept = []
    for load in sorted(loads.unique()):
        kept += [load] if not kept or load / kept[-1] > 1.3 else []
    axes.xaxis.set_major_locator(ticker.FixedLocator(kept))


@_listed
def serving_loops(requests):
    """The 99th percentile of TTFT over the output tokens/s that were reached, closed and open loop in one panel per engine."""
    table = _levels(requests, "output_tokens_per_s", "ttft_p99_s")
    if table.empty:
        return None
    styles, blocks = _styles(table, requests), _sweep_blocks(table)
    shown = [
        (" · ".join(word for word in (backend, title) if word), mine) for title, rows in blocks
        for backend, mine in rows.groupby("backend", sort=True) if mine["loop"].nunique() == len(LOOPS)
    ]  # fmt: skip
    if not shown:
        return None
    drawn, axes = _panels(len(shown), 2.8, styles, 1.9, _plain_key(LOOPS, ("closed loop", "open loop")))
    for panel, (title, rows) in zip(axes, shown):
        for key, curve in _curves(rows):
            for loop, look in LOOPS.items():
                _load_curve(panel, curve[curve["loop"] == loop], "output_tokens_per_s", "ttft_p99_s", styles[key], look)
        panel.set(xlabel="output tokens/s", ylabel="TTFT p99, ms", title=title)
        _load_limits(panel, left=1)
        _last_loads(panel, rows, "output_tokens_per_s", "ttft_p99_s")
    why = (
        "In a closed loop a slow server gets fewer requests: the next one waits for an answer. In an open loop they come all the same and queue, "
        "and their wait counts from the moment they were due."
    )
    return _words(drawn, "The same server in two kinds of load", f"{_where(blocks, table)}{why}")


@_styled
def load_levels(requests):
    """One executed run of serving.ipynb: TPOT over output tokens/s, and TTFT over the load, for the notebook that measured it."""
    table = serving_tables.of_runs(requests)
    loops = [loop for loop in LOOPS if (table["loop"] == loop).any()]
    drawn = Figure(figsize=(WIDTH, 6.4), layout="constrained")
    grid = drawn.add_gridspec(2, len(loops))
    upper, style = drawn.add_subplot(grid[0, :]), ("", looks(requests)[requests["backend"].iloc[0]][0], "o")
    for k, loop in enumerate(loops):
        rows, lower = table[table["loop"] == loop].sort_values("load"), drawn.add_subplot(grid[1, k])
        _load_curve(upper, rows, "output_tokens_per_s", "tpot_p50_s", style, LOOPS[loop])
        for q, look in TAILS.items():
            _joined(lower, rows["load"], rows[f"ttft_p{q}_s"] * 1e3, style, **look)
        lower.set(xlabel=LOADS[loop], ylabel="TTFT, ms" if loop == loops[0] else "")
        _load_ticks(lower, rows["load"])
    upper.set(xlabel="output tokens/s", ylabel="TPOT, ms (median)")
    _load_limits(upper, left=1)
    _last_loads(upper, table, "output_tokens_per_s", "tpot_p50_s")
    row, failed = results.named(requests).iloc[0], int((requests["error"] != "").sum())
    caption = f"{_setting(row[tables.SETTING])}. Above: closed loop filled, open loop hollow and dashed. Below: median filled, 99th percentile hollow."
    return _words(drawn, tables.label(row), caption + (f" {failed} requests failed." if failed else ""))


def _roof_label(roof, threads):
    return roof.replace("_", " ") + (f" · {_plural([threads], 'thread')}" if pd.notna(threads) else "")


@_styled
def roofs(roofs):
    """Roofs of a machine (columns roof, threads, value, unit): a bar per roof and number of threads, a panel per unit."""
    best = roofs.groupby(["unit", "roof", "threads"], as_index=False, sort=False, dropna=False)["value"].max()
    blocks = [block.reset_index(drop=True) for _, block in best.groupby("unit", sort=False)]
    drawn, axes = _canvas([len(block) for block in blocks], extra=0.5)
    for panel, block in zip(axes[:, 0], blocks):
        labels = [_roof_label(*row) for row in zip(block["roof"], block["threads"])]
        factor, prefix = next((f, p) for f, p in PREFIXES if block["value"].max() * f >= 1 or f == 1)
        _rows(panel, labels, prefix + block["unit"].iloc[0].replace("bytes", "B"))
        _bars(panel, block.assign(backend=""), "value", {"": (sns.color_palette("colorblind")[0], "")}, factor=factor)
        each = block.reset_index()[["index", "unit", "roof", "threads"]].merge(roofs, on=["unit", "roof", "threads"])
        _small_dots(panel, each["value"] * factor, each["index"] + BAR)
    return _words(drawn, "Measured roofs", "Bar: the best measurement, which no engine can beat; dot: one measurement.")


CLIENT_ERRORS = {
    "ttft_error_ms": "Mean TTFT: error, ms", "ttft_error_connected_ms": "Mean TTFT without the first request of every stream: error, ms",
    "itl_p99_excess_ms": "99th percentile of ITL: above the server's, ms",
}  # fmt: skip


def client_accuracy(requests):
    """Error of the mean TTFT, and excess of the 99th percentile of ITL, over the number of streams: one line per load client, and a published comparison.

    Its observations are no requests: they lie in the folder of the requests (`results.load_accuracy`), or are given instead of them.
    """
    table = requests if "ttft_error_ms" in requests else results.load_accuracy(requests.attrs.get("folder"))
    with style():
        return _client_accuracy(accuracy.here(table))


DRAWN["client_accuracy"] = client_accuracy


def _client_accuracy(table):
    good, greys = table[table["error"] == ""], list(accuracy.published().groupby("client"))
    colours = sns.color_palette("colorblind")
    styles = {name: (_client_label(rows), colours[k % len(colours)], MARKERS[k % len(MARKERS)]) for k, (name, rows) in enumerate(good.groupby("client"))}
    lines = [(rows, ("", GREYS[0], "ox"[k % 2])) for k, (_, rows) in enumerate(greys)] + [(rows, styles[name]) for name, rows in good.groupby("client")]
    shown = [column for column in CLIENT_ERRORS if any(column in rows for rows, _ in lines)]
    greys = [Line2D([], [], color=GREYS[0], marker="ox"[k % 2], label=f"published: {re.sub(r'.*[(]|[)]', '', name)}") for k, (name, _) in enumerate(greys)]
    drawn, panels = _panels(len(shown), 2.5, styles, also=greys)
    clipped = [_errors(panel, column, [line for line in lines if column in line[0]]) for panel, column in zip(panels, shown)]
    panels[-1].set_xlabel("streams, a request at a time each")
    return _words(drawn, "How far load clients are off", " ".join(_client_caption(table, any(clipped))))


def _client_label(rows):
    return " ".join(word for word in (clients.title(rows["client"].iloc[0]), rows["version"].iloc[0]) if word)


def _errors(axes, column, lines):
    """One line per client on log axes; what is zero or negative, and has no place there, stands hollow at the lower edge. True if there is any."""
    values = pd.concat([rows[column] for rows, _ in lines]).dropna()
    above, below = values[values > 0], bool((values <= 0).any())
    low, high = (above.min(), above.max()) if len(above) else (0.001, 1)
    floor = low / (3 if below else 1.3)
    for rows, look in lines:
        rows = rows.sort_values("streams")
        _joined(axes, rows["streams"], rows[column].where(rows[column] > 0), look)
        under = rows[rows[column] <= 0]
        axes.plot(under["streams"], [floor] * len(under), look[2], color=look[1], markerfacecolor="white", markersize=7, zorder=5)
    axes.set(xscale="log", yscale="log", ylim=(floor / 1.5, high * 1.5), title=CLIENT_ERRORS[column])
    _plain_logs(axes)
    return below


def _client_caption(table, clipped):
    """The small print: where and how, what failed, what the marks mean."""
    if table.empty:
        yield "Nothing measured here yet: papermill notebooks/client-accuracy.ipynb out.ipynb."
    else:
        yield f"Measured on {table['gpu'].iloc[0]}, client and server on a core each: what the client reports less what the server did."
    for client, rows in table[table["error"] != ""].groupby("client"):
        yield f"{clients.title(client)} gave no result at {_plural(rows['streams'], 'stream')}."
    if clipped:
        yield "Hollow, at the lower edge: zero or less."
    yield "Published on other hardware, its ITL against the gap that the server was set to."


def export(figure, name, command, folder=None):
    """Write `figure` to <folder>/<name>.svg and .png (default folder: figures/), each whole or not at all; returns both paths.

    The command that redraws it is in the files' metadata; the same data give the same bytes.
    """
    folder = Path(folder or FIGURES)
    folder.mkdir(parents=True, exist_ok=True)
    _save(figure, folder / f"{name}.svg", {"Title": name, "Description": command, "Date": None})
    _save(figure, folder / f"{name}.png", {"Title": name, "Description": command}, dpi=160)
    return folder / f"{name}.svg", folder / f"{name}.png"


def _save(figure, file, metadata, **options):
    """Through a temporary file in the same folder, renamed when complete."""
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=".", suffix=".tmp")
    os.close(handle)
    try:
        figure.savefig(temporary, format=file.suffix[1:], metadata=metadata, **options)
        os.chmod(temporary, 0o644)
        os.replace(temporary, file)
    except BaseException:
        os.unlink(temporary)
        raise
