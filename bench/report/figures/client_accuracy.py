"""Figures of the topic client accuracy."""

import re

import pandas as pd
import seaborn as sns
from matplotlib.lines import Line2D

from bench.analysis import client_accuracy as accuracy_analysis
from bench.instrument import peers
from bench.observations import store
from bench.report import curves, figures, style

CLIENT_ERRORS = {
    "ttft_error_ms": "Mean TTFT: error, ms", "ttft_error_connected_ms": "Mean TTFT without the first request of every stream: error, ms",
    "itl_p99_excess_ms": "99th percentile of ITL: above the server's, ms",
}  # fmt: skip


def client_accuracy(requests):
    """Error of the mean TTFT, and excess of the 99th percentile of ITL, over the number of streams: one line per load client, and a published comparison.

    Its observations are no requests: they lie in the folder of the requests (`store.load_accuracy`), or are given instead of them.
    """
    table = requests if "ttft_error_ms" in requests else store.load_accuracy(requests.attrs.get("folder"))
    with style.style():
        return _client_accuracy(accuracy_analysis.here(table))


figures.DRAWN["client_accuracy"] = client_accuracy


def _client_accuracy(table):
    good, greys = table[table["error"] == ""], list(accuracy_analysis.published().groupby("client"))
    colours = sns.color_palette("colorblind")
    styles = {
        name: (_client_label(rows), colours[k % len(colours)], curves.MARKERS[k % len(curves.MARKERS)])
        for k, (name, rows) in enumerate(good.groupby("client"))
    }
    lines = [(rows, ("", curves.GREYS[0], "ox"[k % 2])) for k, (_, rows) in enumerate(greys)] + [
        (rows, styles[name]) for name, rows in good.groupby("client")
    ]
    shown = [column for column in CLIENT_ERRORS if any(column in rows for rows, _ in lines)]
    greys = [
        Line2D(
            [],
            [],
            color=curves.GREYS[0],
            marker="ox"[k % 2],
            label=f"published: {re.sub(r'.*[(]|[)]', '', name)}",
        )
        for k, (name, _) in enumerate(greys)
    ]
    drawn, panels = curves.panels(len(shown), 2.5, styles, also=greys)
    clipped = [
        _errors(panel, column, [line for line in lines if column in line[0]])
        for panel, column in zip(panels, shown)
    ]
    panels[-1].set_xlabel("streams, a request at a time each")
    return style.words(drawn, "How far load clients are off", " ".join(_client_caption(table, any(clipped))))


def _client_label(rows):
    return " ".join(word for word in (peers.title(rows["client"].iloc[0]), rows["version"].iloc[0]) if word)


def _errors(axes, column, lines):
    """One line per client on log axes; what is zero or negative, and has no place there, stands hollow at the lower edge. True if there is any."""
    values = pd.concat([rows[column] for rows, _ in lines]).dropna()
    above, below = values[values > 0], bool((values <= 0).any())
    low, high = (above.min(), above.max()) if len(above) else (0.001, 1)
    floor = low / (3 if below else 1.3)
    for rows, look in lines:
        rows = rows.sort_values("streams")
        curves.joined(axes, rows["streams"], rows[column].where(rows[column] > 0), look)
        under = rows[rows[column] <= 0]
        axes.plot(
            under["streams"],
            [floor] * len(under),
            look[2],
            color=look[1],
            markerfacecolor="white",
            markersize=7,
            zorder=5,
        )
    axes.set(xscale="log", yscale="log", ylim=(floor / 1.5, high * 1.5), title=CLIENT_ERRORS[column])
    curves.plain_logs(axes)
    return below


def _client_caption(table, clipped):
    """The small print: where and how, what failed, what the marks mean."""
    if table.empty:
        yield "Nothing measured here yet: papermill notebooks/client-accuracy.ipynb out.ipynb."
    else:
        yield f"Measured on {table['gpu'].iloc[0]}, client and server on a core each: what the client reports less what the server did."
    for client, rows in table[table["error"] != ""].groupby("client"):
        yield f"{peers.title(client)} gave no result at {style.plural(rows['streams'], 'stream')}."
    if clipped:
        yield "Hollow, at the lower edge: zero or less."
    yield "Published on other hardware, its ITL against the gap that the server was set to."
