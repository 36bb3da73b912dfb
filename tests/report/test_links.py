"""A fork is one setting: what follows from `repo-url`, and a fork rehearsed from clone to checked links."""

import html
import importlib.util
import os
import posixpath
import re
import subprocess
import sys
import venv
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
import yaml
from rendering import FORK

from bench.paths import ROOT
from bench.report import postrender

pytestmark = pytest.mark.early


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (f"website: {{repo-url: {FORK}/}}", "ada/measured/blob/main/notebooks/figure.ipynb"),
        ("website: {title: x}", ""),
        ("website: {repo-url: 'https://gitlab.com/ada/measured'}", ""),
    ],
)
def test_colab_follows_from_one_setting_of_a_repository_on_github(tmp_path, setting, expected):
    (tmp_path / "_quarto.yml").write_text(setting)
    assert expected in postrender.colab(tmp_path) and bool(postrender.colab(tmp_path)) == bool(expected)


def test_no_address_that_nobody_registered_stands_anywhere():
    assert postrender.colab() == ""
    pattern = "llm-inference-" + "measured/"
    said = subprocess.run(
        ["git", "grep", "-l", pattern], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert said.stdout.split() == []


def test_a_notebook_that_stands_alone_names_what_it_needs(tmp_path, monkeypatch):
    notebook = nbformat.read(ROOT / "notebooks/figure.ipynb", as_version=4)
    (setup,) = [cell.source for cell in notebook.cells if "find_spec" in cell.source]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="Set `repository`"):
        exec(setup, {"repository": ""})


def in_fork(folder, *command, python=sys.executable, **more):
    """Run a command in the fork with its own code; returns what it printed."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("BENCH_")}
    own |= {
        "PYTHONPATH": str(folder),
        "PATH": f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}",
    } | more
    done = subprocess.run(
        [python, "-m", *command], cwd=folder, env=own, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.check
def test_a_fork_rehearsed(rendered):
    """Every link of the rendered fork leads somewhere: a page, an anchor, a file of the repository."""
    site, folder = rendered, rendered.parent
    quarto = yaml.safe_load((ROOT / "_quarto.yml").read_text())
    names = [name.replace(".qmd", ".html") for name in quarto["project"]["render"]]
    pages = {name: (site / name).read_text() for name in names}
    for name, text in pages.items():
        to = {html.unescape(address) for address in re.findall(r'<(?:a|link)\b[^>]*?\bhref="([^"]+)"', text)}
        assert text.count('class="colab"') >= text.count('id="cell-fig-')
        assert len(to) > 20 and f"{FORK}/issues/new" in to
        for address in to:
            leads_somewhere(address, name, pages, site, folder)


def leads_somewhere(address, name, pages, site, folder):
    """AssertionError for an address of the page `name` that leads to nothing."""
    parts = urlsplit(address)
    if parts.netloc == "colab.research.google.com":
        assert address.endswith("/github/ada/measured/blob/main/notebooks/figure.ipynb")
    elif address.startswith(f"{FORK}/blob/main/"):
        assert (folder / unquote(address.removeprefix(f"{FORK}/blob/main/"))).exists(), address
    elif not parts.scheme:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(parts.path)))
        target = target if parts.path else name
        target = target.partition("?")[0]
        assert (site / target).is_file(), f"{name}: {address}"
        if parts.fragment and target in pages:
            assert f'id="{unquote(parts.fragment)}"' in pages[target], f"{name}: {address}"


@pytest.mark.check
def test_reading_needs_no_engine(tmp_path):
    """With environments/read.txt alone, papermill executes figure.ipynb, and the figure is the same, byte for byte."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv/bin/python")
    quiet = ["--quiet", "--disable-pip-version-check"]
    in_fork(ROOT, "pip", "install", *quiet, "--requirement", "environments/read.txt", python=python)
    installed = in_fork(ROOT, "pip", "list", "--format", "freeze", python=python)
    assert not re.search("^(torch|transformers|openvino|onnxruntime|ctranslate2)=", installed, flags=re.M)
    drawn = []
    for name, own in (("read", python), ("all", sys.executable)):
        out = ["notebooks/figure.ipynb", str(tmp_path / f"{name}.ipynb"), "-p", "out", str(tmp_path / name)]
        in_fork(ROOT, "papermill", "--no-progress-bar", *out, python=own)
        drawn.append((tmp_path / name / "latency.svg").read_bytes())
    assert drawn[0] == drawn[1]
    alone_somewhere(tmp_path, python, drawn[1])


def alone_somewhere(tmp_path, python, expected):
    """The notebook that Colab opens, in a folder without anything: it fetches the repository and draws the same."""
    empty = tmp_path / "empty"
    empty.mkdir()
    command = ["papermill", "--no-progress-bar", str(ROOT / "notebooks/figure.ipynb"), "out.ipynb"]
    in_fork(empty, *command, "-p", "repository", f"file://{ROOT}", python=python, PYTHONPATH="")
    assert (empty / "repository/figures/latency.svg").read_bytes() == expected
