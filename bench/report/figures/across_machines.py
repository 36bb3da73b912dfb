"""Figures of the topic across machines."""

from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.transforms import blended_transform_factory

from bench import style
from bench.report import bars, captions, figures
from bench.style import GREY, INK, WIDTH
from bench.topics import across_machines as across_analysis
from llm_measured.core import columns

# Inches: a row, all else, and of that the legend up to three lines. 20 rows fit a screen.
ROW, REST, KEY, MOST_ROWS = 0.235, 2.1, 0.66, 20
COLUMNS = 3  # of the legend
MACHINES = "o", "s", "^", "v", "P", "X", "<", ">"


@figures.listed
def across_machines(requests: pd.DataFrame) -> Figure | None:
    """Output tokens/s of engines and options over those of the leading one of all machines: a row per engine
    and option, a mark per machine that has both, and a diamond for the mean of the processor types.

    Its height is that of its rows, however many machines there are; of more than MOST_ROWS those are drawn
    that most machines have.
    """
    table = across_analysis.against_leader(requests)
    if table.empty:
        return None
    shown = table.sort_values("machines", ascending=False, kind="stable").head(MOST_ROWS)
    shown = shown.sort_values("ratio", ascending=False, ignore_index=True)
    each = across_analysis.each_against_leader(requests)
    each = each.merge(shown[across_analysis.KEYS].assign(row=shown.index), on=across_analysis.KEYS)
    styles = _styles(each)
    lines = -(-(len(styles) + len(_MEANINGS)) // COLUMNS)
    key = KEY * lines / max(lines, 3)
    layout = ConstrainedLayoutEngine(h_pad=0.05, w_pad=0.06)
    drawn = style.Figure(figsize=(WIDTH, ROW * len(shown) + REST), layout=layout)
    heights = [ROW * len(shown) + 0.3, key]
    panel, legend = drawn.subplots(2, 1, gridspec_kw={"height_ratios": heights})
    _rows(panel, shown, each, styles)
    handles = [Line2D([], [], label=name, **look) for name, look in (styles | _MEANINGS).items()]
    size = 10 * min(1, 3 / lines)
    # From the figure's left edge, and left out of the layout: the panel would make way for it.
    place = blended_transform_factory(drawn.transFigure, legend.transAxes)
    legend.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(0.01, 1), bbox_transform=place, ncols=COLUMNS,
        frameon=False, borderpad=0, borderaxespad=0, columnspacing=1.0, handletextpad=0.2, fontsize=size,
        labelspacing=0.25,
    ).set_in_layout(False)  # fmt: skip
    legend.axis("off")
    return captions.titled(drawn, "What holds on every machine", _caption(requests, table, shown))


# The legend's entry that is no machine.
_MEANINGS: dict[str, dict[str, Any]] = {
    "mean of processor types": {"marker": "D", "color": INK, "markersize": 7, "linestyle": ""},
}


def _styles(each: pd.DataFrame) -> dict[str, dict]:
    """{label of a machine: what its marks look like}."""
    names = sorted(set(each["machine"]))
    colours = sns.color_palette("colorblind", len(names))
    return {
        name: {
            "marker": MACHINES[k % len(MACHINES)], "color": colours[k], "markersize": 5, "linestyle": "",
            "markeredgewidth": 1,
        }
        for k, name in enumerate(names)
    }  # fmt: skip


def _rows(axes: Axes, shown: pd.DataFrame, each: pd.DataFrame, styles: dict[str, dict[str, Any]]) -> None:
    """The rows `shown`, with the marks of `each` machine beside one another and the pooled ratio on top."""
    bars.rows(axes, [f"{row['backend']} {row['option']}" for _, row in shown.iterrows()])
    _limits(axes, shown, each)
    axes.axvline(1, color=GREY, linewidth=1, zorder=1)
    step = min(0.14, 0.5 / len(styles))
    for k, (machine, look) in enumerate(styles.items()):
        own = each[each["machine"] == machine]
        offset = (k - (len(styles) - 1) / 2) * step
        axes.hlines(
            own["row"] + offset, own["low"], own["high"], color=look["color"], linewidth=0.8, alpha=0.6
        )
        axes.plot(own["ratio"], own["row"] + offset, label=machine, zorder=3, **look)
    axes.hlines(shown.index, shown["low"], shown["high"], color=INK, linewidth=2.4, zorder=4)
    (look,) = _MEANINGS.values()
    axes.plot(shown["ratio"], shown.index, label="mean of processor types", zorder=5, **look)


def _limits(axes: Axes, shown: pd.DataFrame, each: pd.DataFrame) -> None:
    """A log axis as wide as the ratios and the pooled intervals."""
    known = np.concatenate([each["ratio"], shown["ratio"], shown["low"], shown["high"], [1.0]]).astype(float)
    known = known[np.isfinite(known)]
    axes.set(xscale="log", xlim=(known.min() / 1.15, known.max() * 1.15), yticks=[])
    axes.set_ylim(len(shown) - 0.45, -0.6)
    leader = " ".join(shown.iloc[0][across_analysis.THAN[:2]])
    rate = columns.column(across_analysis.RATE)
    axes.set_xlabel(f"{rate.title}, times {leader} (log)", fontsize=10)
    wide = known.max() / known.min() > 8
    bars.log_ticks(axes.xaxis, (1, 2, 5) if wide else (1, 1.5, 2, 3, 5, 7))


def _caption(requests: pd.DataFrame, table: pd.DataFrame, shown: pd.DataFrame) -> str:
    """What ran, and what the marks are."""
    run = across_analysis.compared(requests).iloc[0]
    left = len(table) - len(shown)
    rest = f" {left} more in the table." if left else ""
    interval = "95\N{NO-BREAK SPACE}% interval"
    return (
        f"{run['model']} ({run['weights']} weights), one request at a time, engines of the same version. "
        f"Small mark with line: one machine and its {interval}. Diamond: mean of the processor types, thick "
        f"line: its {interval}, where {across_analysis.FEWEST_PROCESSORS} types or more have both.{rest}"
    )
