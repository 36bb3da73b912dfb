"""Figures of the topic energy."""

import pandas as pd
from matplotlib.figure import Figure

from bench import columns, html, naming
from bench.analysis import energy as energy_analysis
from bench.observations import schema
from bench.report import captions, curves, figures

RATE = columns.column("output_tokens_per_s")
LOOPS = {"": {}, "closed": {"linestyle": "-"}, "open": {"linestyle": "--", "markerfacecolor": "white"}}


@figures.of_machines
def energy(requests: pd.DataFrame) -> Figure | None:
    """Joules per output token over output tokens/s: a line per engine and option, a mark per batch size or
    level of load; a panel per kind of run; only where energy could be read."""
    table = energy_analysis.points(requests)
    if table.empty:
        return None
    styles = curves.styles(table, requests)
    one_setting = len(table[schema.SETTING].drop_duplicates()) == 1
    table = table.assign(place=table["kind"].map(list(energy_analysis.KINDS).index))
    blocks = list(table.groupby([*schema.SETTING, "place", "kind"], sort=True))
    drawn, axes = curves.panels(len(blocks), 3.4, styles)
    for panel, ((*setting, _, kind), rows) in zip(axes, blocks):
        for key, curve in curves.each(rows):
            for loop, each in curve.groupby("loop"):
                _curve(panel, each.sort_values("load"), styles[key], loop)
        what = energy_analysis.KINDS[kind].capitalize()
        title = what if one_setting else f"{what}, {captions.setting(setting)}"
        panel.set(xlabel=RATE.axis, ylabel="joules per output token", title=title)
        curves.fine_logs(panel)
    return captions.titled(drawn, "What a token costs in energy", _caption(table))


def _curve(axes, rows, mark, loop):
    """One line from little load to much, the last load named."""
    curves.joined(axes, rows["output_tokens_per_s"], rows["joules_per_token"], mark, **LOOPS[loop])
    last = rows.iloc[-1]
    if len(rows) > 1:
        word = f"{html.number(last['load'])}/s" if loop == "open" else f"×{last['load']:.0f}"
        curves.note(axes, word, (last["output_tokens_per_s"], last["joules_per_token"]), (0, 6), ha="center")


def _caption(table):
    """What was counted, and what the idle machine took apart from it."""
    one = table.iloc[0]
    what = "CPU's packages" if naming.is_cpu(one["gpu"]) else "GPUs"
    idle = table["idle_w"].dropna()
    apart = f" Idle, with an engine loaded: {html.number(idle.median())} W, included." if len(idle) else ""
    return (
        f"{captions.setting(one[schema.SETTING])}: energy of the {what} alone, over at least ten seconds; "
        f"means over runs.{apart} Dashed: open loop."
    )
