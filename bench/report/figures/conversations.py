"""Figures of the topic conversations."""

import pandas as pd
from matplotlib import ticker
from matplotlib.figure import Figure

from bench import html, style
from bench.observations import schema
from bench.report import captions, curves, figures
from bench.topics import conversations as conversations_analysis
from llm_measured.core import columns, naming

# How a level is drawn: with the cache filled, without it hollow and thin.
HOLLOW = curves.HOLLOW
TTFT = columns.column("ttft_s")
ONE_RUN = "One run each: no intervals, so nothing is ranked."


def _cache(tokens):
    """A declared cache as words: `cache off`, `8,192 tokens`, `size unknown`."""
    if tokens == conversations_analysis.OFF:
        return "cache off"
    return f"{html.number(tokens)} tokens" if tokens == tokens else "size unknown"


def _runs(table):
    """What a caption says of the runs of `table`, which has a column runs."""
    counts = captions.plural(table["runs"], "run")
    return f"{counts} per point. {ONE_RUN}" if (table["runs"] == 1).all() else f"{counts} per point."


@figures.of_machines
def conversation_hits(requests: pd.DataFrame) -> Figure | None:
    """Tokens that each request hit in the cache over those that were expected before the run; one panel per
    engine and option."""
    table = naming.named(conversations_analysis.checked(requests))
    table = table[table["cache_capacity_tokens"] != conversations_analysis.OFF]
    if table.empty:
        return None
    styles, groups = curves.styles(table), list(curves.each(table))
    key = [
        ({"marker": "", "color": style.FAINT}, "from sure to possible"),
        ({"linestyle": "none"}, "a request"),
    ]
    drawn, axes = curves.panels(len(groups), 3.2, styles, also=curves.plain_key(*key))
    for panel, (name, rows) in zip(axes, groups):
        mark, low, high = styles[name], *(rows[bound] for bound in conversations_analysis.BOUNDS)
        panel.hlines(rows["cached_tokens"], low, high, color=style.FAINT, linewidth=1, zorder=1)
        most = max(high.max(), rows["cached_tokens"].max(), 1)
        panel.plot([0, most], [0, most], color=style.GREY, linewidth=0.8, zorder=0)
        panel.plot(high, rows["cached_tokens"], mark.marker, color=mark.colour, markersize=4, alpha=0.6)
        panel.set(xlabel="tokens expected in the cache", ylabel="tokens reported", title=mark.label)
    counts = table["verdict"].value_counts()
    verdicts = conversations_analysis.WITHIN, conversations_analysis.BELOW, conversations_analysis.ABOVE
    counted = [f"{counts.get(verdict, 0)} {verdict}" for verdict in verdicts]
    caption = (
        f"{captions.setting(table.iloc[0][schema.SETTING])}: {html.number(len(table))} requests, "
        f"{naming.listed(counted)} what was expected. Below the line: evicted, or held by another request."
    )
    return captions.titled(drawn, "Hits: expected before the run, and reported", caption)


@figures.of_machines
def conversation_turns(requests: pd.DataFrame) -> Figure | None:
    """TTFT by turn of a conversation, with the cache on and off; one panel per rate of sessions."""
    table = naming.named(conversations_analysis.by_turn(requests))
    table = table[table["experiment"] == "conversations"]
    if table.empty:
        return None
    return _over(
        table,
        requests,
        "turn",
        "turn of the conversation",
        "The wait by turn",
        f"Median over requests, mean over runs, whisker: 95\N{NO-BREAK SPACE}% interval. {_runs(table)}",
    )


@figures.of_machines
def conversation_uncached(requests: pd.DataFrame) -> Figure | None:
    """TTFT over the tokens of the prompt that no cache answered; one panel per rate of sessions."""
    table = naming.named(conversations_analysis.by_uncached(requests))
    table = table[table["experiment"] == "conversations"]
    if table.empty:
        return None
    return _over(
        table,
        requests,
        "uncached_tokens",
        "prompt tokens that were computed",
        "The wait by what was computed",
        "Medians over the requests of all runs, in classes twice as wide as the one before.",
    )


def _over(table, requests, x, label, title, caption):
    """TTFT p50 over the column `x`: a panel per load, a curve per engine, option and cache."""
    loads = list(table.groupby(["workload", "arrivals", "session_rate"], dropna=False, sort=True))
    styles = curves.styles(table)
    drawn, axes = curves.panels(
        len(loads), 3.2, styles, also=curves.plain_key(({}, "cache on"), (HOLLOW, "cache off"))
    )
    for panel, ((workload, arrivals, rate), rows) in zip(axes, loads):
        for name, own in curves.each(rows):
            for tokens, curve in own.groupby("cache_capacity_tokens", dropna=False):
                off = tokens == conversations_analysis.OFF
                curve = curve.sort_values(x)
                y = curve["ttft_p50_s"] * TTFT.factor
                curves.joined(panel, curve[x], y, styles[name], **(HOLLOW if off else {}))
                if "ttft_low" in curve and curve["ttft_low"].notna().any():
                    ends = (curve["ttft_p50_s"] - curve["ttft_low"]).clip(lower=0) * TTFT.factor
                    panel.errorbar(curve[x], y, ends, fmt="none", ecolor=styles[name].colour, capsize=2)
                if not off and own["cache_capacity_tokens"].nunique() > 2:
                    curves.note(panel, _cache(tokens), (curve[x].iloc[-1], y.iloc[-1]))
        panel.set(xlabel=label, ylabel=TTFT.axis, title=f"{workload}, {rate:.3g} sessions/s ({arrivals})")
        if x == "turn":
            panel.set_ylim(bottom=0)
            panel.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
        else:
            curves.plain_logs(panel)
    where = captions.setting(table.iloc[0][schema.SETTING])
    return captions.titled(drawn, title, f"{where}. {caption}")
