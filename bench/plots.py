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

from bench import FIGURES, backends, results, tables

DRAWN = {}
WIDTH = 5.8  # inches; what is 11 points here is still 9 on a phone
ROW = 0.46  # inches per row: its label and its bar
LABEL, BAR, THICK = -0.22, 0.17, 0.36  # where in a row its label and its bar stand, and how thick the bar is
INK, GREY, FAINT = "0.15", "0.45", "0.72"
BESIDE = {"textcoords": "offset points", "va": "center_baseline"}
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
    """Backend -> (colour, hatch), by its place in the sorted list of all backends; after ten colours the hatch changes."""
    every = sorted({*backends.names(), *requests["backend"]})
    colours = sns.color_palette("colorblind")
    return {name: (colours[i % len(colours)], HATCHES[i // len(colours) % len(HATCHES)]) for i, name in enumerate(every)}


def _canvas(rows, columns=1, extra=1.3, **shared):
    """Figure with one panel row per entry of `rows` (numbers of bars), each as tall as its bars need; axes as a 2-D array."""
    drawn = Figure(figsize=(WIDTH, ROW * sum(rows) + 0.75 * len(rows) + extra), layout="constrained")
    drawn.get_layout_engine().set(h_pad=0.06, w_pad=0.08)
    return drawn, drawn.subplots(len(rows), columns, squeeze=False, gridspec_kw={"height_ratios": [n + 0.4 for n in rows]}, **shared)


def _words(drawn, title, caption):
    """Title on top and the small print below, both from the left edge."""
    drawn.suptitle(title, x=0.01, ha="left")
    drawn.supxlabel("\n".join(textwrap.wrap(caption, 78)), x=0.01, ha="left", fontsize=10, color=GREY, linespacing=1.35)
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
    chosen = tables.here(requests, experiment)
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
    return _words(drawn, "What measuring costs", _caption(tables.here(requests, "overhead"), marks))


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
    row, failed = requests.iloc[0], int((requests["error"] != "").sum())
    caption = f"{_setting(row[tables.SETTING])}. Line: median." + (f" {failed} failed." if failed else "")
    return _words(drawn, tables.label(row), caption)


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
