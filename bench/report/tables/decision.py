"""Tables of the topic decision."""

import pandas as pd

from bench.analysis import recommend
from bench.report import html, tables


@tables.listed
def decision(requests):
    """Which engine should I use? One row per wish: the engine and option that fulfil it best on the machine in focus, and the next engine."""
    table = recommend.choices(requests)
    value = [f"{html.number(v)} {u}" for v, u in zip(table["value"], table["unit"])]
    other = [
        f"{b} {o} ({html.number(v)})" if pd.notna(v) else ""
        for b, o, v in zip(table["next_backend"], table["next_option"], table["next_value"])
    ]
    columns = {"want": "if you want", "backend": "use", "option": "option"}
    return (
        table[list(columns)].rename(columns=columns).assign(**{"it gives": value, "the next engine": other})
    )
