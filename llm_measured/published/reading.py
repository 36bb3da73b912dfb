"""Raw files of one source, read without trusting them: text and numbers only, nothing executed or unpacked to
disk."""

import csv
import fnmatch
import gzip
import hashlib
import io
import json
import lzma
import math
import re
import sqlite3
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from llm_measured.core.definitions import Column, Fields, Value
from llm_measured.published import schema

MAX_BYTES = 64_000_000  # of one raw file, unpacked
MAX_TEXT = 400  # characters of one cell that is kept
CUTS = {
    "path of a user": re.compile(
        r"(?<![\w.~…-])(?:[A-Za-z]+:)?(?:~|/(?:home|Users|root|tmp|mnt|scratch|workspace|work|lustre|gpfs"
        r"|private|var/folders|media|data0?|opt|raid|nvme))(?:/[\w.+=@%-]+)+/?"
        r"|(?<![\w.:/~…-])/(?:home|Users|root|tmp|mnt|scratch|workspace|work|lustre|gpfs|private)/?"
        r"(?=[\s\"'<>)\],;]|$)|[A-Za-z]:\\+Users\\+[^\s\"'<>\\]+"
    ),
    "e-mail address": re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}\b"),
    "host": re.compile(
        r"\b(?:127\.0\.0\.1|192\.168\.\d{1,3}\.\d{1,3}|10(?:\.\d{1,3}){3}(?=:\d)"
        r"|172\.(?:1[6-9]|2\d|3[01])\.\d{1,3}\.\d{1,3})(?::\d+)?(?![\w.])"
        r"|\b[a-z_][\w-]*@[a-z][\w.-]*(?=:[~/])|\blocalhost(?::\d+)?\b"
    ),
}
FORMULA = re.compile(r"^\s*[=+@\t\r]|^\s*-(?!\d*\.?\d*\s*$)")
MARKUP = re.compile(r"<\s*[A-Za-z/!?]|javascript:", re.I)
DATE = re.compile(r"^\d{4}(-\d{2}(-\d{2})?)?$")
THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d*)?")
EMPTY = {"", "-", "–", "n/a", "na", "*na*", "null", "none", "oom"}


class SourceError(ValueError):
    """A raw file that cannot be read; one sentence that names it."""


class Refused(ValueError):
    """A row that cannot be kept; one sentence that names column and value."""


class Record(dict):
    """A record of a raw file: a name that it lacks is None, so that a file with fewer columns is read too,
    and is counted in `lacked`."""

    lacked: Counter | None = None

    def __missing__(self, key: str) -> None:
        if self.lacked is not None and isinstance(key, str):
            self.lacked[key] += 1

    def at(self, *path: str) -> Value:
        """What stands under `path` in nested objects, None where there is nothing."""
        value: Value = self
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return value


@dataclass(frozen=True)
class Row:
    """One measured point: columns of the schema with their values, cleaned."""

    columns: Fields


@dataclass(frozen=True)
class LeftOut:
    """A record that is not kept, with the reason; `refused` where its content was the reason."""

    file: str
    row: str
    reason: str
    refused: bool = False


def checked(value: Value) -> float | int | None:
    """`value` as a number that is finite and not negative, None where it is empty; Refused otherwise."""
    if (
        value is None
        or isinstance(value, bool)
        or (isinstance(value, str) and value.strip().lower() in EMPTY)
    ):
        return None
    if isinstance(value, str):
        text = value.strip()
        if "," in text and not THOUSANDS.fullmatch(text):
            raise Refused(f"{text[:40]!r} has a comma that parts no thousands: see `decimal_comma`")
        try:
            value = float(text.replace(",", ""))
        except ValueError:
            raise Refused(f"{text[:40]!r} stands where a number should") from None
    if not isinstance(value, (int, float)):
        raise Refused(f"{type(value).__name__} stands where a number should")
    if isinstance(value, int) and abs(value) > 1e300:
        raise Refused("a number of hundreds of digits")
    if not math.isfinite(value):
        raise Refused(f"{value} is not a number that can be measured")
    if value < 0:
        raise Refused(f"{value} is negative")
    return int(value) if float(value).is_integer() and abs(value) < 2**53 else float(value)


def number(value: Value) -> float | int | None:
    """`value` as a number for arithmetic, None where it is empty or no sound number."""
    try:
        return checked(value)
    except Refused:
        return None


def scaled(value: Value, factor: float | str) -> Value:
    """`value` × `factor` without binary rounding: what a unit's change does to a printed number. What is no
    sound number comes back as it is, for `Place.row` to refuse."""
    plain = number(value)
    if plain is None:
        return value
    try:
        return number(float(Decimal(repr(plain)) * Decimal(str(factor))))
    except InvalidOperation:
        return value


