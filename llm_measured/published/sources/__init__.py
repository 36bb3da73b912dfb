"""One module for each source: `ABOUT` (a `Source`) and `rows(raw)`, which yields what `Place.row` and
`Place.left_out` return. A module is found by being here; its name with hyphens is the folder of raw data."""

import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import ModuleType

FACTS = "facts"


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

    def licence_of(self, file: str) -> str:
        """Licence of one raw file."""
        return next((v for p, v in self.licences.items() if fnmatchcase(file, p)), self.licence)

    def origin_of(self, file: str) -> tuple[str, str]:
        """(repository, commit) of one raw file."""
        found = (v for p, v in self.urls.items() if fnmatchcase(file, p))
        return next(found, (self.repository, self.commit))


def of_files(files: Iterable[str]) -> list[str]:
    """Sources to which one of `files` (relative to the repository) belongs: importer, raw file or rows."""
    names = {module.__name__.rsplit(".", 1)[-1]: name for name, module in modules()}
    found = set()
    for file in files:
        parts = file.split("/")
        if file.startswith("llm_measured/published/sources/"):
            found.add(names.get(parts[-1].removesuffix(".py"), ""))
        elif file.startswith("data/observatory/") and len(parts) > 3:
            found.add(parts[3].removesuffix(".csv.gz"))
    return sorted(found & set(names.values()))


def is_licensed(source: str) -> bool:
    """Whether `source` has a licence that lets its rows be changed and passed on: stated, and not ND."""
    about = dict(modules())[source].ABOUT
    return about.licence != FACTS and "-ND" not in about.licence


def modules() -> Iterator[tuple[str, ModuleType]]:
    """(name, module) of every source, by name; a module whose name begins with _ is none."""
    found = {}
    for file in pkgutil.iter_modules(__path__):
        if not file.name.startswith("_"):
            module = importlib.import_module(f"{__name__}.{file.name}")
            found[getattr(module, "NAME", file.name.replace("_", "-"))] = module
    yield from sorted(found.items())
