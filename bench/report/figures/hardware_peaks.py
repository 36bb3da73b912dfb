"""Figures of what a machine can do at most: memory bandwidth and matrix multiplications."""

import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from bench import style
from bench.report import bars, captions

PREFIXES = (1e-12, "T"), (1e-9, "G"), (1e-6, "M"), (1, "")


def _label(peak, threads):
    return peak.replace("_", " ") + (
        f" · {captions.plural([threads], 'thread')}" if pd.notna(threads) else ""
    )


@style.styled
def peaks(measured: pd.DataFrame) -> Figure:
    """Peaks of a machine (columns roof, threads, value, unit): a bar per peak and number of threads, a panel
    per unit, a dot per measurement."""
    keys = ["unit", "roof", "threads"]
    best = measured.groupby(keys, as_index=False, sort=False, dropna=False)["value"].max()
    blocks = [block.reset_index(drop=True) for _, block in best.groupby("unit", sort=False)]
    drawn, axes = bars.canvas([len(block) for block in blocks], squeeze=False)
    blue = {"": (sns.color_palette("colorblind")[0], "")}
    for panel, block in zip(axes[:, 0], blocks):
        labels = [_label(*row) for row in zip(block["roof"], block["threads"])]
        factor, prefix = next((f, p) for f, p in PREFIXES if block["value"].max() * f >= 1 or f == 1)
        bars.rows(panel, labels, prefix + block["unit"].iloc[0].replace("bytes", "B"))
        bars.draw(panel, block.assign(backend=""), "value", blue, factor=factor)
        each = block.reset_index()[["index", *keys]].merge(measured, on=keys)
        bars.small_dots(panel, each["value"] * factor, each["index"])
    caption = "Bar: the best measurement, which no engine can beat; dot: one measurement."
    return captions.titled(drawn, "Measured peaks", caption)
