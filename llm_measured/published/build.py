"""From raw files to one table: rows of each source in data/observatory/rows, and the checked whole as
Parquet.

A source whose raw files are here (data/observatory/raw/<source>, or the folder that OBSERVATORY_RAW
names) is imported again; of a file that is not here the committed rows stay, as licences forbid
publishing some."""

import csv
import functools
import gzip
import io
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from llm_measured.core import files
from llm_measured.published import schema, sources, tool_files
from llm_measured.published.reading import LeftOut, Raw, Row, SourceError

# The checkout's: raw files, rows by source and what was left out are no part of the package.
DATA = Path(__file__).resolve().parents[2] / "data" / "observatory"
VERSION = "2026.11.8"  # of the data; data/observatory/CHANGELOG.md says what each version changed


@dataclass
class Imported:
    """What one source's importer found: `rows` (stored columns), the records left out, and counts of cuts."""

    source: str
    rows: pd.DataFrame
    left_out: pd.DataFrame
    files: list[str]
    cuts: Counter = field(default_factory=Counter)
    ragged: Counter = field(default_factory=Counter)
    lacked: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def _named() -> Path | None:
    """The folder that OBSERVATORY_RAW names; SourceError where there is none of that name."""
    named = os.environ.get("OBSERVATORY_RAW")
    if not named:
        return None
    if not Path(named).is_dir():
        raise SourceError(f"OBSERVATORY_RAW names {Path(named).name!r}, which is no folder here.")
    return Path(named)


def folder_of(source: str) -> Path | None:
    """Where raw files of `source` are: under OBSERVATORY_RAW, else in the repository; None where nowhere."""
    named = _named()
    places = [named / source] if named else []
    return next((p for p in [*places, DATA / "raw" / source] if p.is_dir()), None)


def without_importer() -> list[str]:
    """Names of folders of raw files, under OBSERVATORY_RAW or in the repository, that no importer reads."""
    named = _named()
    places = [place for place in (named, DATA / "raw") if place and place.is_dir()]
    folders = {p.name for place in places for p in place.iterdir() if p.is_dir() and p.name[0] not in "._"}
    return sorted(folders - set(sources.listed()))


def loose() -> list[str]:
    """Names of measurements' files that lie in OBSERVATORY_RAW itself, in no source's folder."""
    named = _named()
    found = sorted(p.name for p in named.iterdir() if p.is_file()) if named else []
    return [name for name in found if name.lower().endswith((".json", ".jsonl", ".csv", ".tsv"))]


def importer(source: str) -> sources.Importer | None:
    """The module of `source`, None of one whose rows stay as they are, or, for a folder that no source has,
    what reads the files of benchmark tools; SourceError naming those that there are."""
    if source not in sources.listed() and source in without_importer():
        return tool_files
    return sources.importer(source)


def imported(source: str, folder: Path) -> Imported:
    """Rows of `source` from the raw files in `folder`; SourceError in one sentence where one cannot be
    read."""
    module = importer(source)
    if module is None:
        commit = sources.about(source).commit[:12]
        raise SourceError(f"{source} has no importer: its rows stay as they were built at commit {commit}.")
    raw = Raw(source, folder)
    kept, left = [], []
    try:
        for found in module.rows(raw):
            (kept if isinstance(found, Row) else left).append(found)
    except SourceError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise SourceError(
            f"{source}: {raw.current or folder.name} has another form than its importer reads "
            f"({type(error).__name__}: {str(error).splitlines()[0][:80] if str(error) else 'no reason'})."
        ) from error
    if not raw.read:
        raise SourceError(f"{source}: {folder.name} holds none of {', '.join(module.ABOUT.files)}.")
    return Imported(
        source,
        framed(kept, source, module.ABOUT),
        _left(left, source),
        sorted(raw.read),
        raw.cuts,
        raw.ragged,
        sorted(set(raw.lacked) - raw.held),
        raw.notes,
    )


def framed(rows: list[Row], source: str, about: sources.Source) -> pd.DataFrame:
    """`rows` with the stored columns of the schema: what `about` says of each file, and each row's id."""
    count: Counter = Counter()
    whole = []
    for row in rows:
        columns = dict(row.columns)
        digest = columns.pop("row_id")
        count[digest] += 1
        again = f"-{count[digest]}" if count[digest] > 1 else ""
        file = columns["source_file"]
        url, commit = about.origin_of(file)
        whole.append(
            {
                "row_id": f"{source}:{digest}{again}",
                "source": source,
                "source_url": url or None,
                "source_commit": commit or None,
                "licence": about.licence_of(file),
                "retrieved": about.retrieved,
                "published_on": about.published_on or None,
                "measured_by": about.measured_by or None,
                "kind": about.kind or None,
            }
            | columns
        )
    return pd.DataFrame(whole, columns=schema.STORED)


