"""A fork is one setting: what follows from `repo-url`, and a fork rehearsed from clone to checked links."""

import ast
import importlib.util
import os
import posixpath
import re
import subprocess
import sys
import venv
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
import yaml
from rendering import FORK

from bench import cells
from bench.paths import ROOT
from bench.report import links, notebooks

pytestmark = pytest.mark.early


@pytest.fixture
def root(tmp_path):
    """A folder with a _quarto.yml that names FORK, and the notebook."""
    return forked(tmp_path)


def forked(folder):
    (folder / "_quarto.yml").write_text(f"website: {{repo-url: {FORK}/}}")
    (folder / "notebooks").mkdir()
    (folder / "notebooks/figure.ipynb").write_text((ROOT / "notebooks/figure.ipynb").read_text())
    return folder


def test_every_address_follows_from_one_setting(root):
    assert (
        links.colab("mbu", root)
        == "https://colab.research.google.com/github/ada/measured/blob/notebooks/mbu.ipynb"
    )
    assert f'href="{links.colab("mbu", root)}"' in links.under_figure("mbu", root)


@pytest.mark.parametrize(
    "setting", ["website: {title: x}", "website: {repo-url: 'https://gitlab.com/ada/measured'}"]
)
def test_without_a_repository_on_github_there_is_no_colab(tmp_path, setting):
    (tmp_path / "_quarto.yml").write_text(setting)
    assert links.colab("mbu", tmp_path) == links.under_figure("mbu", tmp_path) == ""


def test_no_address_that_nobody_registered_stands_anywhere():
    assert links.repository() == ""
    pattern = "llm-inference-" + "measured/"
    said = subprocess.run(
        ["git", "grep", "-l", pattern], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert said.stdout.split() == []


def test_another_address_is_warned_of(capsys):
    links.main(FORK)
    assert f"Set repo-url to {FORK}" in capsys.readouterr().out


def test_every_figure_has_a_notebook_that_draws_it_anywhere(root, tmp_path):
    files = notebooks.write(tmp_path / "out", root)
    assert [file.stem for file in files] == cells.choose("all")
    for file in files:
        notebook = nbformat.read(file, as_version=4)
        nbformat.validate(notebook)
        (injected,) = [c for c in notebook.cells if "injected-parameters" in c.metadata.get("tags", [])]
        given = {a.targets[0].id: ast.literal_eval(a.value) for a in ast.parse(injected.source).body}
        assert given == {"figure": file.stem, "repository": FORK}
    assert [file.read_bytes() for file in notebooks.write(tmp_path / "again", root)] == [
        f.read_bytes() for f in files
    ]


def test_a_notebook_that_stands_alone_names_what_it_needs(tmp_path, monkeypatch):
    notebook = nbformat.read(ROOT / "notebooks/figure.ipynb", as_version=4)
    (setup,) = [cell.source for cell in notebook.cells if "find_spec" in cell.source]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="Set `repository`"):
        exec(setup, {"repository": ""})


class Links(HTMLParser):
    """Addresses that a page leads to, its anchors, and how many figures it has."""

    def __init__(self, text):
        super().__init__()
        self.to, self.ids, self.figures = [], set(), 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.ids.add(attributes.get("id"))
        self.figures += tag == "figure" and "plot" in (attributes.get("class") or "")
        if tag in ("a", "link") and attributes.get("href"):
            self.to.append(attributes["href"])


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
def test_a_fork_rehearsed(tmp_path, rendered):
    """Every link of the rendered fork leads somewhere: a page, an anchor, a file of the repository, a notebook."""
    site, folder = rendered, rendered.parent
    in_fork(folder, "bench.report.notebooks", str(tmp_path / "notebooks"))
    quarto = yaml.safe_load((ROOT / "_quarto.yml").read_text())
    names = [name.replace(".qmd", ".html") for name in quarto["project"]["render"]]
    pages = {name: Links((site / name).read_text()) for name in names}
    for name, page in pages.items():
        colab = [address for address in page.to if "colab." in address]
        assert len(colab) >= page.figures, name
        assert f"{FORK}/issues/new" in page.to
        for address in page.to:
            leads_somewhere(address, name, pages, site, folder, tmp_path / "notebooks")


def leads_somewhere(address, name, pages, site, folder, made):
    """AssertionError for an address of the page `name` that leads to nothing."""
    parts = urlsplit(address)
    if parts.netloc == "colab.research.google.com":
        assert address.startswith("https://colab.research.google.com/github/ada/measured/blob/notebooks/")
        assert (made / unquote(parts.path).rpartition("/")[2]).exists(), address
    elif address.startswith(f"{FORK}/blob/main/"):
        assert (folder / unquote(address.removeprefix(f"{FORK}/blob/main/"))).exists(), address
    elif not parts.scheme:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(parts.path)))
        target = target if parts.path else name
        assert (site / target).exists(), f"{name}: {address}"
        if parts.fragment and target in pages:
            assert unquote(parts.fragment) in pages[target].ids, f"{name}: {address}"


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
    notebook = notebooks.of_figure("latency", forked(tmp_path))
    for cell in notebook.cells:
        cell.source = cell.source.replace(FORK, f"file://{ROOT}")
    nbformat.write(notebook, empty / "latency.ipynb")
    in_fork(
        empty, "papermill", "--no-progress-bar", "latency.ipynb", "out.ipynb", python=python, PYTHONPATH=""
    )
    assert (empty / "repository/figures/latency.svg").read_bytes() == expected
