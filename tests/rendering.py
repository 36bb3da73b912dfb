"""Pages as Quarto renders them, in a copy of this checkout."""

import os
import shutil
import subprocess
import sys

import pytest
from commands import run

from bench.paths import ROOT

# The address of a fork, which sets repo-url in _quarto.yml.
FORK = "https://github.com/ada/measured"


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


def opened(browser, address, width=1280, height=900):
    """A page of the served site in a new window, which keeps its errors and the requests that left the site."""
    page = browser.new_page(viewport={"width": width, "height": height})
    page.troubles, page.outside = [], []
    ours = address[: address.index("/", len("http://"))]
    page.on("request", lambda r: None if r.url.startswith((ours, "data:")) else page.outside.append(r.url))
    page.on(
        "console", lambda message: page.troubles.append(message.text) if message.type == "error" else None
    )
    page.on("pageerror", lambda error: page.troubles.append(str(error)))
    page.on("requestfailed", lambda request: page.troubles.append(request.url))
    page.goto(address, wait_until="load")
    return page
