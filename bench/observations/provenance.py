"""Where a run comes from: revision, time, installed packages."""

import shutil
import subprocess
from datetime import datetime, timezone

from bench.paths import ROOT


def git_state():
    """Revision, whether the instrument or its inputs differ from it, and the files of the instrument that do.

    On a machine without git the revision alone, and `dirty` None: nobody has looked.
    """
    if not shutil.which("git"):
        return {"revision": _head(), "dirty": None}

    def git(*arguments):
        return subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True
        ).stdout.strip()

    return {
        "revision": git("rev-parse", "HEAD"),
        "dirty": bool(git("status", "--porcelain", "--", "bench", "notebooks", "data", "study.yaml")),
        "uncommitted": [line[3:] for line in _changes("bench", "notebooks")],
    }


def _head(folder=ROOT / ".git"):
    """Revision that a clone stands at, read without git; empty where that cannot be read."""
    head = folder / "HEAD"
    name = head.read_text().strip() if head.exists() else ""
    if not name.startswith("ref: "):
        return name
    reference = folder / name.removeprefix("ref: ")
    return reference.read_text().strip() if reference.exists() else ""


def _changes(*folders):
    """Lines of `git status` for files under `folders` that differ from the revision, untracked ones
    included."""
    command = ["git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=all", "--", *folders]
    listed = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    return [line for line in listed if line.endswith((".py", ".ipynb"))]


def now():
    """The time in UTC, to the second, as sidecars give it."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def packages():
    """Name -> version of every installed distribution."""
    from importlib.metadata import distributions

    return dict(
        sorted(
            {d.metadata["Name"]: d.version for d in distributions() if d.metadata["Name"]}.items(),
            key=lambda kv: kv[0].lower(),
        )
    )