def decimal_comma(text: Value) -> Value:
    """A number as it is written with a decimal comma ("1.234,5"), with a point instead ("1234.5")."""
    return text.strip().replace(".", "").replace(",", ".") if isinstance(text, str) else text


def leading(text: Value) -> Value:
    """The number that `text` begins with ("181 t/s", "**205** t/s", "39.6 ± 0.7"), None where it is empty.
    What begins with none comes back as it is, for `Place.row` to refuse."""
    if text is None or isinstance(text, (int, float)):
        return text
    plain = re.sub(r"[*_`~≈]|<[^>]*>", "", str(text)).strip()
    if plain.lower() in EMPTY:
        return None
    found = re.match(r"-?\d[\d,]*\.?\d*(?:[eE][+-]?\d+)?", plain)
    return found[0] if found else plain


def day(value: Value) -> str | None:
    """YYYY-MM-DD of a date as tools write it ("20250711-120000", "2025-07-11 12:00"), else None."""
    text = str(value or "")
    found = re.match(r"(\d{4})-(\d{2})-(\d{2})|(\d{4})(\d{2})(\d{2})(?!\d)", text)
    return "-".join(part for part in found.groups() if part) if found else None


def after_sign(text: Value) -> str | None:
    """The number after ± in `text`, None where there is none."""
    found = re.search(r"±\s*([\d.]+)", str(text or ""))
    return found[1] if found else None


def hidden(text: str) -> Counter:
    """How many paths of users, addresses and hosts stand in `text`."""
    return Counter(
        {what: len(pattern.findall(text)) for what, pattern in CUTS.items() if pattern.search(text)}
    )


def cut(text: str) -> str:
    """`text` without paths of users, addresses and hosts; of a path its last name stays, as it may be the
    model's."""
    for what, pattern in CUTS.items():

        def instead(found: re.Match, what: str = what) -> str:
            last = found[0].rstrip("/").rsplit("/", 1)[-1]
            own = "/" in found[0].strip("/") and "@" not in last and "\\" not in last
            return "…/" + last if what == "path of a user" and own else "…"

        text = pattern.sub(instead, text)
    return text


def _value(column: Column, value: Value) -> Value:
    if column.type in ("number", "count"):
        plain = checked(value)
        if column.type == "count" and plain is not None and not float(plain).is_integer():
            raise Refused(f"{plain} is not a whole number")
        return plain
    if value is None:
        return None
    if isinstance(value, bool):
        value = "yes" if value else "no"
    if isinstance(value, (dict, list, bytes)):
        raise Refused(f"{type(value).__name__} stands where a text should")
    text = " ".join(str(value).split())
    if not text:
        return None
    if column.name != "as_printed":
        if FORMULA.search(text):
            raise Refused(f"{text[:40]!r} begins like a formula of a spreadsheet")
        text = cut(text)
        if len(text) > MAX_TEXT:
            text = text[: MAX_TEXT - 1] + "…"
    if MARKUP.search(text):
        raise Refused(f"{text[:40]!r} holds markup")
    if column.type == "choice" and text not in column.choices:
        raise Refused(f"{text[:40]!r} is none of {', '.join(column.choices)}")
    if column.type == "date":
        text = text[:10]
        try:
            date.fromisoformat((text + "-01-01")[:10])
            real = bool(DATE.match(text))
        except ValueError:
            real = False
        if not real:
            raise Refused(f"{text!r} is no date")
    return text


@dataclass
class Place:
    """One record of a raw file: where it stands, and what it says."""

    raw: "Raw"
    file: str
    line: str
    record: Value

    def cell(self, name: str) -> "Place":
        """One cell of a record that holds several measurements."""
        return Place(self.raw, self.file, f"{self.line}#{name}", [self.record, name])

    def left_out(self, reason: str) -> LeftOut:
        """The record is not a measurement that the observatory keeps."""
        return LeftOut(self.file, self.line, reason)

    def row(self, printed: Fields | None = None, **columns: Any) -> Row | LeftOut:
        """The record as a row; `printed` has the columns that the file's own labels give another value.

        A value that cannot be is no error of the importer: the record is left out, and the sentence says
        which column.
        """
        found: Fields = {}
        unknown = [name for name in [*columns, *(printed or {})] if name not in schema.BY_NAME]
        if unknown:
            raise SourceError(f"{self.raw.source}: the schema has no column {unknown[0]!r}.")
        for name, value in columns.items():
            try:
                value = _value(schema.BY_NAME[name], value)
            except Refused as refused:
                return LeftOut(self.file, self.line, f"{name}: {refused}", refused=True)
            if value is not None:
                found[name] = value
        try:
            differs = {name: _value(schema.BY_NAME[name], value) for name, value in (printed or {}).items()}
        except Refused as refused:
            return LeftOut(self.file, self.line, str(refused), refused=True)
        differs = {name: value for name, value in differs.items() if value != found.get(name)}
        if differs:
            found["as_printed"] = json.dumps(differs, ensure_ascii=False, sort_keys=True)
        if not any(name in found for name in (*schema.MEASURED, "quality")):
            return self.left_out("nothing measured in it")
        canonical = json.dumps([self.file, self.record], sort_keys=True, default=str, ensure_ascii=False)
        # What is cut from a published copy of the file may not change the id.
        digest = hashlib.sha256(cut(canonical).encode("utf-8", "replace")).hexdigest()[:12]
        found |= {"source_file": self.file, "source_row": self.line, "row_id": digest}
        return Row(found)


