"""What stands folded beside a figure or a table makes it: in a fresh namespace, in a notebook, with one run or
none."""

import re

import markupsafe
import pytest
from builders import write_every, write_run, write_sizes

from bench.cells import LABEL
from bench.observations import store
from bench.paths import ROOT
from bench.report import figures, pages, prerender

SHOWN = re.compile(r"pages\.show_(?:figure|table)\(")
PAGES = "backends", "method"


def cells(page):
    """The cells of a page that a reader can unfold."""
    _, notebook = prerender.read(ROOT / "pages" / f"{page}.qmd")
    return [
        cell.source
        for cell in notebook.cells
        if cell.cell_type == "code" and "#| echo: true" in cell.source and not LABEL.search(cell.source)
    ]


EVERY = [(page, k) for page in PAGES for k in range(len(cells(page)))]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Two machines with all experiments."""
    folder = tmp_path_factory.mktemp("runs")
    for gpu, host in (("test-cpu", "abc123"), ("other-cpu", "def456")):
        for backend, option in (("transformers", "float32"), ("llamacpp", "Q4_0")):
            write_every(folder, backend=backend, option=option, gpu=gpu, host=host)
        guesses = {"option": "float32-lookup", "drafted_tokens": 8, "accepted_tokens": 4}
        write_run(folder, backend="transformers", gpu=gpu, host=host, **guesses)
    write_sizes(folder)
    return store.load(folder=folder)


@pytest.fixture
def execute(monkeypatch, tmp_path):
    """A function that executes a cell alone and returns what it displays."""
    monkeypatch.setattr(pages, "share", lambda: None)
    monkeypatch.setattr(pages, "DOWNLOADS", tmp_path)
    monkeypatch.setattr(pages, "FIGURES", tmp_path)

    def executed(source, requests, on_a_page):
        displayed = []
        monkeypatch.setattr(pages, "_requests", lambda: requests)
        monkeypatch.setattr(pages, "display", lambda *shown: displayed.extend(shown))
        monkeypatch.setenv("SHOWN_ON_A_PAGE", "1" if on_a_page else "")
        exec(source, {"__name__": "__main__"})
        return displayed

    return executed


@pytest.mark.parametrize(("page", "number"), EVERY)
@pytest.mark.check
def test_a_cell_gives_in_a_notebook_what_the_page_shows(page, number, measured, execute):
    source = cells(page)[number]
    (on_page,) = execute(source, measured, on_a_page=True)
    beside = execute(source, measured, on_a_page=False)
    pictures = [one for one in beside if hasattr(one, "savefig")]
    frames = [one for one in beside if hasattr(one, "columns")]
    assert pictures or frames
    linked = re.findall(r'<img [^>]*src="figures/(pages/[^"]+)"', on_page.data)
    assert len(linked) == len(pictures)
    for file, picture in zip(linked, pictures):
        written = (pages.FIGURES / file).read_text()
        command = re.search("<dc:description>(.*?)</dc:description>", written)[1]
        assert written == figures.svg(picture, re.search("<dc:title>(.*?)</dc:title>", written)[1], command)
    if "show_figure" in source:
        assert len(pictures) == on_page.data.count("<img") and len(frames) == 1
    else:
        heads = [head for frame in frames for head in frame.columns]
        assert all(f">{markupsafe.escape(head)}</th>" in on_page.data for head in heads)


@pytest.mark.parametrize("shown", ["show_figure", "show_table"])
def test_a_cell_works_before_anything_was_measured(shown, measured, execute):
    source = next(source for page, k in EVERY if shown in (source := cells(page)[k]))
    assert execute(source, measured.iloc[:0], on_a_page=True)


@pytest.mark.parametrize("page", PAGES)
def test_every_figure_and_table_of_a_page_has_its_cell(page):
    # The tables under Changes show no code: their rows are history, nothing to redraw.
    whole = (ROOT / "pages" / f"{page}.qmd").read_text().partition("\n## Changes")[0]
    assert len(SHOWN.findall(whole)) == sum(len(SHOWN.findall(source)) for source in cells(page)) > 0
