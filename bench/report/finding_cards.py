"""The front page's findings as cards: a title, the figure with its interval, a small picture of it, and where
the evidence is.

A card is a dict: title, figure, text (Markdown), points (rows of the picture: label, value, low, high), one
(where the picture has a line at 1), link and evidence. It is about the only machine in its requests, and None
where they do not support it.
"""

import html

import numpy as np
import pandas as pd
from IPython.display import Markdown, display
from matplotlib import ticker
from matplotlib.figure import Figure

from bench import html as html_report
from bench import naming, style
from bench.analysis import latency as latency_analysis
from bench.analysis import machines
from bench.analysis import serving as serving_analysis
from bench.definitions import Fields
from bench.report import pages
from bench.report.findings import latency, words

SHOWN = 5  # rows of a picture


def fastest(requests: pd.DataFrame) -> Fields | None:
    """Which option writes most tokens per second for one user."""
    return _ranked(
        requests,
        "output_tokens_per_s",
        ("Fastest for one user", "Fast for one user", "One user at a time"),
        ("output tokens/s", 1),
        ("latency.html#what-we-measured", "Every engine and option"),
    )


def first_token(requests: pd.DataFrame) -> Fields | None:
    """Which option answers soonest."""
    return _ranked(
        requests,
        "ttft_s",
        ("Shortest wait", "Short wait", "The wait for the first token"),
        ("ms to the first token", 1e3),
        ("latency.html#the-wait-and-the-pace", "The wait and the pace"),
    )


def memory(requests: pd.DataFrame) -> Fields | None:
    """Which option of 16 bits or more comes closest to what the memory can deliver."""
    wide = np.array([(naming.bits(option) or 0) >= 16 for option in requests["option"]], dtype=bool)
    each = latency_analysis.runs(latency_analysis.described(requests[wide], "latency"))
    bound = " at most" if latency_analysis.probed_one_way(each) else ""
    return _ranked(
        requests[wide],
        "mbu",
        ("Closest to the memory's limit", "Close to the memory's limit", "Memory's limit"),
        (f"of the measured bandwidth (MBU){bound}", 1),
        ("latency.html#how-close-to-the-memorys-limit", "How close each one comes"),
    )


def _ranked(requests, metric, titles, unit, evidence):
    """The card of a ranking by `metric`; `titles` where one is best, where several may be, where none is
    ranked; `unit` is its words and a factor."""
    table = latency_analysis.ranked(latency_analysis.described(requests, "latency"), metric)
    table = table.dropna(subset="mean")
    if len(table) < 2:
        return None
    (name, factor), best = unit, table[table["may_be_best"]]
    first = (table if best.empty else best).iloc[0]
    count = len(table) if best.empty else int((table["reason"] == "").sum())
    half = (first["high"] - first["mean"]) * factor
    figure = f"{words.within(first['mean'] * factor, half)} {name}"
    if best.empty:
        title, text = (
            titles[2],
            f"with {words.name(first)}; not ranked: {latency.reasons(table)}.",
        )
    elif len(best) == 1:
        title, text = titles[0], f"with {words.name(first)}, of {count} engines and options."
    else:
        title = titles[1]
        text = (
            f"with {words.name(first)}, the best mean; {len(best)} of {count} engines and options may be the "
            "best: their intervals do not distinguish them."
        )
    points = [
        (words.name(row).strip("*"), *(row[["mean", "low", "high"]] * factor)) for _, row in table.iterrows()
    ]
    return _card(title, figure, text, points[:SHOWN], evidence)


def fewer_bits(requests: pd.DataFrame) -> Fields | None:
    """What fewer bits gain in speed."""
    rows = sorted(latency.speed_ups(requests), key=lambda row: -row["faster"])
    if not rows:
        return None
    best = rows[0]
    text = (
        f"with {words.name(best)} against the same engine's {best['base']:.0f}-bit option; "
        f"the bytes it reads promise {words.times(best['fewer'])}. [What it costs](quality.qmd)."
    )
    points = [(words.name(row).strip("*"), row["faster"], row["low"], row["high"]) for row in rows[:SHOWN]]
    figure = f"{words.ratio(best)} the speed"
    return _card(
        "What fewer bits gain",
        figure,
        text,
        points,
        ("quality.html#quality-against-speed", "Quality against speed"),
        1,
    )


