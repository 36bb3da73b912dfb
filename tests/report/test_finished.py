"""What cells show is made once, and a kernel that renders a page only reads it."""

import subprocess
import sys

import pytest

from bench.report import finished, postrender, prerender

SITE = {"project": {"render": ["page.qmd"]}, "website": {"title": "t", "description": "d"}}
PAGE = """---
title: Page
description: What it says.
---

```{python}
from bench.report import finished

finished.replay("page.qmd")
```

```{python}
#| label: drawn
import matplotlib
from IPython.display import Markdown, display

display(Markdown(f"made by {matplotlib.__name__}"))
print("and printed")
```
"""
KERNEL = """
import sys
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from bench.report import prerender
from pathlib import Path
import nbformat
_, notebook = prerender.read(Path("page.qmd"))
for name in [name for name in sys.modules if name.startswith("matplotlib")]:
    del sys.modules[name]
shell = InteractiveShell.instance()
with capture_output() as captured:
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert shell.run_cell(cell.source).success
print([each.data for each in captured.outputs], captured.stdout, "matplotlib" in sys.modules)
"""


@pytest.fixture
def page(tmp_path, monkeypatch):
    (tmp_path / "page.qmd").write_text(PAGE)
    monkeypatch.setattr(finished, "FINISHED", tmp_path / "finished")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rendered(folder, **variables):
    """What a kernel that renders the page shows, what it prints, and whether it has imported Matplotlib."""
    from bench.paths import ROOT

    done = subprocess.run(
        [sys.executable, "-c", KERNEL],
        cwd=folder,
        env={
            "PYTHONPATH": str(ROOT),
            "BENCH_FINISHED": str(folder / "finished"),
            "HOME": str(folder),
            **variables,
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_kernel_that_renders_shows_what_was_made_and_imports_nothing_for_it(page):
    prerender.make_page("page.qmd", page)
    shown = rendered(page, SHOWN_ON_A_PAGE="1")
    assert "made by matplotlib" in shown and "and printed" in shown and shown.strip().endswith("False")


def test_a_cell_that_was_changed_or_stands_in_a_notebook_runs(page):
    prerender.make_page("page.qmd", page)
    assert rendered(page).strip().endswith("True"), "a notebook of one's own"
    (page / "page.qmd").write_text(PAGE.replace("made by", "now made by"))
    changed = rendered(page, SHOWN_ON_A_PAGE="1")
    assert "now made by matplotlib" in changed and changed.strip().endswith("True")


def test_an_option_of_a_cell_is_no_part_of_its_key():
    assert finished.file("a.qmd", "#| echo: true\nx = 1") == finished.file("a.qmd", "x = 1\n")
    assert finished.file("a.qmd", "x = 1") != finished.file("b.qmd", "x = 1")


def test_only_pages_that_replay_are_made_before(tmp_path, monkeypatch):
    (tmp_path / "page.qmd").write_text(PAGE)
    (tmp_path / "light.qmd").write_text(PAGE.replace("finished.replay", "print"))
    both = {"project": {"render": ["page.qmd", "light.qmd"]}}
    assert prerender.asked(both, tmp_path) == ["page.qmd"]
    monkeypatch.setenv("QUARTO_PROJECT_INPUT_FILES", str(tmp_path / "light.qmd"))
    assert prerender.asked(both, tmp_path) == []


def test_a_page_of_a_former_address_leads_on_without_javascript(tmp_path):
    postrender.write_aliases(tmp_path)
    text = (tmp_path / "latency.html").read_text()
    assert '<meta http-equiv="refresh" content="5; url=pages/engines.html">' in text
    assert '<a href="pages/engines.html">Engines</a>' in text and "<noscript" not in text


def test_pages_for_language_models_hold_no_packed_data(tmp_path, monkeypatch):
    (tmp_path / "pages").mkdir()
    text = "# Page\n\n![alt](data:image/png;base64," + "QUJD" * 200 + ")\n\nwords\n"
    (tmp_path / "pages" / "engines.llms.md").write_text(text)
    postrender.mend_llms(tmp_path)
    assert (tmp_path / "pages" / "engines.llms.md").read_text() == "# Page\n\n![alt]()\n\nwords\n"
    assert "(pages/engines.llms.md): " in (tmp_path / "llms.txt").read_text()


def test_the_fold_of_a_labelled_cell_has_its_command_as_well(tmp_path):
    code = '<details class="code-fold"><summary>Code</summary>print()</details>'
    figure, table = (
        f'<div id="cell-fig-latency" class="cell">{code}',
        f'{code}\n<div id="tbl-latency" class="cell">',
    )
    (tmp_path / "page.html").write_text(f"{figure}</div>{code}<p>{table}</div>")
    for _ in range(2):  # a page that is not rendered again keeps one
        postrender.write_commands(tmp_path)
    assert (tmp_path / "page.html").read_text().count("<code>") == 2
    first, second, third = (tmp_path / "page.html").read_text().split("</details>")[:3]
    assert "papermill notebooks/figure.ipynb figure.ipynb -p figure latency</code>" in first
    assert "command" not in second
    assert third.endswith('<p class="command"><code>.venv/bin/python -m bench.cells tbl-latency</code></p>')
