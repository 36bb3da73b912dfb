"""Figures of the topic serving."""

import pandas as pd
from matplotlib import ticker
from matplotlib.figure import Figure

from bench import html, style
from bench.observations import schema
from bench.report import captions, curves, figures, per_machine
from bench.topics import serving as serving_analysis
from llm_measured.core import columns, naming

# How levels are drawn: a closed loop and a median filled, an open loop and a tail hollow and thin. The dash
# is the option's.
LOOPS = {"closed": {}, "open": curves.HOLLOW}
MEDIAN, TAIL = {}, curves.HOLLOW
# A level that is compared with nothing, for it is overloaded or too short: beside the curve, whatever loop.
UNSTEADY = {"linestyle": "none", "marker": "x"}
LOADS = {"closed": "concurrency (closed loop)", "open": "requests/s (open loop)"}
PUBLISHED_LOADS = "Last panel: another model on other hardware, read off figures (± 0.05 ms)."
MOST_ENGINES = 6  # of the figure of both loops
TTFT, TPOT = columns.column("ttft_s"), columns.column("tpot_s")


def _levels(requests, x, y):
    """The levels of load of the default machine of which both `x` and `y` are known.

    A model on several devices is an option of its own.
    """
    return naming.named(serving_analysis.levels(requests)).dropna(subset=[x, y])


def _where(blocks, table):
    """What ran where, for a caption, where the panels have no titles that state it."""
    return f"{captions.setting(table.iloc[0][schema.SETTING])}. " if len(blocks) == 1 else ""


def _plain_key(table, looks, *words):
    """Line2D without an engine's colour for a legend, one per entry of `looks`, named by `words`; one more
    where `table` has levels in no steady state."""
    entries = list(zip(looks, words))
    if (table["state"] != serving_analysis.STEADY).any():
        entries.append((UNSTEADY, "overloaded or too short"))
    return curves.plain_key(*entries)


def _values(rows, name):
    """The column `name` of `rows` as readers see it; times have one unit, the slowest of n as well."""
    return rows[name] * TTFT.factor if name.endswith("_max_s") else columns.values(rows, name)


def _tail(table):
    """(column, words) of the tail of TTFT: the farthest percentile that the requests of every level in steady
    state bound, else their slowest request."""
    steady = table[table["state"] == serving_analysis.STEADY]
    for q in (99, 90):
        if len(steady) and steady[f"ttft_p{q}_s"].notna().all():
            return f"ttft_p{q}_s", f"{q}th percentile"
    counted = sorted({int(steady["counted"].min()), int(steady["counted"].max())}) if len(steady) else [0]
    return "ttft_max_s", f"slowest of {' to '.join(map(str, counted))} requests"


def _load_curve(axes, rows, x, y, mark, look):
    """One curve of levels, from little load to much; `y` is a time. What is in no steady state stands
    apart."""
    rows = rows.dropna(subset=[x, y]).sort_values("load")
    steady = rows["state"] == serving_analysis.STEADY
    curves.joined(axes, rows.loc[steady, x], _values(rows[steady], y), mark, **look)
    if not steady.all():
        # A faint line from the curve tells whose the crosses are.
        axes.plot(rows[x], _values(rows, y), color=mark.colour, linewidth=0.8, linestyle=":", zorder=1)
        other = rows[~steady]
        axes.plot(other[x], _values(other, y), color=mark.colour, markersize=7, **UNSTEADY)


def _loop_curves(axes, table, x, y, styles):
    """The curves of all engines and options in `table`, one per kind of loop."""
    for key, curve in curves.each(table):
        for loop, look in LOOPS.items():
            _load_curve(axes, curve[curve["loop"] == loop], x, y, styles[key], look)


def _tail_curves(axes, rows, mark, tail):
    """Median and `tail` (a column) of TTFT over the load."""
    for name, look in (("ttft_p50_s", MEDIAN), (tail, TAIL)):
        _load_curve(axes, rows, "load", name, mark, look)


def _last_loads(axes, table, x, y):
    """The load of each curve's last level behind its mark, unless another mark is there.

    To be called after the limits of the axes are set.
    """
    last = table.dropna(subset=[x, y]).sort_values("load")
    last = last.drop_duplicates(["backend", "option", "loop"], keep="last")
    last = last.assign(y=_values(last, y))
    place, taken = axes.transScale + axes.transLimits, []
    for _, row in last.sort_values(x, ascending=False).iterrows():
        at = place.transform((row[x], row["y"]))
        if all(abs(at - other)[0] > 0.09 or abs(at - other)[1] > 0.045 for other in taken):
            word = f"×{row['load']:.0f}" if row["loop"] == "closed" else f"{html.number(row['load'])}/s"
            curves.note(axes, word, (row[x], row["y"]))
        taken.append(at)


