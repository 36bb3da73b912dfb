"""Figures of the topic roofs."""

import pandas as pd
import seaborn as sns

from bench.report import style


def _roof_label(roof, threads):
    return roof.replace("_", " ") + (f" · {style.plural([threads], 'thread')}" if pd.notna(threads) else "")


@style.styled
def roofs(roofs):
    """Roofs of a machine (columns roof, threads, value, unit): a bar per roof and number of threads, a panel per unit."""
    best = roofs.groupby(["unit", "roof", "threads"], as_index=False, sort=False, dropna=False)["value"].max()
    blocks = [block.reset_index(drop=True) for _, block in best.groupby("unit", sort=False)]
    drawn, axes = style.canvas([len(block) for block in blocks], extra=0.5)
    for panel, block in zip(axes[:, 0], blocks):
        labels = [_roof_label(*row) for row in zip(block["roof"], block["threads"])]
        factor, prefix = next((f, p) for f, p in style.PREFIXES if block["value"].max() * f >= 1 or f == 1)
        style.rows(panel, labels, prefix + block["unit"].iloc[0].replace("bytes", "B"))
        style.bars(
            panel,
            block.assign(backend=""),
            "value",
            {"": (sns.color_palette("colorblind")[0], "")},
            factor=factor,
        )
        each = block.reset_index()[["index", "unit", "roof", "threads"]].merge(
            roofs, on=["unit", "roof", "threads"]
        )
        style.small_dots(panel, each["value"] * factor, each["index"] + style.BAR)
    return style.words(
        drawn, "Measured roofs", "Bar: the best measurement, which no engine can beat; dot: one measurement."
    )