def _left(left: list[LeftOut], source: str) -> pd.DataFrame:
    columns = ["source", "source_file", "source_row", "reason", "refused"]
    return pd.DataFrame([(source, f.file, f.row, f.reason, f.refused) for f in left], columns=columns)


def typed(frame: pd.DataFrame) -> pd.DataFrame:
    """`frame` with every column of the schema: numbers as float64, the rest as text with None for unknown."""
    whole = {}
    for column in schema.COLUMNS:
        values = (
            frame[column.name] if column.name in frame else pd.Series(None, index=frame.index, dtype=object)
        )
        if column.type in ("number", "count"):
            whole[column.name] = pd.to_numeric(values, errors="coerce").astype("float64")
        else:
            whole[column.name] = values.astype(object).where(values.notna(), None)
    return pd.DataFrame(whole, index=frame.index)


def _text(frame: pd.DataFrame, names: list[str]) -> str:
    """`frame` as CSV, columns that are empty throughout left out; numbers as short as they are exact."""

    def cell(value: object) -> str:
        if value is None or value != value:
            return ""
        if isinstance(value, float):
            return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
        return str(value)

    kept = [name for name in names if frame[name].notna().any()] or names
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(kept)
    for values in frame[kept].astype(object).itertuples(index=False):
        writer.writerow([cell(value) for value in values])
    return stream.getvalue()


def write_text(path: Path, text: str) -> bool:
    """`text` into a .gz whose bytes depend on the text alone; False where the file has that text already."""
    if path.exists() and gzip.decompress(path.read_bytes()).decode() == text:
        return False
    stream = io.BytesIO()
    with gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=9, mtime=0, filename="") as packed:
        packed.write(text.encode())
    files.write_whole(path, stream.getvalue())
    return True


def committed(source: str) -> pd.DataFrame:
    """The committed rows of `source`, typed; empty where there are none."""
    path = DATA / "rows" / f"{source}.csv.gz"
    if not path.exists():
        return typed(pd.DataFrame(columns=schema.STORED))
    return typed(pd.read_csv(path, dtype=str, keep_default_na=False, na_values=[""]))


def merged(found: Imported) -> pd.DataFrame:
    """Imported rows, and the committed ones of files that are not here; sorted by file and place."""
    old = committed(found.source)
    old = old[~old["source_file"].isin(found.files)]
    whole = typed(found.rows)
    whole = pd.concat([whole, old], ignore_index=True) if len(old) else whole
    place = whole["source_row"].map(lambda row: re.sub(r"\d+", lambda digits: digits[0].zfill(9), row))
    order = pd.DataFrame({"file": whole["source_file"], "place": place, "id": whole["row_id"]})
    return whole.loc[order.sort_values(["file", "place", "id"]).index].reset_index(drop=True)


def refresh(source: str, folder: Path) -> Imported:
    """Imports `source` from `folder` and writes its rows and what was left out, where they changed."""
    found = imported(source, folder)
    whole = merged(found)
    if not len(whole):
        raise SourceError(f"{source}: {nothing_read(found)}.")
    write_text(DATA / "rows" / f"{source}.csv.gz", _text(whole, schema.STORED))
    kept_out = pd.concat([found.left_out, _left_before(source, found.files)], ignore_index=True)
    counts = kept_out.groupby(["source_file", "reason"], sort=True).size().rename("records").reset_index()
    path = DATA / "left_out" / f"{source}.csv.gz"
    if len(counts):
        write_text(path, _text(counts, ["source_file", "reason", "records"]))
    else:
        path.unlink(missing_ok=True)
    return found


def nothing_read(found: Imported) -> str:
    """Why an import gave no row: why most of its records were left out, or what none of them had."""
    files = f"no row could be read from {len(found.files)} file{'s' * (len(found.files) != 1)}"
    if len(found.left_out):
        reasons = found.left_out["reason"].value_counts()
        left = f"{len(found.left_out):,} records were left out, {reasons.iloc[0]:,} of them because"
        return f"{files}; {left} {reasons.index[0]}"
    if found.lacked:
        return f"{files}; looked for and in no record: {', '.join(name[:40] for name in found.lacked[:12])}"
    return f"{files}: its importer knows no record in them"


