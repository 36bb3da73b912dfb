"""Tables that `make observatory` writes and that travel with the package: checked rows and findings.

Each is a .csv.gz whose bytes depend on its content alone. Whoever reads them needs nothing made beforehand;
whoever changes a check runs `make observatory` and commits what it writes.
"""

import io
import zlib
from pathlib import Path

import pandas as pd

from llm_measured.core import files

FOLDER = Path(__file__).parent
UNKNOWN = "\\N"  # an unknown text, told from an empty one


def path(name: str) -> Path:
    """The file of the table `name`."""
    return FOLDER / f"{name}.csv.gz"


def read(name: str) -> pd.DataFrame | None:
    """The table `name` as it was written, None where it never was."""
    if not path(name).exists():
        return None
    read = pd.read_csv(path(name), keep_default_na=False, na_values={}, dtype=str, header=[0, 1])
    whole = {}
    for column, kind in read.columns:
        texts = read[column, kind]
        if kind == "text":
            whole[column] = texts.astype(object).where(texts != UNKNOWN, None)
        elif kind == "string":  # pandas' own, whose unknown is NaN
            whole[column] = texts.where(texts != UNKNOWN)
        elif kind == "truth":
            whole[column] = texts == "True"
        else:
            numbers = pd.Series(texts.replace("", "nan").to_numpy(dtype=object).astype("float64"))
            whole[column] = numbers.astype("int64") if kind == "count" else numbers
    return pd.DataFrame(whole)


def text(table: pd.DataFrame) -> str:
    """`table` as CSV with a second head, the kind of each column; TypeError for a cell that is no number,
    truth value or text."""
    columns = {}
    for name in table:
        values = table[name]
        if pd.api.types.is_bool_dtype(values):
            kind, cells = "truth", values.astype(str)
        elif pd.api.types.is_integer_dtype(values):
            kind, cells = "count", values.astype(str)
        elif pd.api.types.is_float_dtype(values):
            kind, cells = "number", values.map(lambda value: "" if value != value else repr(float(value)))
        else:
            kind = "string" if isinstance(values.dtype, pd.StringDtype) else "text"
            cells = values.map(lambda value: _text(value, name), na_action=None)
        columns[name, kind] = cells.to_numpy()
    stream = io.StringIO()
    pd.DataFrame(columns).to_csv(stream, index=False, lineterminator="\n")
    return stream.getvalue()


def _text(value: object, column: object) -> str:
    if value is None or value != value:
        return UNKNOWN
    if not isinstance(value, str):
        raise TypeError(f"The column {column} holds a {type(value).__name__}, no number and no text.")
    return value


def write(name: str, table: pd.DataFrame) -> None:
    """Write the table `name`, the same bytes for the same rows, where they changed."""
    content = text(table).encode()
    if path(name).exists() and zlib.decompress(path(name).read_bytes(), wbits=31) == content:
        return
    packer = zlib.compressobj(9, wbits=31)  # gzip without a name or a time
    files.write_whole(path(name), packer.compress(content) + packer.flush())
