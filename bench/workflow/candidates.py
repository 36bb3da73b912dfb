"""Which runs somebody wants to add to the observations, and which files changed that may not change."""

import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from bench.paths import COMMITTED

OBSERVATIONS = COMMITTED.name
SUFFIXES = ".csv", ".json", ".ipynb"
PART = re.compile(r"(?P<run>[\w.-]+/[\w.-]+)(?P<suffix>\.csv|\.json|\.ipynb)")
# Where a fork knows the repository that it came from, that one is compared with.
BASES = "upstream/main", "origin/HEAD", "origin/main", "HEAD"


@dataclass
class Candidate:
    """One run that is new: its id, and the file of each suffix."""

    run: str
    files: dict = field(default_factory=dict)

    @property
    def missing(self) -> list[str]:
        """The suffixes of which there is no file."""
        return [suffix for suffix in SUFFIXES if suffix not in self.files]


def git(root: Path, *arguments: str, check: bool = True) -> str:
    """What a git command of the repository `root` prints; ValueError with git's own words where it fails."""
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
    if check and done.returncode:
        raise ValueError(f"git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout


def base(root: Path, name: str = "") -> str:
    """The commit that a contribution is compared with: where HEAD left `name`, or the first of BASES that
    exists. ValueError for a name that git does not know."""
    for known in [name] if name else BASES:
        if git(root, "rev-parse", "--verify", "--quiet", f"{known}^{{commit}}", check=False):
            return git(root, "merge-base", known, "HEAD").strip()
    raise ValueError(
        f"git knows no {name!r} here. Name a branch or a commit: make contribute BASE=origin/main."
    )


def of_checkout(root: Path, base: str) -> tuple[list[Candidate], list]:
    """(candidates, faults) of everything under _llama-inference in which the checkout differs from `base`.

    Faults are (path, sentence) of files that were committed already, or are no part of a run.
    """
    changed = git(root, "diff", "--name-status", "--no-renames", "-z", base, "--", OBSERVATIONS).split("\0")
    pairs = list(zip(changed[1::2], changed[0::2]))
    new = git(root, "ls-files", "--others", "--exclude-standard", "-z", "--", OBSERVATIONS).split("\0")
    pairs += [(path, "A") for path in new if path]
    every = [(Path(path).relative_to(OBSERVATIONS).as_posix(), root / path, status) for path, status in pairs]
    return _sorted(every, base)


def of_folder(folder: Path, root: Path, base: str) -> tuple[list[Candidate], list]:
    """The same of the runs in another folder, as if they were copied into this checkout."""
    every, folder = [], Path(folder)
    for file in sorted(path for path in folder.glob("*/*") if not path.is_dir()):
        name = file.relative_to(folder).as_posix()
        there = root / OBSERVATIONS / name
        if not there.exists():
            every.append((name, file, "A"))
        elif there.read_bytes() != file.read_bytes():
            every.append((name, file, "M"))
    if not any(folder.glob("*/*.csv")):
        raise ValueError(
            f"There is no run in {folder}: <backend>/<run>.csv, .json and .ipynb are looked for."
        )
    return _sorted(every, base)


def _sorted(every, base):
    """(candidates, faults) of (name, file, status of git) of each file."""
    runs, faults = {}, []
    for name, file, status in every:
        part = PART.fullmatch(name)
        if status != "A":
            faults.append((name, _changed(name, status, base)))
        elif not part or file.is_symlink():
            part_of = "<backend>/<run>.csv, .json or .ipynb, a plain file."
            faults.append((name, f"It is no part of a run: {part_of}"))
        else:
            runs.setdefault(part["run"], Candidate(part["run"])).files[part["suffix"]] = file
    return [runs[run] for run in sorted(runs)], faults


def _changed(name, status, base):
    done = "was deleted" if status == "D" else "differs from what was committed"
    back = f"git checkout {base[:7]} -- {OBSERVATIONS}/{name}"
    return f"It {done}; observations are never edited: {back}. A new measurement takes the next number."
