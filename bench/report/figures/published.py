"""Figures of the topic published."""

import re
import textwrap

from bench.analysis import latency as latency_analysis
from bench.report import figures, style
from bench.report.tables import published as published_tables


@figures.listed
def published(requests):
    """The published table (grey) and our own bars, one above the other, each on its own axis: another model on other hardware."""
    return _published(*style.blocks(requests)) if (requests["experiment"] == "latency").any() else None


def _published(chosen, blocks):
    theirs = published_tables.published()
    usual = theirs["GPU"].mode()[0]
    drawn, axes = style.canvas([len(theirs), *(len(summary) for *_, summary in blocks)], extra=1.6)
    first = theirs.assign(backend="", value=theirs["tokens/s"])
    style.rows(
        axes[0, 0], [_published_label(row, usual) for _, row in theirs.iterrows()], "tokens/s, as published"
    )
    style.bars(axes[0, 0], first, "value", {"": (style.FAINT, "")})
    axes[0, 0].set_title(
        f"Published {theirs['edition'].max()}: Llama-2-7B on {usual} unless the label says so"
    )
    for panel, (_, rows, summary) in zip(axes[1:, 0], blocks):
        style.rows(panel, style.configurations(summary), "output tokens/s, measured here (another axis)")
        style.bars(panel, summary, "output_tokens_per_s", style.looks(chosen), spread=summary["interval"])
        panel.set_title(f"Here: {style.setting(latency_analysis.settings(rows)[0][0])}")
    differ = "Not to be compared across panels: models, hardware and axes differ, and the published rows count and sample in several ways."
    return style.words(drawn, "The published table, and this study", f"{differ} {style.caption(chosen)}")


def _published_label(row, usual):
    """Platform and options without remarks in brackets; the GPU where it is not the usual one."""
    words = [re.sub(r"\s*\(.*?\)", "", row["platform"]), row["options"], row["GPU"]]
    return textwrap.shorten(
        " · ".join(word for word in words if word not in ("-", usual)), 66, placeholder=" …"
    )