@dataclass
class Raw:
    """The folder of one source's raw files: plain, .gz, .xz, or together in .tar.xz; read in memory.

    `ragged` counts lines whose number of fields is not the header's, `cuts` what was cut out of texts,
    `lacked` how often a name was looked for in a record without it, `held` has the names that records have;
    `notes` are sentences about the reading.
    """

    source: str
    folder: Path
    cuts: Counter = field(default_factory=Counter)
    ragged: Counter = field(default_factory=Counter)
    read: set[str] = field(default_factory=set)
    lacked: Counter = field(default_factory=Counter)
    held: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    current: str = ""
    _counted: set[str] = field(default_factory=set)
    _archived: dict[str, bytes] | None = None
    _listed: dict[str, Path] | None = None

    def _record(self, pairs: Iterable[tuple[str, Value]]) -> Record:
        record = Record(pairs)
        record.lacked = self.lacked
        self.held.update(record)
        return record

    def files(self, *patterns: str) -> list[str]:
        """Names of the raw files that match one of `patterns` (* passes slashes), sorted."""
        every = [*self._plain(), *self._archives()]
        return sorted({f for f in every if any(fnmatch.fnmatchcase(f, p) for p in patterns)})

    def _plain(self) -> dict[str, Path]:
        if self._listed is not None:
            return self._listed
        self._listed = found = {}
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and not path.is_symlink() and not path.name.endswith((".tar.xz", ".tar.gz")):
                name = path.relative_to(self.folder).as_posix()
                found[re.sub(r"\.(gz|xz)$", "", name)] = path
        return found

    def _archives(self) -> dict[str, bytes]:
        if self._archived is None:
            self._archived = {}
            for path in sorted([*self.folder.glob("*.tar.xz"), *self.folder.glob("*.tar.gz")]):
                total = 0
                try:
                    with tarfile.open(path) as archive:
                        for member in archive:
                            total += member.size
                            if member.size > MAX_BYTES or total > 8 * MAX_BYTES:
                                raise SourceError(f"{self.source}: {path.name} unpacks to more than allowed.")
                            if member.isfile():
                                self._archived[member.name] = archive.extractfile(member).read()
                except (tarfile.TarError, lzma.LZMAError, EOFError, OSError) as error:
                    raise SourceError(
                        f"{self.source}: {path.name} cannot be unpacked ({type(error).__name__})."
                    ) from None
        return self._archived

    def content(self, file: str) -> bytes:
        """The bytes of `file`, unpacked; SourceError for one that is larger than any measurement's file."""
        self.read.add(file)
        self.current = file
        path = self._plain().get(file)
        if path is None:
            return self._archives()[file]
        if path.stat().st_size > MAX_BYTES:
            raise SourceError(
                f"{self.source}: {file} has {path.stat().st_size / 1e6:,.0f} MB, and at most "
                f"{MAX_BYTES / 1e6:.0f} are read: give its table alone, or split it."
            )
        opened: Callable[..., Any] = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
        try:
            with opened(path, "rb") as stream:
                content = stream.read(MAX_BYTES + 1)
        except (OSError, EOFError, lzma.LZMAError) as error:
            raise SourceError(f"{self.source}: {file} cannot be read ({type(error).__name__}).") from None
        if len(content) > MAX_BYTES:
            raise SourceError(f"{self.source}: {file} unpacks to more than {MAX_BYTES / 1e6:.0f} MB.")
        return content

    def text(self, file: str) -> str:
        """`file` as text; SourceError where it is not UTF-8."""
        try:
            text = self.content(file).decode("utf-8-sig")
        except UnicodeDecodeError:
            raise SourceError(f"{self.source}: {file} is not UTF-8 text.") from None
        if file not in self._counted:
            self._counted.add(file)
            self.cuts.update(hidden(text))
        return text

    def _parsed(self, text: str, file: str) -> Value:
        try:
            return json.loads(text, object_pairs_hook=self._record)
        except (ValueError, RecursionError) as error:
            reason = str(error).split("\n")[0] or type(error).__name__
            raise SourceError(f"{self.source}: {file} is not JSON ({reason[:120]}).") from None

    def json(self, file: str) -> Value:
        """`file` as JSON, its objects as Records; NaN stays NaN, and is refused where a number is kept."""
        return self._parsed(self.text(file), file)

    def json_items(self, file: str, *path: str) -> Iterator[tuple[Place, Record]]:
        """(place, record) of each object of the list under `path`."""
        items = self.json(file)
        for name in path:
            items = items.get(name) if isinstance(items, dict) else None
        for index, item in enumerate(items if isinstance(items, list) else []):
            if isinstance(item, Record):
                yield Place(self, file, "/" + "/".join([*path, str(index)]), item), item

    def jsonl(self, file: str) -> Iterator[tuple[Place, Record]]:
        """(place, record) of each line of a file with one object a line."""
        for line, text in enumerate(self.text(file).splitlines(), start=1):
            if text.strip():
                record = self._parsed(text, f"{file} line {line}")
                if isinstance(record, Record):
                    yield Place(self, file, f"L{line}", record), record

    def csv(self, file: str, delimiter: str = ",") -> Iterator[tuple[Place, Record]]:
        """(place, record) of each line; a line with more fields than the header has them under `None`.

        The first line that is not empty is the header.
        """
        reader = csv.reader(io.StringIO(self.text(file)), delimiter=delimiter)
        header: list[str] | None = None
        try:
            for fields in reader:
                if not any(f.strip() for f in fields):
                    continue
                if header is None:
                    header = [name.strip() for name in fields]
                    continue
                record = self._record(zip(header, (f.strip() for f in fields)))
                if len(fields) != len(header):
                    self.ragged[file] += 1
                    record[None] = [f.strip() for f in fields]
                yield Place(self, file, f"L{reader.line_num}", fields), record
        except csv.Error as error:
            raise SourceError(f"{self.source}: {file} is not a table of text ({error}).") from None

    def tables(self, file: str) -> Iterator[tuple[Place, Record, tuple[str, ...]]]:
        """(place, record, headings above it) of each line of each Markdown table.

        `L13: ` before a line is the page's own line number, and taken for it. A cell that is empty stays so.
        """
        headings: dict[int, str] = {}
        header: list[str] | None = None
        dashes = False
        for line, text in enumerate(self.text(file).splitlines(), start=1):
            numbered = re.match(r"L(\d+): ?(.*)$", text)
            line, text = (int(numbered[1]), numbered[2]) if numbered else (line, text)
            title = re.match(r"(#+)\s+(.*)$", text.strip())
            if title:
                level = len(title[1])
                headings = {k: v for k, v in headings.items() if k < level} | {level: title[2].strip()}
                header = None
            elif "|" in text:
                cells = [c.strip() for c in re.sub(r"^\s*\||\|\s*$", "", text).split("|")]
                if header is None:
                    header, dashes = cells, False
                elif not dashes and all(re.fullmatch(r":?-+:?", c) for c in cells if c):
                    dashes = True
                elif dashes and re.fullmatch(r"[\s|:-]*", text):
                    continue
                elif dashes:
                    record = self._record(zip(header, cells))
                    yield Place(self, file, f"L{line}", [header, cells]), record, tuple(headings.values())
                else:
                    header = cells
            else:
                if text.strip():
                    headings = {k: v for k, v in headings.items() if k < 9} | {9: text.strip()}
                header = None

    def sqlite(self, file: str, table: str) -> Iterator[tuple[Place, Record]]:
        """(place, record) of each row of `table` of a database, which is opened read-only."""
        with tempfile.NamedTemporaryFile(suffix=".db") as copy:
            copy.write(self.content(file))
            copy.flush()
            try:
                with sqlite3.connect(f"file:{copy.name}?mode=ro&immutable=1", uri=True) as database:
                    database.row_factory = sqlite3.Row
                    for row in database.execute(f'SELECT rowid AS "rowid", * FROM "{table}"').fetchall():
                        record = self._record(dict(row).items())
                        yield Place(self, file, f"{table}:{record['rowid']}", record), record
            except sqlite3.Error as error:
                raise SourceError(f"{self.source}: {file} is no database with {table} ({error}).") from None

    def yaml(self, file: str) -> Value:
        """`file` as YAML, data only."""
        import yaml

        text = self.text(file)
        if re.search(r"^\s*[^#\n]*[&*]\w+", text, re.M) and len(re.findall(r"[&*]\w+", text)) > 50:
            raise SourceError(f"{self.source}: {file} holds too many references.")
        try:
            return yaml.safe_load(text)
        except (yaml.YAMLError, RecursionError):
            raise SourceError(f"{self.source}: {file} is not YAML.") from None


def joined(**settings: Any) -> str | None:
    """Settings as `name=value; name=value`, those that are empty left out."""
    kept = {name: value for name, value in settings.items() if value not in (None, "", [], {})}
    return "; ".join(f"{name}={value}" for name, value in kept.items()) or None
