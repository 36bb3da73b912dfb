"""Two pictures that pages draw: bars of a table's rows, and curves through them.

    plots.bars(rows, "output_tokens_per_s", title="Output speed")         a bar per row, its label before it
    plots.curve(rows, "concurrency", "output_tokens_per_s", title="…")    a line per engine and option

Both take rows of a table as they stand in data/tables/ and return a Matplotlib figure. A column
`<name>_interval`
(half the width of a 95 % interval) is drawn as a whisker, `<name>_runs` (values of single runs) as dots.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bench import style
from bench.report import bars as parts
from bench.report import curves
from llm_measured.core import columns

MOST_ROWS = 18  # of one figure: what a screen shows; the table has the others


def bars(
    rows: pd.DataFrame,
    *names: str,
    title: str,
    caption: str = "",
    note: str = "",
    warn: str = "",
    label: Sequence[str] = (),
) -> Figure:
    """Draw the columns `names` of `rows`, a panel each and a bar per row, in the order of the rows.

    `note` names a column of words that stand at the right of the last panel, in red where the column `warn`
    is true;
    `label` replaces engine and option before the bars.
    """
    with style.style():
        rows = rows.head(MOST_ROWS).reset_index(drop=True)
        if rows.empty:
            return style.nothing()
        drawn, panels = parts.canvas([len(rows)], columns=len(names), squeeze=False, sharey=True)
        look = style.looks(rows)
        for place, (panel, name) in enumerate(zip(panels[0], names)):
            column = columns.column(name)
            words = list(label) or parts.configurations(rows)
            parts.rows(panel, words if place == 0 else [""] * len(rows), column.axis)
            spread, reach = rows.get(f"{name}_interval"), 0.0
            runs = rows.get(f"{name}_runs")
            if runs is not None:
                reach = np.array([max(map(float, text.split()), default=0) for text in runs]) * column.factor
            if f"{name}_low" in rows:
                reach = rows[f"{name}_high"].to_numpy(dtype=float) * column.factor
            parts.draw(panel, rows, name, look, factor=column.factor, spread=spread, reach=reach)
            if f"{name}_low" in rows:
                _whiskers(panel, rows, name, column.factor)
            if runs is not None:
                for y, text in enumerate(runs):
                    values = pd.Series([float(word) * column.factor for word in text.split()])
                    parts.small_dots(panel, values, pd.Series(float(y), values.index))
        if note:
            _notes(panels[0][-1], rows[note], rows[warn] if warn else None)
        return style.titled(drawn, title, caption)


def _whiskers(panel, rows, name, factor):
    """Draw the 95 % interval from <name>_low to <name>_high over the bar of each row."""
    values = rows[name] * factor
    beside = [values - rows[f"{name}_low"] * factor, rows[f"{name}_high"] * factor - values]
    look = {"fmt": "none", "ecolor": style.INK, "capsize": 2, "elinewidth": 1, "zorder": 4}
    panel.errorbar(values, values.index, xerr=beside, **look)


def _notes(panel, words, warn):
    """Write `words` at the right edge of the rows of `panel`, in red where `warn` is true."""
    panel.set_xlim(0, panel.get_xlim()[1] * 1.75)
    for y, text in enumerate(words):
        bad = warn is not None and str(warn.iloc[y]) == "True"
        where = panel.get_yaxis_transform()
        colour = style.WORSE if bad else style.GREY
        panel.text(1, y, text, color=colour, transform=where, ha="right", va="center_baseline", fontsize=8)


def curve(rows: pd.DataFrame, x: str, y: str, title: str, caption: str = "", log: bool = False) -> Figure:
    """Draw column `y` over `x` of `rows`, a line per engine and option, in the units that readers see."""
    with style.style():
        rows = rows[rows[x].notna() & rows[y].notna()]
        if rows.empty:
            return style.nothing()
        marks = curves.styles(rows)
        drawn, (panel,) = curves.panels(1, 3.4, marks)
        for key, own in curves.each(rows):
            own = own.sort_values(x)
            curves.joined(panel, columns.values(own, x), columns.values(own, y), marks[key])
        panel.set(xlabel=columns.column(x).axis, ylabel=columns.column(y).axis)
        if log:
            curves.fine_logs(panel)
        else:
            panel.set(xlim=(0, None), ylim=(0, None))
        return style.titled(drawn, title, caption)
