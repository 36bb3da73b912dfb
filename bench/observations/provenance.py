"""Where a run comes from: revision, time, installed packages."""

import os
import re
import shutil
import subprocess
from datetime import datetime, timezone
from pathlib import Path

from bench.paths import ROOT
from llm_measured.core.definitions import Fields

# The instrument and its inputs, as paths of the repository: provenance, validity checks and the vetting of
# contributed runs look at these. Old revisions are compared by the same paths: today's llm_measured/core was
# in bench/ (metrics, names) and in data/ (tables of accelerators and models).
INSTRUMENT = "bench", "notebooks", "llm_measured/core", "data", "study.yaml"
# Environment variable in which a study says to each of its runs where it stands in its order.
ORDER = "BENCH_ORDER"


def git_state() -> Fields:
    """Revision, whether the instrument or its inputs differ from it, and the files of the instrument that do.

    On a machine without git the revision alone, and `dirty` None: nobody has looked.
    """
    if not shutil.which("git"):
        return {"revision": _head(), "dirty": None}

    changed = _git("status", "--porcelain", "--untracked-files=all", "--", *INSTRUMENT).splitlines()
    return {
        "revision": _git("rev-parse", "HEAD").strip(),
        "dirty": bool(_git("status", "--porcelain", "--", *INSTRUMENT)),
        "uncommitted": [line[3:] for line in changed if is_code(line[3:])],
    }


def is_code(file: str) -> bool:
    """Whether `file`, a path below INSTRUMENT, is code: rows of a table may be added by whoever measures."""
    return file.endswith((".py", ".ipynb", ".c"))


def _git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True).stdout


def _head(folder: Path = ROOT / ".git") -> str:
    """Revision that a clone stands at, read without git; empty where that cannot be read."""
    head = folder / "HEAD"
    name = head.read_text().strip() if head.exists() else ""
    if not name.startswith("ref: "):
        return name
    reference = folder / name.removeprefix("ref: ")
    return reference.read_text().strip() if reference.exists() else ""


def now() -> str:
    """The time in UTC, to the second, as sidecars give it."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def packages() -> dict[str, str]:
    """Name -> version of every installed distribution."""
    from importlib.metadata import distributions

    return dict(
        sorted(
            {d.metadata["Name"]: d.version for d in distributions() if d.metadata["Name"]}.items(),
            key=lambda kv: kv[0].lower(),
        )
    )


def order() -> dict:
    """Where the run stands in the order of the study that began it: by ("study", or "hand" where a person
    did), seed of the order, round, place in the round (both from 1; all three None by hand).

    ValueError where BENCH_ORDER is set and does not say so.
    """
    words = os.environ.get(ORDER)
    if words is None:
        return {"by": "hand", "seed": None, "round": None, "place": None}
    found = re.fullmatch(r"seed=(\d+),round=(\d+),place=(\d+)", words)
    if not found:
        raise ValueError(
            f"{ORDER} must be seed=…,round=…,place=…, as a study sets it, not {words!r}: unset it to measure "
            "by hand."
        )
    return {"by": "study"} | dict(zip(("seed", "round", "place"), map(int, found.groups())))
