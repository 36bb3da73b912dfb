"""A table that is asked for several times, computed once for the same rows while the process lives: a page
shows it in a figure, in a table and in each sentence."""

import functools
from collections.abc import Callable, Hashable

import pandas as pd

from llm_measured.core.definitions import Result

MANY_ROWS = 5000


def for_the_same_rows(function: Callable[..., Result]) -> Callable[..., Result]:
    """Decorator: `function(table, *hashables, **hashables)` is computed once for the same rows; of a
    DataFrame callers get copies. A cell that holds a list has no hash: then it is computed each time."""
    known = {}

    @functools.wraps(function)
    def remembered(table: pd.DataFrame, *others: Hashable, **named: Hashable) -> Result:
        try:
            key = content(table), others, tuple(sorted(named.items()))
        except TypeError:
            return function(table, *others, **named)
        if key not in known:
            known[key] = function(table, *others, **named)
        found = known[key]
        return found.copy() if isinstance(found, pd.DataFrame) else found

    return remembered


def content(table: pd.DataFrame) -> tuple[Hashable, ...]:
    """What tells the columns, index and cells of `table` from those of any other; TypeError where a cell has
    no hash."""
    # Hashing each text once pays where there are many rows of the same few.
    many = len(table) > MANY_ROWS
    return tuple(table.columns), pd.util.hash_pandas_object(table, categorize=many).to_numpy().tobytes()
