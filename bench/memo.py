"""Results of long computations, kept for as long as the process lives, and on disk for the next process where
`keep_in` says so.

A page asks for the same table several times: for a figure, for a table, and for each sentence. The key is the
content of the rows, so that changed rows are computed anew, and so that a selection made twice counts as the
same.
"""

import functools
import hashlib
import os
import pickle
import tempfile
from pathlib import Path

import pandas as pd

_FOLDER = None


def keep_in(folder):
    """Keep results in `folder` as well, for other processes; None: no longer.

    Whoever calls this answers for the folder's name: it changes with everything that a result depends on but
    its arguments (code, tables of inputs).
    """
    global _FOLDER
    _FOLDER = folder and Path(folder)


def by_content(function):
    """Decorator: `function(table, *hashables, **hashables)`, a DataFrame, is computed once for the same rows;
    callers get copies."""
    known, name = {}, f"{function.__module__}.{function.__qualname__}"

    @functools.wraps(function)
    def remembered(table, *others, **named):
        try:
            key = content(table), others, tuple(sorted(named.items()))
        except TypeError:  # a cell that holds a list has no hash
            return function(table, *others, **named)
        if key not in known:
            known[key] = kept((name, *key), lambda: function(table, *others, **named))
        return known[key].copy()

    return remembered


def content(table):
    """What tells the columns, index and cells of `table` from those of any other; TypeError where a cell has
    no hash."""
    return tuple(table.columns), pd.util.hash_pandas_object(table).to_numpy().tobytes()


def kept(key, compute):
    """`compute()`, or what it gave before for the same `key` (anything with a repr that says all) in the
    folder of `keep_in`. A damaged file counts as none, and each is written whole."""
    if _FOLDER is None:
        return compute()
    file = _FOLDER / hashlib.sha256(repr(key).encode()).hexdigest()
    try:
        return pickle.loads(file.read_bytes())
    except Exception:  # not there, cut off, or of another version of a library
        found = compute()
    try:
        _write(file, pickle.dumps(found))
    except OSError:  # a full disk, or one that may not be written: the result is there all the same
        pass
    return found


def _write(file, data):
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=file.parent, prefix=".", delete=False) as out:
        out.write(data)
    os.replace(out.name, file)