def _published_loads(axes, x, y):
    """The published curves of one GPU, in greys, each named at its first level."""
    engines = serving_analysis.published_single().groupby("backend", sort=True)
    for grey, marker, (engine, rows) in zip(curves.GREYS, style.MARKERS, engines):
        rows = rows[rows[y].notna()].sort_values("load")
        rows = rows.assign(y=columns.values(rows, y))
        for loop, look in LOOPS.items():
            curve = rows[(rows["loop"] == loop) & ((loop == "closed") | (x != "load"))]
            mark = curves.Mark("", grey, marker)
            curves.joined(axes, curve[x], curve["y"], mark, **{"markersize": 5, "linewidth": 1.2} | look)
        first = rows[rows["loop"] == "closed"].iloc[0]
        curves.note(axes, engine, (first[x], first["y"]), (-8, 0), ha="right")
    one = rows.iloc[0]
    axes.set_title(f"Published: {one['model']} on one {one['gpu'].split()[0]}, other axes")


def _published_waits(axes):
    """The panel of the published TTFT over the load."""
    _published_loads(axes, "load", "ttft_p50_s")
    axes.set_xlabel(LOADS["closed"])
    loads = serving_analysis.published_single().query("loop == 'closed'")["load"]
    _load_ticks(axes, loads)
    axes.set_xlim(loads.min() / 6, loads.max() * 1.25)


def _load_limits(axes, left=1):
    """Two log axes with space for words beside the last mark, and `left` times as much before the first."""
    curves.fine_logs(axes)
    low, high = axes.get_xlim()
    axes.set_xlim(low / left, high * 1.25)
    curves.fine_logs(axes)


def _load_ticks(axes, loads):
    """Two log axes; along x the loads themselves, without those that would touch the one before."""
    curves.fine_logs(axes)
    kept = []
    for load in sorted(loads.unique()):
        kept += [load] if not kept or load / kept[-1] > 1.3 else []
    axes.xaxis.set_major_locator(ticker.FixedLocator(kept))


@figures.of_machines
def serving_frontier(requests: pd.DataFrame) -> Figure | None:
    """TPOT over output tokens/s per device: a mark per level of load, a line per engine and option; below,
    three published engines on H100."""
    x, y = "per_device", "tpot_p50_s"
    table = _levels(requests, x, y)
    if table.empty:
        return None
    styles, blocks = curves.styles(table), curves.sweep_blocks(table)
    key = _plain_key(table, LOOPS.values(), "closed loop", "open loop")
    above = per_machine.part().first  # of several machines the published curves stand with the first
    drawn, axes = curves.panels(len(blocks) + above, 3.5, styles, 1.5, key)
    for panel, (title, rows) in zip(axes, blocks):
        _loop_curves(panel, rows, x, y, styles)
        panel.set_title(title)
        _load_limits(panel)
        _last_loads(panel, rows, x, y)
        # The name of each curve of closed loops below its first level, where no line has begun yet.
        first = rows[(rows["loop"] == "closed") & (rows["state"] == serving_analysis.STEADY)]
        first = first.dropna(subset=[x, y]).sort_values("load").drop_duplicates(["backend", "option"])
        low, high = panel.get_ylim()
        panel.set_ylim(low / (high / low) ** 0.08, high)
        for (_, row), value in zip(first.iterrows(), _values(first, y)):
            look = {"ha": "center", "va": "top", "color": style.INK, "zorder": 6}
            curves.note(panel, naming.label(row), (row[x], value), (0, -6), **look)
    if above:
        _published_loads(axes[-1], x, y)
        _load_limits(axes[-1], left=4)
    for panel in axes:
        panel.set(xlabel=columns.column(x).axis, ylabel=f"{TPOT.axis} (median)")
    marks = "A mark per level of load; the last one's is written beside it. Down and to the right is better."
    caption = f"{_where(blocks, table)}{marks} {PUBLISHED_LOADS if above else ''}".strip()
    return captions.titled(drawn, "Servers: pace against throughput", caption)


