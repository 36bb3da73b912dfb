"""Figures of the topic serving."""

from matplotlib import ticker
from matplotlib.lines import Line2D

from bench import naming
from bench.analysis import serving as serving_analysis
from bench.observations import schema
from bench.report import curves, figures, html
from bench.report import style as style_report

# How a curve of levels is drawn: a closed loop filled, an open loop hollow and dashed; a tail hollow and dotted.
LOOPS = {"closed": {"linestyle": "-"}, "open": {"linestyle": "--", "markerfacecolor": "white"}}
TAILS = {50: {"linestyle": "-"}, 99: {"linestyle": ":", "markerfacecolor": "white"}}
LOADS = {"closed": "requests at once (closed loop)", "open": "requests/s (open loop)"}
PUBLISHED_LOADS = "Last panel: another model on other hardware, read off figures (± 0.05 ms)."


def _levels(requests, x, y):
    """The levels of load of the machine in focus of which both `x` and `y` are known; a model on several devices is an option of its own."""
    return naming.named(serving_analysis.levels(requests)).dropna(subset=[x, y])


def _where(blocks, table):
    """What ran where, for a caption, where the panels have no titles that say it."""
    return f"{style_report.setting(table.iloc[0][schema.SETTING])}. " if len(blocks) == 1 else ""


def _plain_key(looks, words):
    """Line2D without an engine's colour for a legend, one per entry of `looks`, named by `words`."""
    return [
        Line2D([], [], color=style_report.INK, marker="o", markersize=6, label=word, **look)
        for look, word in zip(looks.values(), words)
    ]


def _load_curve(axes, rows, x, y, style, look):
    """One curve of levels, from little load to much; y in ms."""
    rows = rows.dropna(subset=[x, y]).sort_values("load")
    curves.joined(axes, rows[x], rows[y] * 1e3, style, **look)


def _last_loads(axes, table, x, y):
    """The load of the last level of each curve behind its mark, unless another mark is there. After the limits are set."""
    last = (
        table.dropna(subset=[x, y])
        .sort_values("load")
        .drop_duplicates(["backend", "option", "loop"], keep="last")
    )
    place, taken = axes.transScale + axes.transLimits, []
    for _, row in last.sort_values(x, ascending=False).iterrows():
        at = place.transform((row[x], row[y] * 1e3))
        if all(abs(at - other)[0] > 0.09 or abs(at - other)[1] > 0.045 for other in taken):
            word = f"×{row['load']:.0f}" if row["loop"] == "closed" else f"{html.number(row['load'])}/s"
            axes.annotate(
                word,
                (row[x], row[y] * 1e3),
                (6, 0),
                **style_report.BESIDE,
                fontsize=9,
                color=style_report.GREY,
            )
        taken.append(at)


def _published_loads(axes, x, y):
    """The published curves of one GPU, in greys, each named at its first level."""
    for grey, marker, (engine, rows) in zip(
        curves.GREYS, curves.MARKERS, serving_analysis.published_single().groupby("backend", sort=True)
    ):
        for loop, look in LOOPS.items():
            curve = rows[
                (rows["loop"] == loop) & rows[y].notna() & ((loop == "closed") | (x != "load"))
            ].sort_values("load")
            axes.plot(
                curve[x], curve[y] * 1e3, color=grey, marker=marker, markersize=5, linewidth=1.2, **look
            )
        first = rows[(rows["loop"] == "closed") & rows[y].notna()].sort_values("load").iloc[0]
        axes.annotate(
            engine,
            (first[x], first[y] * 1e3),
            (-8, 0),
            **style_report.BESIDE,
            ha="right",
            fontsize=9,
            color=style_report.GREY,
        )
    one = rows.iloc[0]
    axes.set_title(f"Published: {one['model']} on one {one['gpu'].split()[0]}, other axes")


def _load_limits(axes, left=1.3, right=1.25):
    """Two log axes with room for the words beside the first (`left`) and the last mark (`right`): factors on the limits along x."""
    axes.set(xscale="log", yscale="log")
    low, high = axes.get_xlim()
    axes.set_xlim(low / left, high * right)
    curves.fine_logs(axes)


@figures.listed
def serving_frontier(requests):
    """TPOT over output tokens/s per device for every level of load, one line per engine and option; below, three published engines on H100."""
    table = _levels(requests, "per_device", "tpot_p50_s")
    if table.empty:
        return None
    styles, blocks = curves.styles(table, requests), curves.sweep_blocks(table)
    drawn, axes = curves.panels(
        len(blocks) + 1, 3.5, styles, 1.5, _plain_key(LOOPS, ("closed loop", "open loop"))
    )
    for panel, (title, rows) in zip(axes, blocks):
        for key, curve in curves.curves(rows):
            for loop, look in LOOPS.items():
                _load_curve(
                    panel, curve[curve["loop"] == loop], "per_device", "tpot_p50_s", styles[key], look
                )
        panel.set_title(title)
        _load_limits(panel, left=1)
        _last_loads(panel, rows, "per_device", "tpot_p50_s")
    _published_loads(axes[-1], "per_device", "tpot_p50_s")
    _load_limits(axes[-1], left=4)
    for panel in axes:
        panel.set(xlabel="output tokens/s per device", ylabel="TPOT, ms (median)")
    marks = f"A mark per level of load; the last one's is written beside it. Down and to the right is better. {PUBLISHED_LOADS}"
    return style_report.words(drawn, "Servers: pace against throughput", f"{_where(blocks, table)}{marks}")


