"""Pages as Quarto renders them, in a copy of this checkout."""

import os
import shutil
import subprocess
import sys

import pytest
from commands import run

from bench.paths import ROOT

# An answer in the made-up runs that a page has to show as text.
MARKUP = '<script>document.title = "broken"</script>'


def checkout(folder):
    """A copy of this checkout's files, committed or not, in `folder`: Quarto writes beside the pages it renders."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split("\0")  # fmt: skip
    for name in listed:
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    if (ROOT / ".host").exists():
        shutil.copy(ROOT / ".host", folder)
    return folder


def render(folder, *page, check=True, **environment):
    """Render the checkout in `folder`, or only one page of it, with the Quarto of $QUARTO or PATH; returns the
    finished process.

    A machine without Quarto skips the test, unless $QUARTO says that there is one (continuous integration).
    """
    quarto = os.environ.get("QUARTO") or shutil.which("quarto")
    if not quarto:
        pytest.skip("no Quarto on this machine; install it, or say QUARTO=/path/to/quarto, to test the pages")
    own = {"PYTHONPATH": folder, "QUARTO_PYTHON": sys.executable} | environment
    return run(quarto, "render", *page, check=check, cwd=folder, **own)
