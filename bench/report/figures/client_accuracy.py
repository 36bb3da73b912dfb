"""Figures of the topic client accuracy."""

import re

import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bench import style
from bench.instrument import peers
from bench.observations import store
from bench.report import captions, curves, figures, per_machine
from bench.topics import client_accuracy as accuracy_analysis
from bench.topics import commands

CLIENT_ERRORS = {
    "ttft_error_ms": "Mean TTFT: error, ms",
    "ttft_error_connected_ms": "Mean TTFT without the first request of every stream: error, ms",
    "itl_p99_excess_ms": "99th percentile of ITL: above the server's, ms",
}


def client_accuracy(requests: pd.DataFrame) -> Figure | None:
    """Errors of the mean TTFT and of the 99th percentile of ITL over the number of streams: a panel per
    error, a line per load client, and a published comparison in grey.

    `requests` are all requests, beside which the observations lie (`store.load_accuracy`), or these
    observations themselves.
    """
    return _client_accuracy(_observations(requests))


def _observations(requests):
    """The comparisons beside `requests`, or `requests` where they are comparisons themselves."""
    known = "ttft_error_ms" in requests
    return requests if known else store.load_accuracy(requests.attrs.get("folder"))


@per_machine.of_machines
def _client_accuracy(table: pd.DataFrame) -> Figure:
    table = accuracy_analysis.on_default_machine(table)
    lines, styles, key = _lines(table)
    shown = [column for column in CLIENT_ERRORS if any(column in rows for rows, _ in lines)]
    drawn, panels = curves.panels(len(shown), 2.5, styles, also=key)
    clipped = [
        _errors(panel, column, [line for line in lines if column in line[0]])
        for panel, column in zip(panels, shown)
    ]
    panels[-1].set_xlabel("streams, a request at a time each")
    return captions.titled(drawn, "How far load clients are off", " ".join(_caption(table, any(clipped))))


client_accuracy.parts = lambda requests: _client_accuracy.parts(_observations(requests))
figures.DRAWN["client_accuracy"] = client_accuracy


def _lines(table):
    """([(rows, mark)] of published and measured clients, marks of the measured ones, Line2D that name the
    published ones)."""
    measured, published = table[table["error"] == ""].groupby("client"), accuracy_analysis.published()
    colours, grey = sns.color_palette("colorblind"), curves.GREYS[0]
    styles = {
        name: curves.Mark(_label(rows), colours[k % len(colours)], style.MARKERS[k % len(style.MARKERS)])
        for k, (name, rows) in enumerate(measured)
    }
    lines, key = [], []
    for k, (name, rows) in enumerate(published.groupby("client")):
        marker, label = "ox"[k % 2], f"published: {re.sub(r'.*[(]|[)]', '', name)}"
        lines.append((rows, curves.Mark("", grey, marker)))
        key.append(Line2D([], [], color=grey, marker=marker, label=label))
    return lines + [(rows, styles[name]) for name, rows in measured], styles, key


def _label(rows: pd.DataFrame) -> str:
    return " ".join(word for word in (peers.title(rows["client"].iloc[0]), rows["version"].iloc[0]) if word)


def _errors(axes, column, lines):
    """One line per client on log axes; returns whether any value is zero or less.

    Such a value has no place on a log axis: it stands hollow at the lower edge.
    """
    values = pd.concat([rows[column] for rows, _ in lines]).dropna()
    above, below = values[values > 0], bool((values <= 0).any())
    low, high = (above.min(), above.max()) if len(above) else (0.001, 1)
    floor = low / (3 if below else 1.3)
    for rows, mark in lines:
        rows = rows.sort_values("streams")
        curves.joined(axes, rows["streams"], rows[column].where(rows[column] > 0), mark)
        under = rows[rows[column] <= 0]
        hollow = {"color": mark.colour, "markerfacecolor": "white", "markersize": 7, "zorder": 5}
        axes.plot(under["streams"], [floor] * len(under), mark.marker, **hollow)
    axes.set(xscale="log", yscale="log", ylim=(floor / 1.5, high * 1.5), title=CLIENT_ERRORS[column])
    curves.plain_logs(axes)
    return below


def _caption(table, clipped):
    """The small print: where and how, what failed, what the marks mean."""
    if table.empty:
        yield f"Nothing measured here yet: {commands.papermill('client-accuracy')}."
    else:
        yield f"Measured on {table['gpu'].iloc[0]}, client and server on a core each:"
        yield "what the client reports less what the server did."
    for client, rows in table[table["error"] != ""].groupby("client"):
        yield f"{peers.title(client)} gave no result at {captions.plural(rows['streams'], 'stream')}."
    if clipped:
        yield "Hollow, at the lower edge: zero or less."
    yield "Published on other hardware, its ITL against the gap that the server was set to."