@figures.of_machines
def serving_ttft(requests: pd.DataFrame) -> Figure | None:
    """Median and tail of TTFT over the load: a panel per kind of load, a line per engine and
    option; below, the published TTFT of three engines on H100."""
    table = _levels(requests, "load", "ttft_p50_s")
    if table.empty:
        return None
    styles, blocks = curves.styles(table), curves.sweep_blocks(table)
    loops = [(title, rows[rows["loop"] == loop], loop) for title, rows in blocks for loop in LOADS]
    loops = [(title, rows, loop) for title, rows, loop in loops if len(rows)]
    tail, words = _tail(table)
    key = _plain_key(table, (MEDIAN, TAIL), "median", words)
    above = per_machine.part().first
    drawn, axes = curves.panels(len(loops) + above, 3.0, styles, 1.5, key)
    for panel, (title, rows, loop) in zip(axes, loops):
        for option, curve in curves.each(rows):
            _tail_curves(panel, curve, styles[option], tail)
        panel.set(xlabel=LOADS[loop], title=title)
        _load_ticks(panel, rows["load"])
    if above:
        _published_waits(axes[-1])
    for panel in axes:
        panel.set_ylabel(TTFT.axis)
    caption = f"{_where(blocks, table)}{PUBLISHED_LOADS if above else ''}".strip()
    return captions.titled(drawn, "Servers: the wait for the first token", caption)


@figures.of_machines
def serving_loops(requests: pd.DataFrame) -> Figure | None:
    """The tail of TTFT over the output tokens/s that were reached: closed and open loop in one panel per
    engine."""
    x, table = "output_tokens_per_s", _levels(requests, "output_tokens_per_s", "ttft_p50_s")
    y, words = _tail(table)
    if table.empty:
        return None
    styles, blocks = curves.styles(table), curves.sweep_blocks(table)
    engines = [
        (" · ".join(word for word in (backend, title) if word), curve)
        for title, rows in blocks
        for backend, curve in rows.groupby("backend", sort=True)
    ]
    engines = [(title, rows) for title, rows in engines if rows["loop"].nunique() == len(LOOPS)]
    engines = sorted(engines, key=lambda engine: -len(engine[1]))[:MOST_ENGINES]
    if not engines:
        return None
    key = _plain_key(table, LOOPS.values(), "closed loop", "open loop")
    drawn, axes = curves.panels(len(engines), 3.2, styles, 1.9, key)
    for panel, (title, rows) in zip(axes, engines):
        _loop_curves(panel, rows, x, y, styles)
        panel.set(xlabel=columns.column(x).axis, ylabel=TTFT.axis, title=f"{title}: {words}")
        _load_limits(panel)
        _last_loads(panel, rows, x, y)
    why = (
        "In a closed loop a slow server gets fewer requests: the next one waits for an answer. In an open "
        "loop they come all the same and queue, and their wait counts from the moment they were due."
    )
    return captions.titled(drawn, "The same server in two kinds of load", f"{_where(blocks, table)}{why}")


@style.styled
def load_levels(requests: pd.DataFrame) -> Figure | None:
    """One executed run of serving.ipynb, for the notebook that measured it: TPOT over output tokens/s, and
    TTFT over the load."""
    table = serving_analysis.of_runs(requests)
    tail, words = _tail(table)
    loops = [loop for loop in LOOPS if (table["loop"] == loop).any()]
    drawn = style.Figure(figsize=(style.WIDTH, 6.4), layout="constrained")
    grid = drawn.add_gridspec(2, len(loops))
    upper, mark = drawn.add_subplot(grid[0, :]), curves.Mark("", style.colour(requests), "o")
    for k, loop in enumerate(loops):
        rows, lower = table[table["loop"] == loop].sort_values("load"), drawn.add_subplot(grid[1, k])
        _load_curve(upper, rows, "output_tokens_per_s", "tpot_p50_s", mark, LOOPS[loop])
        _tail_curves(lower, rows, mark, tail)
        lower.set(xlabel=LOADS[loop], ylabel=TTFT.axis if loop == loops[0] else "")
        _load_ticks(lower, rows["load"])
    upper.set(xlabel=columns.column("output_tokens_per_s").axis, ylabel=f"{TPOT.axis} (median)")
    _load_limits(upper)
    _last_loads(upper, table, "output_tokens_per_s", "tpot_p50_s")
    row, failed = naming.named(requests).iloc[0], int((requests["error"] != "").sum())
    marks = "Above: closed loop filled, open loop hollow. "
    marks += f"Below: median filled, {words} hollow. Crosses: overloaded or too short."
    caption = f"{captions.setting(row[schema.SETTING])}. {marks}"
    caption += f" {failed} requests failed." if failed else ""
    return captions.titled(drawn, naming.label(row), caption)
