"""What to expect, from the command line.

python -m llm_observatory.expect_command …
predict DATA OUT    a rate and its interval for each row of a CSV
prove               families of sources left out whole; writes the variances and the proof
log                 predictions that wait for measurements, with today's date
"""

import argparse
import csv
import sys
from pathlib import Path

import pandas as pd

from llm_observatory import expect, expect_proof

MOST_BYTES = 64_000_000


def read(file: str) -> pd.DataFrame:
    """The rows of a CSV, every cell as text; ValueError in one sentence where it is no table to predict."""
    path = Path(file)
    if not path.is_file():
        raise ValueError(f"There is no file {file!r}: make expect DATA=rows.csv OUT=predicted.csv.")
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{path.name} has more than {MOST_BYTES / 1e6:.0f} MB; split it.")
    try:
        rows = pd.read_csv(
            path, dtype=str, keep_default_na=False, encoding="utf-8-sig", encoding_errors="strict"
        )
    except (UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError, csv.Error) as error:
        raise ValueError(f"{path.name} is not a CSV in UTF-8 ({type(error).__name__}).") from None
    lacking = [name for name in expect.ASKED if name not in rows]
    if lacking:
        raise ValueError(f"{path.name} has no column {lacking[0]!r}; it needs {', '.join(expect.ASKED)}.")
    return rows


def predict(file: str, out: str) -> str:
    """Write `file` with its predictions to `out`; returns one sentence of what was done. Columns that a
    prediction makes replace those of the same name."""
    rows = read(file)
    made = expect.predictions(rows)
    kept = rows.drop(columns=[name for name in made if name in rows])
    whole = kept.join(made)
    whole.to_csv(out, index=False, float_format="%.6g", lineterminator="\n")
    refused = int((made["refused"] != "").sum())
    return (
        f"{len(rows) - refused} of {len(rows)} rows predicted, {refused} refused (column refused says why)."
    )


def main(words: list[str] | None = None) -> int:
    """Exit status: 0, or 1 with one sentence on stderr."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    predicting = commands.add_parser("predict")
    predicting.add_argument("data")
    predicting.add_argument("out")
    commands.add_parser("prove")
    commands.add_parser("log")
    given = parser.parse_args(words)
    try:
        if given.command == "predict":
            print(predict(given.data, given.out))
        elif given.command == "prove":
            print(expect_proof.prove())
        else:
            print(expect_proof.append())
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
