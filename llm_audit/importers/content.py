"""A file's content with bounded memory: what is small is parsed whole, what is large in a stream that keeps
only what importers read."""

import csv
import json
import os
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from bench.definitions import Value

WHOLE_BYTES = 16 << 20  # a JSON file, or a line of one, up to this size is parsed whole
TEXT_CHARS = 500  # of a text that is kept
FIELD_CHARS = 1 << 20  # of a field or a line; more is no benchmark's
ITEMS = 50_000  # of an array of objects, and
NAMES = 10_000  # of an object, and
VALUES = 4_000_000  # in all of a large file are kept, and
LINES_BYTES = 64 << 20  # of JSON lines that are read
ROWS = 200_000  # rows of a CSV or lines of JSON that are read; the rest is not, and the report says so
# The header of a Markdown table and the rule below it.
MARKDOWN = re.compile(r"^[ \t]*(\|[^\n]{1,4000}\|)[ \t]*\r?\n[ \t]*\|[ \t:|-]{3,4000}\|?[ \t]*\r?$", re.M)
# What importers never read, and what would fill the memory.
SKIPPED = {
    "request_args",
    "info",
    "pdf",
    "percentile_cis",
    "mean_ci",
    "responses",
    "tool_calls",
    "raw_response",
}


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
        self.is_json = self.text.lstrip()[:1] in "{["

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
    def _documents(self):
        """The JSON values that the file holds one after the other; empty where it is no JSON."""
        if not self.is_json:
            return []
        try:
            if self._lines_of_json:
                return self._records()
            if self.bytes <= WHOLE_BYTES:
                return self._whole()
            from llm_audit.importers.stream import parse  # only large files need its library

            return parse(self.path, self.notes)
        except RecursionError:
            raise ValueError(
                f"{self.path.name} is nested too deep for a benchmark's result; it was not read."
            ) from None
        except (ValueError, UnicodeDecodeError) as error:
            reason = " ".join(str(error).split())[:120]
            raise ValueError(
                f"{self.path.name} is damaged: it begins as JSON but does not parse ({reason}). Copy it anew."
            ) from None

    def _whole(self):
        """The values of a small file: one, or several where the lines are too long to be seen at first."""
        content = self.path.read_bytes()
        try:
            return [json.loads(content)]
        except json.JSONDecodeError as error:
            lines = [line for line in content.splitlines() if line.strip()]
            if not error.msg.startswith("Extra data") or not all(line[:1] == b"{" for line in lines):
                raise
            return [json.loads(line) for line in lines]

    @cached_property
    def _lines_of_json(self):
        """Whether the first line is a JSON object of its own and another line follows it."""
        first, _, rest = self.text.lstrip().partition("\n")
        try:
            return isinstance(json.loads(first), dict) and rest.lstrip()[:1] == "{"
        except (ValueError, RecursionError):
            return False

    def _records(self):
        """The object of each line, long texts cut."""
        found, size = [], 0
        for line in self._lines(WHOLE_BYTES):
            size += len(line)
            if line.strip():
                try:
                    found.append({k: _cut(v) for k, v in json.loads(line).items() if k not in SKIPPED})
                except (ValueError, AttributeError):
                    raise ValueError(f"line {len(found) + 1} is no JSON object") from None
            if len(found) >= ROWS or size > LINES_BYTES:
                self.notes.append(f"The file is large: only its first {len(found):,} lines were read.")
                break
        return found

    def _lines(self, limit=FIELD_CHARS):
        """Lines of the file as text; ValueError for one that is longer than any benchmark's."""
        with open(self.path, "rb") as source:
            while line := source.readline(limit):
                if len(line) == limit:
                    raise ValueError(
                        f"{self.path.name} has a line of more than {limit:,} bytes, as no known "
                        f"format has; it was not read."
                    )
                yield line.decode("utf-8-sig", errors="replace")

    @cached_property
    def delimiter(self) -> str:
        """What separates the fields of a CSV: the most frequent of comma, semicolon and tab in its header; in
        a text with a Markdown table the bar."""
        if MARKDOWN.search(self.text):
            return "|"
        return max(",;\t", key=self.text.partition("\n")[0].count)

    @cached_property
    def header(self) -> list[str]:
        """The names in the first line of a CSV."""
        return [name.strip() for name in next(self._csv(), [])]

    def rows(self) -> Iterator[list[str]]:
        """Rows of a CSV after its header, each a list of texts; ValueError for a field that is longer than
        any benchmark's."""
        reader = self._csv()
        next(reader, None)
        for number, row in enumerate(reader):
            if number >= ROWS:
                self.notes.append(f"Only the first {ROWS:,} rows were read.")
                return
            if row:
                yield row

    def _table_lines(self):
        """Rows of the first Markdown table of a text, its header first, without the bars around them."""
        header, begun = MARKDOWN.search(self.text)[1].strip(), False
        for line in self._lines():
            plain = line.strip()
            begun |= plain == header
            if begun and not plain.startswith("|"):
                return
            if begun and not set(plain) <= set("|:- "):
                yield "|".join(cell.strip(" *`") for cell in plain.strip("|").split("|"))

    def _csv(self):
        """Rows of a CSV as lists of texts, its header first."""
        csv.field_size_limit(FIELD_CHARS)
        lines = self._table_lines() if self.delimiter == "|" else self._lines()
        reader = csv.reader((line.replace("\0", "") for line in lines), delimiter=self.delimiter)
        while True:
            try:
                yield next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise ValueError(
                    f"{self.path.name} is damaged: its line {reader.line_num} is no CSV ({error})."
                ) from None


def _cut(value):
    """A text of a record as long as anybody compares it, anything else as it is."""
    return value[:TEXT_CHARS] if isinstance(value, str) else value


def _names(names):
    shown = [str(name)[:30] for name in list(names)[:8]]
    return ", ".join(shown) if shown else "no names"
