"""Tables: one function per table, all requests in, a plain DataFrame with reader-ready column names out.

    python -m bench.report.tables latency          the table on the terminal
    python -m bench.report.tables latency here     of what this checkout has measured, where it has

`html` and `text` write any of them out; pages, notebooks and the terminal show the same numbers because
they call the same functions.
"""

import functools
import importlib
import pkgutil
from collections.abc import Callable, Sequence

import pandas as pd

from bench import html, registry
from bench.machine import identity
from bench.observations import store
from bench.topics import machines as machines_analysis
from llm_measured.core import columns, naming

TABLES = registry.TABLES
DEVICE = columns.column("gpu").head


listed = registry.table


def of_machines(function: Callable, prepare: Callable = lambda rows: rows) -> Callable:
    """Decorator: a listed table whose function knows one machine, for requests of any number of machines,
    which `prepare` may add to (`bench.report.shared.added`).

    The rows of each stand one after the other, those of the default machine first, and the column device
    names it; published rows stand once, at the end. `attrs` has the `machines`, and those `missing` a row.
    """

    @functools.wraps(function)
    def table(requests: pd.DataFrame) -> pd.DataFrame:
        requests = prepare(requests)
        every = machines_analysis.labelled(requests)
        if len(every) < 2:
            table = _named(function(requests), requests["gpu"].iloc[0] if len(requests) else "")
            table.attrs["of_machines"] = True
            return table
        parts = {label: _named(function(own), own["gpu"].iloc[0], label) for label, own in every}
        published = [table[table[DEVICE] != label] for label, table in parts.items()]
        own = [table[table[DEVICE] == label] for label, table in parts.items()]
        filled = [table for table in [*own, *published[:1]] if len(table)] or own[:1]
        table = pd.concat(filled, ignore_index=True)
        missing = [label for label, rows in zip(parts, own) if rows.empty]
        table.attrs = next(iter(parts.values())).attrs | {
            "of_machines": True,
            "machines": list(parts),
            "missing": missing,
        }
        return table

    return listed(table)


def _named(table, gpu, label=None):
    """`table` of the machine `gpu` with the column device, in which it has the `label`."""
    if DEVICE not in table:
        place = [*table.columns].index("option") + 1 if "option" in table else len(table.columns)
        table.insert(place, DEVICE, gpu)
    return table.assign(**{DEVICE: table[DEVICE].replace(gpu, label)}) if label else table


def names() -> list[str]:
    """Names of all tables."""
    return list(TABLES)


def main(arguments: Sequence[str]) -> None:
    """Print the table named in `arguments`, of this checkout's runs alone if `here` follows and there are
    any, those beside others among them; ValueError listing the tables for any other name."""
    name, where = naming.choose("table", arguments[0] if arguments else "", names()), arguments[1:]
    rows = store.load()
    own = pd.DataFrame()
    if where == ["here"]:
        with machines_analysis.make_default("here"):
            own = TABLES[name](rows[rows["host"] == identity.host()])
    print(html.text(own if len(own) else TABLES[name](rows)))


# A topic is a file of this folder or of `bench.report.published`; its tables join when it is imported.
for _topic in pkgutil.iter_modules(__path__):
    if _topic.name != "__main__":
        importlib.import_module(f"{__name__}.{_topic.name}")
importlib.import_module("bench.report.published.tables")
