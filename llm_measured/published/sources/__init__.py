"""The sources: each a row of sources.csv, which says where its files come from and under which licence, and a
folder of raw files; a module here where its files have to be parsed, with `rows(raw)`, which yields what
`Place.row` and `Place.left_out` return. Of a source without one the rows are as they were built."""

import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Protocol

import pandas as pd

from llm_measured.published.reading import LeftOut, Raw, Row, SourceError
from llm_measured.published.sources import _columns

FACTS = "facts"
COLUMNS = "columns"  # instead of a module: columns.csv says what the files' columns are
LIST = Path(__file__).parents[1] / "sources.csv"


@dataclass(frozen=True)
class Source:
    """Where raw files come from and under which licence.

    `licence` is the SPDX identifier of the files themselves, `facts` where none is stated or none allows
    copying; `licences` names files (patterns) with another one. `files` are those that the importer reads.
    """

    repository: str
    commit: str
    licence: str
    kind: str
    measured_by: str
    citation: str
    files: tuple[str, ...]
    published_on: str = ""
    retrieved: str = "2026-11-23"
    licences: dict[str, str] = field(default_factory=dict)
    urls: dict[str, tuple[str, str]] = field(default_factory=dict)
    module: str = ""

    def licence_of(self, file: str) -> str:
        """Licence of one raw file."""
        return next((v for p, v in self.licences.items() if fnmatchcase(file, p)), self.licence)

    def origin_of(self, file: str) -> tuple[str, str]:
        """(repository, commit) of one raw file."""
        found = (v for p, v in self.urls.items() if fnmatchcase(file, p))
        return next(found, (self.repository, self.commit))


@cache
def listed() -> dict[str, Source]:
    """Return every source by name, as sources.csv has it; shared by all callers: nobody may change it."""
    table = pd.read_csv(LIST, dtype=str, keep_default_na=False).sort_values("source")
    found = {}
    for row in table.to_dict("records"):
        name, files = row.pop("source"), row.pop("files")
        row.pop("note")
        licences, urls = _pairs(row.pop("licences")), _pairs(row.pop("urls"))
        origins = {}
        for pattern, origin in urls.items():
            url, commit = origin.split(" @ ")
            origins[pattern] = url, commit
        found[name] = Source(files=tuple(files.split(" ; ")), licences=licences, urls=origins, **row)
    return found


def _pairs(text: str) -> dict[str, str]:
    """Return {pattern: value} of `pattern = value ; pattern = value`."""
    return dict(part.split(" = ", 1) for part in text.split(" ; ") if part)


class Importer(Protocol):
    """What reads the raw files of a source: a module of this folder, or lines of columns.csv."""

    ABOUT: Source

    def rows(self, raw: Raw) -> Iterator[Row | LeftOut]:
        """Yield a row, or what was left out, for each record."""


@dataclass
class OfColumns:
    """The importer of a source whose files are CSV with named columns."""

    ABOUT: Source

    def rows(self, raw: Raw) -> Iterator[Row | LeftOut]:
        """Yield a row, or what was left out, for each record."""
        return _columns.rows(raw, self.ABOUT.files)


def about(source: str) -> Source:
    """Return what sources.csv says of `source`; SourceError naming those that there are."""
    if source not in listed():
        raise SourceError(f"There is no source {source!r}; there are {', '.join(listed())}.")
    return listed()[source]


def importer(source: str) -> "Importer | None":
    """Return the module of `source`, or what reads its CSV by columns.csv, None where its rows stay as they
    were built; SourceError where the module that sources.csv names is missing."""
    module = about(source).module
    if not module:
        return None
    if module == COLUMNS:
        return OfColumns(about(source))
    if module not in _here():
        raise SourceError(f"{source}: sources.csv names the module {module}.py, which is not here.")
    module_of: Importer = importlib.import_module(f"{__name__}.{module}")  # type: ignore[assignment]
    return module_of


def _here() -> set[str]:
    """Return the names of the modules in this folder; one that begins with _ is of no source."""
    return {file.name for file in pkgutil.iter_modules(__path__) if not file.name.startswith("_")}


def of_files(files: Iterable[str]) -> list[str]:
    """Return the sources to which one of `files` (relative to the repository) belongs: importer, raw file or
    rows."""
    names = {one.module: name for name, one in listed().items() if one.module}
    found = set()
    for file in files:
        parts = file.split("/")
        if file.startswith("llm_measured/published/sources/"):
            found.add(names.get(parts[-1].removesuffix(".py"), ""))
        elif file.startswith("data/observatory/") and len(parts) > 3:
            found.add(parts[3].removesuffix(".csv.gz"))
    return sorted(found & set(listed()))


def is_licensed(source: str) -> bool:
    """Return whether `source` has a licence that lets rows be changed and passed on: stated, and not ND."""
    licence = about(source).licence
    return licence != FACTS and "-ND" not in licence


def modules() -> Iterator[tuple[str, Importer]]:
    """Yield (name, module) of every source that has one, by name; SourceError where one is missing, or where
    a module is of no source."""
    known = {one.module for one in listed().values()} - {COLUMNS}
    if unknown := sorted(_here() - known):
        raise SourceError(f"{unknown[0]}.py is the module of no source: sources.csv has no row with it.")
    for name in listed():
        module = importer(name)
        if module is not None:
            yield name, module