def load(requests: pd.DataFrame) -> Fields | None:
    """What more users cost each of them."""
    table = serving_analysis.widened(requests).sort_values("slower")
    if table.empty:
        return None
    row, times = table.iloc[0], html_report.number(serving_analysis.WIDER)
    slower, more = (
        words.ratio({"ratio": row[n], "low": row[f"{n}_low"], "high": row[f"{n}_high"]})
        for n in ("slower", "more")
    )
    text = f"for a token at {times} times the concurrency with {words.name(row)}, for {more} the throughput."
    points = [
        (words.name(r).strip("*"), r["slower"], r["slower_low"], r["slower_high"])
        for _, r in table.head(SHOWN).iterrows()
    ]
    evidence = "serving.html#pace-against-throughput", "Servers under load"
    return _card("What more users cost", f"{slower} as long", text, points, evidence, 1)


CARDS = fastest, first_token, fewer_bits, memory, load


def _card(title, figure, text, points, evidence, one=None):
    link, words_of_link = evidence
    return {"title": title, "figure": figure, "text": text, "points": points, "one": one} | {
        "link": link,
        "evidence": words_of_link,
    }


def picture(card: Fields) -> Figure:
    """A card's points with their intervals as a small matplotlib figure, best on top."""
    names, values, lows, highs = zip(*card["points"])
    with style.style():
        drawn = style.Figure(figsize=(2.6, 0.3 + 0.42 * len(names)), layout="constrained")
        axes = drawn.subplots()
        places = np.arange(len(names))[::-1]
        if card["one"] is not None:
            axes.axvline(card["one"], color=style.FAINT, linewidth=1)
        axes.hlines(places, lows, highs, color=style.GREY, linewidth=2.5)
        axes.plot(values, places, "o", color=style.INK, markersize=5)
        for place, name in zip(places, names):
            axes.annotate(
                name,
                (0, place),
                (0, 5),
                xycoords=axes.get_yaxis_transform(),
                textcoords="offset points",
                fontsize=10,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
            )
        axes.set_yticks([])
        axes.set_ylim(-0.4, len(names) - 0.1)
        axes.set_xlim(min(0, np.nanmin([*lows, 0])), 1.06 * np.nanmax([*values, *highs]))
        axes.grid(axis="y", visible=False)
        axes.tick_params(labelsize=9)
        axes.xaxis.set_major_locator(ticker.MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
        axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    return drawn


def described(card: Fields) -> str:
    """The picture in words: every point with its interval."""
    each = [f"{name} {words.within(v, (high - low) / 2)}" for name, v, low, high in card["points"]]
    return f"{card['title']}: {'; '.join(each)}"


def markdown(card: Fields) -> str:
    """One card as Markdown with raw HTML around it."""
    shown = pages.svg_address(picture(card))
    return "\n\n".join(
        [
            '<article class="card-finding">',
            f'<p class="card-title">{html.escape(card["title"])}</p>',
            f'<p class="card-figure">{html.escape(card["figure"])}</p>',
            card["text"],
            f'<img alt="{html.escape(described(card))}" src="{shown}">',
            f'<p class="card-link"><a href="{card["link"]}">{html.escape(card["evidence"])}</a></p>',
            "</article>",
        ]
    )


def show_cards(requests: pd.DataFrame) -> None:
    """Show the cards of every machine, the one in front first, the others folded."""
    parts = []
    for label, own in machines.labelled(requests) if len(requests) else ():
        cards = [found for found in (card(own) for card in CARDS) if found]
        if cards:
            inside = '<div class="cards">\n\n' + "\n\n".join(map(markdown, cards)) + "\n\n</div>"
            start = f'<details class="device" data-device="{label}"{" open" * (not parts)}>'
            parts.append(f"{start}<summary>Measured on {label}</summary>\n\n{inside}\n\n</details>")
    text = '<div class="devices">\n\n' + "\n\n".join(parts) + "\n\n</div>\n"
    display(Markdown(text if parts else pages.UNMEASURED))
