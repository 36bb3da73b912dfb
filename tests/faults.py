"""Apply each fault of faults.yaml to a copy of this checkout and tell whether its tests see it.

    python tests/faults.py                     all of them
    python tests/faults.py cache "edited CSV"  those with one of these words in their name, their file or their area
    python tests/faults.py --jobs 2            two copies at a time

Exit code 1 where a fault is not seen, where its text is not in its file any more and no `gone` says why, or where
a witness fails without any fault.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
FAULTS = Path(__file__).with_suffix(".yaml")
LIMIT_S = 300  # of the witness of one fault, which is seen where it hangs
PYTEST = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]


def read() -> list[dict]:
    """Return the entries of faults.yaml, in its order."""
    return yaml.safe_load(FAULTS.read_text())


def places(fault: dict, root: Path = ROOT) -> int:
    """Count how often the text of `fault` stands in its file; 0 where the file is gone."""
    file = root / fault["file"]
    return file.read_text().count(fault["before"]) if file.exists() else 0


def broken(fault: dict, root: Path = ROOT) -> str:
    """Return the file's text with `fault` in it."""
    return (root / fault["file"]).read_text().replace(fault["before"], fault["after"])


def git(folder: Path, *words: str) -> str:
    """Run git in `folder` and return what it prints."""
    who = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org")
    return subprocess.run(
        ["git", "-C", folder, *who, *words], check=True, capture_output=True, text=True
    ).stdout


def copy(to: Path) -> Path:
    """Make a clone of this checkout at `to`, what is not committed included, and return it."""
    subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, to], check=True)
    changed = git(ROOT, "ls-files", "-z", "--modified", "--deleted", "--others", "--exclude-standard")
    for name in filter(None, changed.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            (to / name).write_bytes((ROOT / name).read_bytes())
        else:
            (to / name).unlink(missing_ok=True)
    for name in (".venv", ".venvs"):  # which git does not know
        if (ROOT / name).exists():
            (to / name).symlink_to((ROOT / name).resolve())
    return to


def commit(folder: Path, subject: str) -> None:
    """Commit everything: runs of a checkout with changes would be marked, and that is not the fault."""
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--no-verify", "--message", subject)


def passes(folder: Path, witnesses: Sequence[str]) -> tuple[bool, str]:
    """Run `witnesses` in `folder`; returns (whether they pass, the last lines that pytest printed).

    RuntimeError where pytest finds no such test.
    """
    models = os.environ.get("BENCH_MODELS", str(ROOT / "models"))  # made once for all copies
    environment = os.environ | {"PYTHONPATH": str(folder), "BENCH_MODELS": models}
    try:
        done = subprocess.run(
            [*PYTEST, *witnesses],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return False, f"no end after {LIMIT_S} s"
    if done.returncode not in (0, 1, 2):
        raise RuntimeError(f"pytest {' '.join(witnesses)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode == 0, done.stdout[-2000:]


def tried(folder: Path, fault: dict) -> tuple[str, float]:
    """Apply `fault` in the copy `folder` and take it back; returns (what became of it, seconds)."""
    began = time.monotonic()
    if places(fault, folder) != 1:
        why = fault.get("gone")
        return f"code gone: {why}" if why else "NOT FOUND", 0.0
    (folder / fault["file"]).write_text(broken(fault, folder))
    commit(folder, "fault")
    passed, _ = passes(folder, fault["seen_by"])
    git(folder, "reset", "--quiet", "--hard", "HEAD~1")
    return "NOT SEEN" if passed else "seen", time.monotonic() - began


def each(folder: Path, faults: Sequence[dict]) -> Iterator[tuple[dict, str, float]]:
    """Yield (fault, what became of it, seconds) of each of `faults`, in a copy made at `folder`."""
    commit(copy(folder), "as it is")
    for fault in faults:
        yield fault, *tried(folder, fault)


def chosen(words: Sequence[str]) -> list[dict]:
    """Return the faults whose name, file or area holds one of `words`; all without any."""
    searched = [(fault, f"{fault['name']} {fault['file']} {fault['area']}") for fault in read()]
    return [fault for fault, text in searched if not words or any(word in text for word in words)]


def unbroken(folder: Path, faults: Sequence[dict]) -> str:
    """Return what pytest says where a witness fails without any fault; else empty."""
    commit(copy(folder), "as it is")
    left = [fault for fault in faults if places(fault) == 1]
    witnesses = sorted({test for fault in left for test in fault["seen_by"]})
    passed, said = passes(folder, witnesses)
    if not passed:  # some measure times, and a busy machine is late now and then
        passed, said = passes(folder, witnesses)
    return "" if passed else said


def main() -> int:
    """Read the command line, print a line per fault and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="parts of names, files or areas; without any: all")
    parser.add_argument("--jobs", type=int, choices=(1, 2), default=1)
    parser.add_argument("--trust", action="store_true", help="do not run the witnesses without a fault first")
    options = parser.parse_args()
    faults, unseen = chosen(options.words), 0
    with tempfile.TemporaryDirectory(prefix="faults-") as scratch:
        if not options.trust and (said := unbroken(Path(scratch) / "unbroken", faults)):
            print(f"A witness fails without any fault:\n{said}")
            return 1

        def share(k: int) -> None:
            nonlocal unseen
            for fault, state, seconds in each(Path(scratch) / str(k), faults[k :: options.jobs]):
                unseen += state in ("NOT SEEN", "NOT FOUND")
                print(f"{state:8} {seconds:5.1f} s  {fault['area']}: {fault['name']}", flush=True)

        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(share, range(options.jobs)))
    print(f"{len(faults)} faults, {unseen} of them not seen.")
    return 1 if unseen else 0


if __name__ == "__main__":
    sys.exit(main())
