"""No figure is taller than a screen, however many machines have measured."""

import pytest
from builders import write_every, write_run

from bench import cells, paths, site, style
from bench.observations import store
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
