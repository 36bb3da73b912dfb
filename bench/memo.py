"""Results of long computations, kept for as long as the process lives, and from `begin` on for others.

Quarto executes each page in a process of its own, and several pages ask for the same long computation. The
key of a result is what its caller names, and the code behind it (`code`), so that a change in any function
that it depends on is seen, and one elsewhere costs nothing. All else that results depend on (data/,
study.yaml, versions of libraries) names the folder. Deleting .cache/ costs nothing but time.
"""

import ast
import functools
import hashlib
import os
import pickle
import re
import shutil
import sys
import time
from collections.abc import Callable, Hashable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from bench import paths
from bench.paths import CACHE, ROOT
from llm_measured.core.definitions import Result
from llm_measured.core.files import write_whole

LIBRARIES = "numpy pandas scipy matplotlib seaborn".split()
# Variables that say where something lies: no result depends on the place, and all on what is read there.
PLACES = {
    "BENCH_RESULTS",
    "BENCH_SITE",
    "BENCH_FIGURES",
    "BENCH_DOWNLOADS",
    "BENCH_CACHE",
    "BENCH_FINISHED",
    "BENCH_CELLS_RUN",
}
LEFT = 2  # folders of other inputs or observations that stay, those that were written to last
UNUSED_S = 14 * 86400.0  # what nobody read for so long, such as the results of older code, goes
IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+import\s+(\([^)]*\)|[^\n]+)|import\s+([^\n]+))", re.M)
DYNAMIC = re.compile(r"\b(importlib\.import_module|pkgutil\.iter_modules)\(")

_FOLDER: Path | None = None


def begin(*facts: str) -> None:
    """From now on this process shares what it computes with others of the same inputs and `facts`."""
    inputs: Iterable[str | Path] = [
        sys.version,
        *facts,
        *(f"{name} {metadata.version(name)}" for name in LIBRARIES),
        *sorted(f"{k}={os.environ[k]}" for k in os.environ if k.startswith("BENCH_") and k not in PLACES),
        *sorted(file for file in (ROOT / "data").rglob("*") if file.is_file()),
        *sorted(file for file in (ROOT / "llm_measured").rglob("*.csv*")),
        ROOT / "study.yaml",
    ]
    folder = CACHE / digest(inputs)[:16]
    if CACHE.is_dir() and not folder.exists():
        # Not all: another site may be in the making, of other observations.
        for old in sorted(CACHE.iterdir(), key=lambda each: each.stat().st_mtime)[:-LEFT]:
            shutil.rmtree(old, ignore_errors=True)
    for file in folder.glob("*") if folder.exists() else ():
        if file.stat().st_mtime < time.time() - UNUSED_S:
            file.unlink(missing_ok=True)
    keep_in(folder)


def keep_in(folder: Path | None) -> None:
    """Keep results in `folder` as well, for other processes; None: no longer."""
    global _FOLDER
    _FOLDER = Path(folder) if folder else None


def folder() -> Path | None:
    """Where results are kept for other processes (`keep_in`), None where they are not."""
    return _FOLDER


def digest(parts: Iterable[str | Path]) -> str:
    """SHA-256 of texts, and of files with their names in the repository: the same in each of its clones."""
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path) and part.is_relative_to(ROOT):
            total.update(f"{part.relative_to(ROOT)}\0".encode())
        else:
            total.update(f"{part}\0".encode())
        if isinstance(part, Path):
            total.update(hashlib.sha256(part.read_bytes()).digest())
    return total.hexdigest()


@functools.cache
def code(module: str, of: Callable[[Path], str] | None = None) -> str:
    """SHA-256 of the source of `module` and of every module of its package and of the repository that it
    imports, however far; of a package that imports what it finds in its folder, all files there. Empty where
    there is no source. `of`: what counts of each file, such as `computes`, instead of its text."""
    own = {*paths.packages(), module.partition(".")[0]}
    waiting, found = [module], set()
    while waiting:
        name = waiting.pop()
        file = _source(name) if name.partition(".")[0] in own else None
        if file is None or file in found:
            continue
        found.add(file)
        text = file.read_text(encoding="utf-8")
        waiting.append(name.rpartition(".")[0])  # a package is imported before what is in it
        for source, names, plain in IMPORT.findall(text):
            words = re.findall(r"[\w.]+", re.sub(r"#.*|\bas\s+\w+", "", names or plain))
            waiting += [source, *(f"{source}.{word}" for word in words)] if source else words
        if DYNAMIC.search(text):
            found |= set(file.parent.rglob("*.py"))
    return digest(map(of, sorted(found)) if of else sorted(found)) if found else ""


class _Computing(ast.NodeTransformer):
    """What a module computes: without what only readers and mypy see."""

    def _body(self, node: Any) -> Any:  # noqa: ANN401  # whatever has a body
        self.generic_visit(node)
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            node.body.pop(0)  # the docstring
        return node

    visit_Module = visit_ClassDef = _body

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self._body(node)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if isinstance(node.annotation, ast.Name) and node.annotation.id == "TypeAlias":
            return None
        return ast.Assign([node.target], node.value or ast.Constant(None))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        return None if node.module in ("__future__", "typing", "collections.abc") else node


def computes(file: Path) -> str:
    """SHA-256 of what a module computes, its syntax without comments, docstrings and types: what holds for a
    module still does where only these have changed."""
    tree = _Computing().visit(ast.parse(file.read_text(encoding="utf-8")))
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def _source(module: str) -> Path | None:
    """File of a module of the repository, None where there is none."""
    top, *rest = module.split(".")
    home = getattr(sys.modules.get(top), "__file__", None)
    place = Path(home).parent.joinpath(*rest) if home else ROOT.joinpath(top, *rest)
    return next((f for f in (place.with_suffix(".py"), place / "__init__.py") if f.is_file()), None)


def kept(key: Hashable, compute: Callable[[], Result]) -> Result:
    """`compute()`, or what it gave before for the same `key` (anything with a repr that says all) and the
    same code, in the folder of `keep_in`. A damaged file counts as none, and each is written whole."""
    if _FOLDER is None:
        return compute()
    module = getattr(compute, "func", compute).__module__
    file = _FOLDER / hashlib.sha256(repr((key, code(module))).encode()).hexdigest()
    try:
        found = pickle.loads(file.read_bytes())
        os.utime(file)
        return found
    except Exception:  # not there, cut off, or of another version of a library
        found = compute()
    try:
        write_whole(file, pickle.dumps(found))
    except OSError:  # a full disk, or one that may not be written: the result is there all the same
        pass
    return found
