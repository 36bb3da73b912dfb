"""Results of long computations, kept for as long as the process lives.

A page asks for the same table several times: for a figure, for a table, and for each sentence. The key is the
content of the rows, so that changed rows are computed anew, and so that a selection made twice counts as the
same.
"""

import functools

import pandas as pd


def by_content(function):
    """Decorator: `function(table, *hashables)`, a DataFrame, is computed once for the same rows; callers get
    copies."""
    known = {}

    @functools.wraps(function)
    def remembered(table, *others):
        try:
            key = tuple(table.columns), pd.util.hash_pandas_object(table).to_numpy().tobytes(), others
        except TypeError:  # a cell that holds a list has no hash
            return function(table, *others)
        if key not in known:
            known[key] = function(table, *others)
        return known[key].copy()

    return remembered
