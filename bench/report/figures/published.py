"""Figures of the topic published."""

import re
import textwrap

from bench import inputs
from bench.analysis import latency as latency_analysis
from bench.report import bars, captions, figures, sheet, style


@figures.of_machines
def published(requests):
    """The published table (grey) above our own bars: a bar per row, each panel on its own axis, because model
    and hardware differ."""
    if not (requests["experiment"] == "latency").any():
        return None
    chosen, blocks = bars.blocks(requests)
    theirs = inputs.table("published/husain_llama2_7b_latency")
    above = [len(theirs)] * sheet.part().first
    drawn, axes = bars.canvas([*above, *(len(summary) for *_, summary in blocks)], extra=1.6)
    if above:
        _theirs(axes[0, 0], theirs.sort_values("tokens_per_s", ascending=False, ignore_index=True))
    for panel, (_, rows, summary) in zip(axes[len(above) :, 0], blocks):
        bars.rows(panel, bars.configurations(summary), "output tokens/s, measured here (another axis)")
        bars.draw(
            panel,
            summary,
            "output_tokens_per_s",
            style.looks(chosen),
            spread=summary[f"{latency_analysis.RATE}_interval"],
        )
        panel.set_title(f"Here: {captions.setting(latency_analysis.settings(rows)[0][0])}")
    differ = (
        "Not to be compared across panels: models, hardware and axes differ, and the published rows count "
        "and sample in several ways."
    )
    caption = f"{differ} {captions.caption(chosen)}"
    return captions.titled(drawn, "The published table, and this study", caption)


def _theirs(axes, theirs):
    """The panel of the published rows."""
    usual = theirs["gpu"].mode()[0]
    bars.rows(axes, [_label(row, usual) for _, row in theirs.iterrows()], "tokens/s, as published")
    bars.draw(axes, theirs.assign(backend=""), "tokens_per_s", {"": (style.FAINT, "")})
    axes.set_title(f"Published {theirs['edition'].max()}: Llama-2-7B on {usual} unless the label says so")


def _label(row, usual):
    """Platform and options without remarks in brackets; the GPU where it is not the usual one."""
    words = [re.sub(r"\s*\(.*?\)", "", row["platform"]), row["options"], row["gpu"]]
    label = " · ".join(word for word in words if word not in ("-", usual))
    return textwrap.shorten(label, 66, placeholder=" …")
