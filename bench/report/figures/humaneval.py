"""Figures of the topic HumanEval."""

import pandas as pd
from matplotlib.figure import Figure

from bench import style
from bench.report import bars, captions, figures
from bench.report.words import plural
from bench.topics import humaneval as humaneval_analysis
from bench.topics import sizes

PERCENT = 100


@figures.of_machines
def humaneval(requests: pd.DataFrame) -> Figure | None:
    """Solved problems of HumanEval, pass@1 in per cent, of the largest model that was scored: one mark per
    engine and option, with Wilson's 95 % interval, and a line at the published score of the unquantised
    weights."""
    table = humaneval_analysis.on_default_machine(requests)
    table = table[table["solved"].notna()]
    if table.empty:
        return None
    models = sorted(table["model"].unique(), key=lambda name: (sizes.parameters_b(name), name))
    table = table[table["model"] == models[-1]].head(bars.most_rows()).reset_index(drop=True)
    drawn, panel = bars.canvas([len(table)])
    look = style.looks(requests)
    bars.rows(panel, bars.configurations(table), "pass@1, %")
    for y, row in table.iterrows():
        colour = look[row["backend"]][0]
        panel.hlines(y, row["low"] * PERCENT, row["high"] * PERCENT, color=colour, linewidth=1.6)
        panel.scatter(row["pass_at_1"] * PERCENT, y, s=40, color=colour, zorder=4)
    for share in table["published"].dropna().unique():
        panel.axvline(share * PERCENT, color=style.GREY, linewidth=1.2, linestyle="--", zorder=1)
    bars.ticks(panel.xaxis, 5)
    words = (
        f"Of {humaneval_analysis.PROBLEMS} problems, one greedy answer each, with Wilson's "
        "95\N{NO-BREAK SPACE}% interval. All weights start from the official 4-bit file. Dashed: published "
        "for the bfloat16 weights."
    )
    others = f"; {plural(len(models) - 1, 'more model')} in the table" if len(models) > 1 else ""
    return captions.titled(drawn, f"Solved problems: {models[-1]}{others}", words)
