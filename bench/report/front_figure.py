"""The picture of the front page."""

import pandas as pd

from bench import html, style
from bench.report import front

TEXT = 13  # points: what is 13 here is still 11 pixels on a phone of 390
ROW = 0.225  # inches
MOST_OWN = 6  # kinds of processor: the picture fits a screen
BLUE, ORANGE = "#0173b2", "#d55e00"


@style.of_no_machine
def front_page(requests: pd.DataFrame) -> style.Figure | None:
    """Tokens per second of one user with Llama-3.1-8B in 4 bits, as people measured it: a row for each
    accelerator, a dot for each measurement, on a logarithmic axis; below a line our own runs of a small model
    on two cores."""
    published, own = front.shown_rows(), front.shown_own()
    parts = [(f"{name} ({len(rows)})", rows["rate"], "o", BLUE) for name, rows in _each(published)]
    above = len(parts)
    parts += [(f"two cores, {name}", rows["rate"], "D", ORANGE) for name, rows in _each(own)[:MOST_OWN]]
    if not parts:
        return None
    height = ROW * len(parts) + 1.25
    drawn = style.Figure(figsize=(style.WIDTH, height), layout="constrained")
    axes = drawn.subplots()
    for place, (_, rates, mark, colour) in enumerate(parts):
        axes.plot([rates.min(), rates.max()], [place, place], color=colour, alpha=0.3, linewidth=5)
        axes.plot(rates, [place] * len(rates), mark, color=colour, markersize=4, alpha=0.7, markeredgewidth=0)
        fastest = html.number(float(f"{rates.max():.2g}")) if rates.max() < 10 else f"{rates.max():.0f}"
        axes.annotate(
            fastest, (rates.max(), place), (5, 0), textcoords="offset points", va="center", fontsize=TEXT
        )
    if above and len(parts) > above:
        axes.axhline(above - 0.5, color="black", linewidth=1)
    axes.set(xscale="log", ylim=(len(parts) - 0.4, -0.6))
    axes.set_yticks(range(len(parts)), [label for label, *_ in parts], fontsize=TEXT)
    axes.grid(False, axis="y")
    low, high = min(part[1].min() for part in parts), max(part[1].max() for part in parts)
    ticks = [tick for tick in (1, 3, 10, 30, 100, 300) if low / 1.2 <= tick <= high * 1.3]
    axes.set_xlim(low / 1.2, high * 1.8)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=TEXT)
    axes.minorticks_off()
    drawn.supxlabel("tokens/s of one user (number: the fastest)", x=0.97, ha="right", fontsize=TEXT)
    title = "Llama-3.1-8B in 4 bits: what people measured"
    if len(parts) > above:
        title += f"\nbelow the line, our runs of {front.own_rows().model}"
    drawn.suptitle(title, x=0.01, ha="left", fontsize=TEXT)
    return drawn


def _each(rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    return list(rows.groupby("device", sort=False))
