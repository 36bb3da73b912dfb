"""The README's made parts: headlines, what commands print, and how to install from where it was cloned.

python -m bench.report.readme      writes them into README.md (`make readme`)
"""

import re
import subprocess
import sys

from bench import headlines, paths
from llm_measured.core.files import write_whole

README = paths.ROOT / "README.md"
# A block whose first line is a command of llm-measured holds what it prints.
PRINTED = re.compile(r"^```\n(\$ llm-measured .*)\n(?:.*\n)*?```$", re.M)
INSTALL = re.compile(r"(<!-- install: .*?-->\n).*?(<!-- end of install -->)", re.S)


def text(before: str, origin: str = "") -> str:
    """Return the README `before` with its made parts of today; `origin` is the address of a public remote."""
    here = "pip install .    # in a clone, in an environment (python3 -m venv)"
    command = f"pip install git+{origin}" if origin else here
    after = INSTALL.sub(lambda place: f"{place[1]}```\n{command}\n```\n{place[2]}", before)
    return PRINTED.sub(_with_output, headlines.readme(after))


def _with_output(block: re.Match) -> str:
    run = block[1].removeprefix("$ ").replace("llm-measured", f"{sys.executable} -m llm_measured", 1)
    done = subprocess.run(run, shell=True, cwd=paths.ROOT, capture_output=True, text=True, check=False)
    if not done.stdout:  # what head did not read is a broken pipe
        raise RuntimeError(done.stderr)
    return f"```\n{block[1]}\n{done.stdout.rstrip()}\n```"


def origin() -> str:
    """Return the address of the remote `origin`, empty where there is none that others can reach."""
    command = ["git", "remote", "get-url", "origin"]
    done = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True, check=False)
    address = done.stdout.strip()
    return re.sub("//[^/]*@", "//", address) if address.startswith("https://") else ""  # without a password


if __name__ == "__main__":
    write_whole(README, text(README.read_text(encoding="utf-8"), origin()))