@figures.listed
def serving_ttft(requests):
    """Median and 99th percentile of TTFT over the load, concurrency and request rate apart, one line per engine and option; below, the published
    TTFT of three engines on H100."""
    table = _levels(requests, "load", "ttft_p50_s")
    if table.empty:
        return None
    styles, blocks = curves.styles(table, requests), curves.sweep_blocks(table)
    shown = [
        (title, rows[rows["loop"] == loop], loop)
        for title, rows in blocks
        for loop in LOADS
        if (rows["loop"] == loop).any()
    ]
    drawn, axes = curves.panels(
        len(shown) + 1, 3.0, styles, 1.5, _plain_key(TAILS, ("median", "99th percentile"))
    )
    for panel, (title, rows, loop) in zip(axes, shown):
        for key, curve in curves.curves(rows):
            for q, look in TAILS.items():
                curves.joined(
                    panel,
                    curve.sort_values("load")["load"],
                    curve.sort_values("load")[f"ttft_p{q}_s"] * 1e3,
                    styles[key],
                    **look,
                )
        panel.set(xlabel=LOADS[loop], title=title)
        _load_ticks(panel, rows["load"])
    _published_loads(axes[-1], "load", "ttft_p50_s")
    axes[-1].set_xlabel(LOADS["closed"])
    loads = serving_analysis.published_single().query("loop == 'closed'")["load"]
    _load_ticks(axes[-1], loads)
    axes[-1].set_xlim(loads.min() / 6, loads.max() * 1.25)
    for panel in axes:
        panel.set_ylabel("TTFT, ms")
    return style_report.words(
        drawn, "Servers: the wait for the first token", f"{_where(blocks, table)}{PUBLISHED_LOADS}"
    )


def _load_ticks(axes, loads):
    """Two log axes; along x the loads themselves, those left out that would touch the one before."""
    axes.set(xscale="log", yscale="log")
    curves.fine_logs(axes)
    kept = []
    for load in sorted(loads.unique()):
        kept += [load] if not kept or load / kept[-1] > 1.3 else []
    axes.xaxis.set_major_locator(ticker.FixedLocator(kept))


@figures.listed
def serving_loops(requests):
    """The 99th percentile of TTFT over the output tokens/s that were reached, closed and open loop in one panel per engine."""
    table = _levels(requests, "output_tokens_per_s", "ttft_p99_s")
    if table.empty:
        return None
    styles, blocks = curves.styles(table, requests), curves.sweep_blocks(table)
    shown = [
        (" · ".join(word for word in (backend, title) if word), mine) for title, rows in blocks
        for backend, mine in rows.groupby("backend", sort=True) if mine["loop"].nunique() == len(LOOPS)
    ]  # fmt: skip
    if not shown:
        return None
    drawn, axes = curves.panels(len(shown), 2.8, styles, 1.9, _plain_key(LOOPS, ("closed loop", "open loop")))
    for panel, (title, rows) in zip(axes, shown):
        for key, curve in curves.curves(rows):
            for loop, look in LOOPS.items():
                _load_curve(
                    panel,
                    curve[curve["loop"] == loop],
                    "output_tokens_per_s",
                    "ttft_p99_s",
                    styles[key],
                    look,
                )
        panel.set(xlabel="output tokens/s", ylabel="TTFT p99, ms", title=title)
        _load_limits(panel, left=1)
        _last_loads(panel, rows, "output_tokens_per_s", "ttft_p99_s")
    why = (
        "In a closed loop a slow server gets fewer requests: the next one waits for an answer. In an open loop they come all the same and queue, "
        "and their wait counts from the moment they were due."
    )
    return style_report.words(drawn, "The same server in two kinds of load", f"{_where(blocks, table)}{why}")


@style_report.styled
def load_levels(requests):
    """One executed run of serving.ipynb: TPOT over output tokens/s, and TTFT over the load, for the notebook that measured it."""
    table = serving_analysis.of_runs(requests)
    loops = [loop for loop in LOOPS if (table["loop"] == loop).any()]
    drawn = style_report.Figure(figsize=(style_report.WIDTH, 6.4), layout="constrained")
    grid = drawn.add_gridspec(2, len(loops))
    upper, style = (
        drawn.add_subplot(grid[0, :]),
        ("", style_report.looks(requests)[requests["backend"].iloc[0]][0], "o"),
    )
    for k, loop in enumerate(loops):
        rows, lower = table[table["loop"] == loop].sort_values("load"), drawn.add_subplot(grid[1, k])
        _load_curve(upper, rows, "output_tokens_per_s", "tpot_p50_s", style, LOOPS[loop])
        for q, look in TAILS.items():
            curves.joined(lower, rows["load"], rows[f"ttft_p{q}_s"] * 1e3, style, **look)
        lower.set(xlabel=LOADS[loop], ylabel="TTFT, ms" if loop == loops[0] else "")
        _load_ticks(lower, rows["load"])
    upper.set(xlabel="output tokens/s", ylabel="TPOT, ms (median)")
    _load_limits(upper, left=1)
    _last_loads(upper, table, "output_tokens_per_s", "tpot_p50_s")
    row, failed = naming.named(requests).iloc[0], int((requests["error"] != "").sum())
    caption = f"{style_report.setting(row[schema.SETTING])}. Above: closed loop filled, open loop hollow and dashed. Below: median filled, 99th percentile hollow."
    return style_report.words(
        drawn, naming.label(row), caption + (f" {failed} requests failed." if failed else "")
    )
