"""Figures of the topic published."""

import re
import textwrap

import pandas as pd
from matplotlib.figure import Figure

from bench import inputs, style
from bench.report import bars, captions, figures, per_machine
from bench.topics import latency as latency_analysis


@figures.of_machines
def published(requests: pd.DataFrame) -> Figure | None:
    """The published table (grey) above our own bars: a bar per row, each panel on its own axis, because model
    and hardware differ."""
    if not (requests["experiment"] == "latency").any():
        return None
    theirs = inputs.table("published/husain_llama2_7b_latency")
    above = [len(theirs)] * per_machine.part().first
    found = bars.block(requests, above=sum(above))
    if not found:
        return None
    title, rows, summary = found
    drawn, panels = bars.canvas([*above, len(summary)], squeeze=False)
    if above:
        theirs = theirs.sort_values("tokens_per_s", ascending=False, ignore_index=True)
        axes = panels[0, 0]
        usual = theirs["gpu"].mode()[0]
        bars.rows(axes, [_label(row, usual) for _, row in theirs.iterrows()], "tokens/s, as published")
        bars.draw(axes, theirs.assign(backend=""), "tokens_per_s", {"": (style.FAINT, "")})
        axes.set_title(
            f"Published {theirs['edition'].max()}: Llama-2-7B on {usual} unless the label says so", x=-1
        )
    ours, rate = panels[-1, 0], latency_analysis.RATE
    bars.rows(ours, bars.configurations(summary), "output tokens/s, measured here")
    bars.draw(ours, summary, rate, style.looks(rows), spread=summary[f"{rate}_interval"])
    where = f"Here: {captions.setting(latency_analysis.settings(rows)[0][0])}"
    ours.set_title(f"{where}; {title}" if title else where, x=-1, fontsize=9)
    differ = (
        "Not to be compared across panels: models, hardware and axes differ, and the published rows count "
        "and sample in several ways."
    )
    caption = f"{differ} {captions.caption(rows)}"
    return captions.titled(drawn, "The published table, and this study", caption)


def _label(row, usual):
    """Platform and options without remarks in brackets; the GPU where it is not the usual one."""
    words = [re.sub(r"\s*\(.*?\)", "", row["platform"]), row["options"], row["gpu"]]
    label = " · ".join(word for word in words if word not in ("-", usual))
    return textwrap.shorten(label, 42, placeholder=" …")
