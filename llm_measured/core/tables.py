"""Tables as committed files: six significant digits, and whether a file is what its rows give today."""

import io
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

TOLERANCE = 1e-5  # relative: the last digit that two processors may write otherwise


def csv_text(table: pd.DataFrame) -> str:
    """Return `table` as the text of a CSV: six significant digits, whole numbers without a point."""
    written = table.copy()
    for name in written.select_dtypes("floating"):
        known = written[name].dropna()
        if len(known) and (known == known.round()).all() and known.abs().max() < 1e15:
            written[name] = written[name].astype("Int64")
    return written.to_csv(index=False, float_format="%.6g", lineterminator="\n")


def differences(
    tables: Mapping[str, pd.DataFrame],
    folder: Path,
    read: Callable[[Path | io.StringIO], pd.DataFrame],
    remedy: str,
) -> list[str]:
    """Return a sentence with its `remedy` for each of `tables` that differs from its file in `folder`.

    Columns and texts are compared exactly, numbers within TOLERANCE.
    """
    found = []
    for name, table in tables.items():
        file = folder / f"{name}.csv"
        if not file.exists():
            found.append(f"{file} is missing: {remedy}.")
            continue
        before, now = read(file), read(io.StringIO(csv_text(table)))
        if list(before) != list(now) or len(before) != len(now):
            found.append(f"{file}: other columns or another number of rows: {remedy}.")
            continue
        for column in now:
            if not _same(before[column], now[column]):
                found.append(f"{file}: column {column} differs from what its rows give: {remedy}.")
    return found


def _same(before: pd.Series, now: pd.Series) -> bool:
    if pd.api.types.is_numeric_dtype(before) and pd.api.types.is_numeric_dtype(now):
        return bool(
            np.allclose(before.astype(float), now.astype(float), rtol=TOLERANCE, atol=0, equal_nan=True)
        )
    return bool((before.fillna("").astype(str) == now.fillna("").astype(str)).all())
