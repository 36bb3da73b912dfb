"""Check and reproduce: its example of a figure with other axes runs as it stands."""

from bench.paths import ROOT
from bench.report import prerender


def test_the_figure_with_other_axes_is_drawn_by_the_page_s_own_cell():
    _, notebook = prerender.read(ROOT / "pages" / "check.qmd")
    (source,) = [cell.source for cell in notebook.cells if "label: redrawn" in cell.source]
    names: dict = {}
    exec(source, names)
    assert names["figure"].axes[0].get_xlim() == (100, 3000)
