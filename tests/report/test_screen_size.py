"""No figure is taller than a screen and no table larger than a page, however many machines have measured."""

import pytest
from builders import write_every, write_run

from bench import cells, paths, registry, site, style
from bench.observations import store
from bench.report import pages
from bench.topics import tables

MACHINES, OPTIONS = 3, 30
MOST_PIXELS, PAGE_PIXELS = 1100, 928


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Tables of machines of which one measured many options of one model, each some of another, and all loads."""
    folder = tmp_path_factory.mktemp("many")
    for k in range(MACHINES):
        where = {"gpu": f"cpu-{k}", "host": f"abc12{k}"}
        for option in range(OPTIONS if k == 0 else 4):
            write_run(folder, backend="fake", option=f"Q{option}_0", rate=20.0 + option, **where)
        write_run(
            folder, backend="fake", option="F16", model="shape:llama-2-7b", weights="synthetic", **where
        )
        for backend, option in (("transformers", "float32"), ("llamacpp", "Q4_0"), ("vllm", "bfloat16")):
            write_every(folder, backend=backend, option=option, **where)
    tables.write(store.load(folder=folder), folder / "tables")
    return folder / "tables"


def fits(figure):
    width, height = figure.get_size_inches()
    return width == style.WIDTH and height / width * PAGE_PIXELS <= MOST_PIXELS


@pytest.mark.check
def test_a_figure_of_ours_fits_a_screen(many):
    for folder in (many, paths.TABLES):
        with site.reading(folder):
            assert [name for name in cells.figures() if not fits(cells.draw(name))] == []


@pytest.mark.parametrize("name", list(registry.FIGURES))
@pytest.mark.check
def test_a_figure_of_others_numbers_fits_a_screen(name):
    assert fits(pages.figure(name))


def test_what_a_page_leaves_out_is_in_the_file_beside_it(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setenv("SHOWN_ON_A_PAGE", "1")
    monkeypatch.setattr(pages, "DOWNLOADS", tmp_path)
    monkeypatch.setattr(site, "display", lambda one: shown.append(one.data))
    pages.show_table("published-software", "Every one.")
    table = pages.table("published-software")
    cut = len(table) > pages.MOST_ROWS or table.shape[1] > pages.MOST_COLUMNS
    assert shown[0].count("<table") == 1 and len(list(tmp_path.glob("*.csv"))) == int(cut)
    assert "python -m bench.report.pages published-software" in shown[0]


def test_a_mistyped_name_is_answered_with_those_that_exist():
    with pytest.raises(ValueError, match="published-mbu"):
        pages.figure("published-mbuu")
    with pytest.raises(ValueError, match="published-sources"):
        pages.main(["published-source"])
