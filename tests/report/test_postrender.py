"""What is left to do after Quarto has rendered."""

from bench.report import postrender


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
