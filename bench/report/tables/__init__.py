"""Tables: one function per table, all requests in, a plain DataFrame with reader-ready column names out.

    python -m bench.report.tables latency     the table on the terminal

`html` and `text` write any of them out; pages, notebooks and the terminal show the same numbers because
they call the same functions.
"""

import importlib
import inspect
import pkgutil

from bench import naming
from bench.observations import store
from bench.report import html

TABLES = {}


def listed(function):
    """Decorator: the function is a table that `names` lists."""
    TABLES[function.__name__] = function
    return function


def names():
    """Names of all tables."""
    return list(TABLES)


def main(arguments):
    """Print the table named in `arguments`; ValueError listing the tables for any other name."""
    name = naming.choose("table", arguments[0] if arguments else "", names())
    print(html.text(TABLES[name](*([store.load()] if inspect.signature(TABLES[name]).parameters else []))))


# A topic is a file of this folder; its tables join when it is imported.
for _topic in pkgutil.iter_modules(__path__):
    if _topic.name != "__main__":
        importlib.import_module(f"{__name__}.{_topic.name}")
