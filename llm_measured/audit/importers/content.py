"""A file's content with bounded memory: what is small is parsed whole, what is large in a stream that keeps
only what importers read."""

import copy
import csv
import itertools
import json
import os
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from llm_measured.audit.importers import stream, text_tables
from llm_measured.core.definitions import Fields, Value

WHOLE_BYTES = 16 << 20  # a file of JSON up to this size is parsed whole
FIELD_CHARS = 1 << 20  # of a field or a line; more is no benchmark's
ROWS = 200_000  # rows of a CSV that are read; the rest is not, and the report says so
TEXT_BYTES = 8 << 20  # of a log or a page that are searched for results
SPACE = re.compile(r"[ \t\n\r]*")  # between values of JSON
# A log's line that begins as JSON would: a moment or a level in brackets, and then a text.
LOG = re.compile(r"^\s*\[[^\[\]{}\"\n]{1,60}\]\s*[^\s,\]]")
YAML = {".yaml", ".yml"}
YAML_BYTES = 1 << 20  # its parser takes a second for so much
BAD_ROWS = 0.1  # share of rows with a field too many up to which they alone are left out


def _beginning(path):
    """(first bytes, size) of a file; ValueError with one sentence for one that cannot be audited."""
    if not path.is_file():
        raise ValueError(f"{path.name} is not a file that can be read; name a benchmark's result file.")
    try:
        size = os.path.getsize(path)
        with open(path, "rb") as source:
            head = source.read(1 << 16)
    except OSError as error:
        raise ValueError(f"{path.name} cannot be read ({error.strerror}); check its permissions.") from None
    if not head.strip():
        raise ValueError(f"{path.name} is empty; there is nothing to audit.")
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ValueError(f"{path.name} is UTF-16; save it as UTF-8 first.")
    if b"\0" in head:
        raise ValueError(
            f"{path.name} is not text (it has zero bytes); unpack or export it as JSON or CSV first."
        )
    return head, size