def _left_before(source: str, files: list[str]) -> pd.DataFrame:
    old = left_out(source)
    old = old[~old["source_file"].isin(files)]
    return old.loc[old.index.repeat(old["records"].astype(int))][["source_file", "reason"]]


def left_out(source: str) -> pd.DataFrame:
    """Records that were not kept: source_file, reason, records; without a checkout those of the package."""
    path = DATA / "left_out" / f"{source}.csv.gz"
    if path.exists():
        return pd.read_csv(path)
    every = None if path.parent.is_dir() else read_table("left_out")
    empty = pd.DataFrame(columns=["source_file", "reason", "records"])
    return empty if every is None else every.loc[every["source"] == source, list(empty)]


def stored() -> Iterator[tuple[str, pd.DataFrame]]:
    """(source, committed rows) of every source that has any."""
    for source in sources.listed():
        rows = committed(source)
        if len(rows):
            yield source, rows


def joined(more: Sequence[pd.DataFrame] = (), licensed: bool = False) -> pd.DataFrame:
    """The rows in data/observatory/rows of all or of the `licensed` sources, and those of `more`, with names
    looked up in the tables of accelerators and models."""
    from llm_measured.published import names

    frames = [frame for source, frame in stored() if not licensed or sources.is_licensed(source)]
    frames += map(typed, more)
    nothing = typed(pd.DataFrame(columns=schema.STORED))
    return names.looked_up(pd.concat(frames, ignore_index=True) if frames else nothing)


@functools.cache
def _table() -> pd.DataFrame:
    whole = read_table("table")
    if whole is None:
        raise SourceError("The checked table is not here: make observatory writes it.")
    return whole


def table() -> pd.DataFrame:
    """One row per measured point of all sources, checked, as committed: every column of the schema."""
    return _table().copy()


def rows() -> pd.DataFrame:
    """The committed rows without what the checks say of them."""
    return _table().assign(**dict.fromkeys(schema.JUDGED))


def write_parquet(frame: pd.DataFrame, path: Path) -> None:
    """`frame` as Parquet, the same bytes for the same rows; units and meanings in the metadata of its
    columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {"number": pa.float64(), "count": pa.float64()}
    fields = [
        pa.field(c.name, kinds.get(c.type, pa.string()), metadata={"unit": c.unit, "meaning": c.meaning})
        for c in schema.COLUMNS
    ]
    arrays = [
        pa.array([None if v is None or v != v else v for v in frame[f.name].tolist()], type=f.type)
        for f in fields
    ]
    whole = pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata={"version": VERSION}))
    fresh = path.with_suffix(".tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(whole, fresh, compression="zstd", store_schema=False)
    os.replace(fresh, path)


def columns_of(frame: pd.DataFrame) -> list[str]:
    """Stored columns of a source's rows that are empty throughout."""
    return [name for name in schema.STORED if frame[name].isna().all()]


# ---- tables that travel with the package: the same bytes for the same rows

FOLDER = Path(__file__).parent
UNKNOWN = "\\N"  # an unknown text, told from an empty one


def table_path(name: str) -> Path:
    """The file of the table `name`."""
    return FOLDER / f"{name}.csv.gz"


def read_table(name: str) -> pd.DataFrame | None:
    """The table `name` as it was written, None where it never was."""
    if not table_path(name).exists():
        return None
    read = pd.read_csv(table_path(name), keep_default_na=False, na_values={}, dtype=str, header=[0, 1])
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


def table_text(table: pd.DataFrame) -> str:
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
            cells = values.map(lambda value: _cell(value, name), na_action=None)
        columns[name, kind] = cells.to_numpy()
    stream = io.StringIO()
    pd.DataFrame(columns).to_csv(stream, index=False, lineterminator="\n")
    return stream.getvalue()


def _cell(value: object, column: object) -> str:
    if value is None or value != value:
        return UNKNOWN
    if not isinstance(value, str):
        raise TypeError(f"The column {column} holds a {type(value).__name__}, no number and no text.")
    return value


def write_table(name: str, table: pd.DataFrame) -> None:
    """Write the table `name`, the same bytes for the same rows, where they changed."""
    content = table_text(table).encode()
    if table_path(name).exists() and zlib.decompress(table_path(name).read_bytes(), wbits=31) == content:
        return
    packer = zlib.compressobj(9, wbits=31)  # gzip without a name or a time
    files.write_whole(table_path(name), packer.compress(content) + packer.flush())
    _table.cache_clear()
