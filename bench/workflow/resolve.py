"""Whether every file in environments/ can be installed from the public index alone.

    python -m bench.workflow.resolve [vllm-cuda mlc …]

runs `pip install --dry-run` for each file (all of them without names) with find-links and extra indexes
switched off, so that nothing of this machine's pip settings helps; a lock is resolved as it is installed,
with --no-deps. Prints a line per file: how many packages, or pip's last words; the exit status counts the
failures. Needs the network, and minutes.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

from bench import naming
from bench.paths import ROOT

FOLDER = ROOT / "environments"
ALONE = {"PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": "", "PIP_NO_INDEX": "0"}
LIMIT_S = 1500.0


def is_lock(file: Path) -> bool:
    """Whether a file of requirements lists everything: it is then installed without the resolver."""
    return "lock" in file.read_text(encoding="utf-8").split("\n")[0]


def dry_run(file: Path, python: str = sys.executable) -> tuple[int, str]:
    """(number of packages, "") that pip would install for `file`, or (0, why it cannot)."""
    more = ["--no-deps"] if is_lock(file) else []
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [python, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", *more]
        command += [f"--report={report}", f"--requirement={file}"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, env=os.environ | ALONE, timeout=LIMIT_S
            )
        except subprocess.TimeoutExpired:
            return 0, f"pip was still resolving after {LIMIT_S:.0f} s"
        if done.returncode:
            return 0, reason(done.stderr)
        return len(json.loads(report.read_text(encoding="utf-8"))["install"]), ""


def reason(words: str) -> str:
    """Why pip failed, in its own words without the lists of all versions that there are."""
    lines = [line.strip() for line in words.splitlines() if line.lower().startswith(("error", "  error"))]
    lines = [re.sub(r" \(from versions: .*\)", "", line) for line in lines if "Ignored the" not in line]
    return textwrap.shorten(" ".join(lines) or words.strip(), 300)


def main(*names: str) -> int:
    files = sorted(FOLDER.glob("*.txt"))
    known = {file.stem: file for file in files}
    chosen = [known[naming.choose("environment", name, known)] for name in names] or files
    failures = 0
    for file in chosen:
        start = time.monotonic()
        count, why = dry_run(file)
        failures += bool(why)
        print(f"{file.stem}: {why or f'{count} packages'} ({time.monotonic() - start:.0f} s)", flush=True)
    return failures


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except ValueError as failure:
        sys.exit(str(failure))
