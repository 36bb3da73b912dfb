"""Columns of tables for readers."""

import pandas as pd

# A name's suffix is its unit; the longer ones are looked for first.
UNITS = {
    "_tokens_per_s": "tokens/s", "_bytes_per_s": "bytes/s", "_flops_per_s": "FLOP/s", "_per_s": "1/s",
    "_tokens": "tokens", "_bytes": "bytes", "_s": "s",
}  # fmt: skip


def renamed(table, columns):
    """`table` reduced to `columns`: source name -> (reader's name, factor or None for text)."""
    return pd.DataFrame(
        {
            title: table[name] if factor is None else table[name] * factor
            for name, (title, factor) in columns.items()
        }
    )


LOAD = {"loop": ("loop", None), "concurrency": ("concurrency", 1), "request_rate": ("request rate (1/s)", 1)}
ENGINE = {"backend": ("engine", None), "option": ("option", None)}
WHERE = {"gpu": ("device", None), "model": ("model", None), "weights": ("weights", None)}


def replicas(table):
    """The column of replicas behind one address, where there are several of them anywhere."""
    return {"data_parallel": ("replicas", 1)} if (table["data_parallel"] > 1).any() else {}


def apart(table):
    """`table` of levels with the load in a column of its own for each loop: concurrency, request_rate."""
    return table.assign(
        concurrency=table["load"].where(table["loop"] == "closed"),
        request_rate=table["load"].where(table["loop"] == "open"),
    )