class Content:
    """One file, opened once: `json` (parsed, or None), `records` (JSON lines, or None), `header` and `rows`
    (CSV), `text` (its beginning).

    ValueError with one sentence for a file that is empty, no text, or damaged.
    """

    def __init__(self, path: Path, mapping: dict[str, str] | None) -> None:
        self.path, self.mapping, self.notes = path, mapping, []
        head, self.bytes = _beginning(path)
        self.text = head.decode("utf-8-sig", errors="replace")
        begins = self.text.lstrip()[:1] in "{[" and not LOG.match(self.text)
        self.is_yaml = path.suffix.lower() in YAML and not begins
        self.is_json = begins or self.is_yaml
        self._table: list[list[str]] | None = None

    def of_table(self, rows: list[list[str]]) -> "Content":
        """A table that stands in this file, as if it were a file of its own."""
        part = copy.copy(self)
        for name in vars(Content):  # what was computed of the whole file
            part.__dict__.pop(name, None)
        part.notes, part.is_json, part._table = [], False, rows
        part.text = "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], *rows])
        return part

    @cached_property
    def whole_text(self) -> str:
        """The text of a log or a page, as much of it as is searched."""
        with open(self.path, "rb") as source:
            return source.read(TEXT_BYTES).decode("utf-8-sig", errors="replace")

    @cached_property
    def tables(self) -> list[list[list[str]]]:
        """The tables that stand in a text, each a list of rows, the header first."""
        return [] if self.is_json or self._table else text_tables.tables(self.whole_text)

    def described(self) -> str:
        """What kind of file it seems to be, with the first names that it holds."""
        if self.json is not None:
            first = self.json[0] if isinstance(self.json, list) and self.json else self.json
            return f"JSON with {_names(first) if isinstance(first, dict) else 'no object'}"
        if self.records is not None:
            first = self.records[0]
            return f"JSON lines with {_names(first) if isinstance(first, dict) else 'no object'}"
        return f"text whose first line has {_names(self.header)}"

    @cached_property
    def json(self) -> Value:
        """The parsed JSON of the file, None where it is none or where every line is one of its own."""
        return None if len(self._documents) != 1 else self._documents[0]

    @cached_property
    def records(self) -> list | None:
        """The objects of a file of JSON lines, None where it is none."""
        return self._documents if len(self._documents) > 1 else None

    @cached_property
    def objects(self) -> list[Fields]:
        """The objects of JSON lines or of a list, or the one that the file holds."""
        found = self.json if self.records is None else self.records
        return [one for one in (found if isinstance(found, list) else [found]) if isinstance(one, dict)]

    @cached_property
    def _documents(self):
        """The JSON values that the file holds one after the other; empty where it is no JSON."""
        if not self.is_json:
            return []
        try:
            if self.is_yaml:
                return [self._yaml()]
            if self.bytes <= WHOLE_BYTES:
                return self._whole()
            return stream.parse(self.path, self.notes)
        except RecursionError:
            raise ValueError(
                f"{self.path.name} is nested too deep for a benchmark's result; it was not read."
            ) from None
        except ValueError as error:
            reason, form = " ".join(str(error).split())[:120], "YAML" if self.is_yaml else "JSON"
            raise ValueError(
                f"{self.path.name} is damaged: it begins as {form} but does not parse ({reason}). "
                "Copy it anew."
            ) from None

    def _yaml(self):
        """The one value of a YAML file: texts, numbers, lists and objects, and no code."""
        import yaml  # only such files need it

        if self.bytes > YAML_BYTES:
            raise ValueError(f"more than {YAML_BYTES:,} bytes of YAML are not read; export it as JSON")
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        try:
            return yaml.load(self.path.read_bytes(), loader)
        except yaml.YAMLError as error:
            raise ValueError(error) from None

    def _whole(self):
        """The JSON values of a small file, one after the other; of several each has to be an object."""
        text = self.path.read_bytes().decode("utf-8-sig", errors="replace").strip()
        decode, found, place = json.JSONDecoder().raw_decode, [], 0
        while place < len(text):
            value, place = decode(text, place)
            place = SPACE.match(text, place).end()
            found.append(value)
        if len(found) > 1 and not all(isinstance(one, dict) for one in found):
            raise ValueError("of several values one is no object")
        return found

    def _lines(self):
        """Lines of the file as text; ValueError for one that is longer than any benchmark's."""
        with open(self.path, "rb") as source:
            while line := source.readline(FIELD_CHARS):
                if len(line) == FIELD_CHARS:
                    raise ValueError(
                        f"{self.path.name} has a line of more than {FIELD_CHARS:,} bytes, as no known "
                        f"format has; it was not read."
                    )
                yield line.decode("utf-8-sig", errors="replace")

    @cached_property
    def delimiter(self) -> str:
        """What separates the fields of a CSV: the most frequent of comma, semicolon and tab in its header."""
        first = self.text.partition("\n")[0]
        return "|" if self._table else max(",;\t", key=first.count)

    @cached_property
    def header(self) -> list[str]:
        """The names in the first line of a CSV."""
        return [name.strip() for name in next(self._csv(), [])]

    def beginning(self, count: int) -> list[list[str]]:
        """The first rows of a CSV after its header, as they stand there, `count` at most."""
        return list(itertools.islice(self._csv(), 1, count + 1))

    def rows(self) -> Iterator[list[str]]:
        """Rows of a CSV after its header, each a list of texts; ValueError for a field that is longer than
        any benchmark's, and where many rows have a field that no name stands above."""
        reader, width = self._csv(), len(self.header)
        next(reader, None)
        long, read, first = 0, 0, ""
        for number, row in enumerate(reader):
            if number >= ROWS:
                self.notes.append(f"Only the first {ROWS:,} rows were read.")
                break
            if len(row) > width and any(cell.strip() for cell in row[width:]):
                long += 1
                first = first or f"row {number + 1} has {len(row)} fields and the header {width} names"
                if long > max(1, BAD_ROWS * (read + long)) and long >= 3:
                    break
            elif row:
                read += 1
                yield row[:width] if width else row
        if long > BAD_ROWS * (read + long):
            raise ValueError(
                f"{self.path.name}: {first}, so nobody can say which field is which; nothing was read. "
                "Quote fields that hold the separator, or add the missing name to the header."
            )
        if long:
            self.notes.append(f"{long} rows were left out: {first}.")

    def _csv(self):
        """Rows of a CSV as lists of texts, its header first."""
        if self._table:
            yield from self._table
            return
        csv.field_size_limit(FIELD_CHARS)
        lines = (line.replace("\0", "") for line in self._lines())
        reader = csv.reader(lines, delimiter=self.delimiter)
        while True:
            try:
                yield next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise ValueError(
                    f"{self.path.name} is damaged: its line {reader.line_num} is no CSV ({error})."
                ) from None


def _names(names):
    shown = [str(name)[:30] for name in list(names)[:8]]
    return ", ".join(shown) if shown else "no names"
