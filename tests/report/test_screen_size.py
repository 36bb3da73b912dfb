"""No figure is taller than a screen and no table larger than a page, however many machines have measured."""

import re

import pytest
from builders import write_every, write_run

from bench import style
from bench.observations import store
from bench.report import figures, pages, per_machine, tables
from bench.topics import machines

MACHINES, OPTIONS = 7, 30
MOST_PIXELS, PAGE_PIXELS = 1100, 928
OWN = [name for name, draw in figures.DRAWN.items() if draw.__module__.startswith("bench.")]


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Seven machines, of which each measured many options of one model, some of two more, and all loads."""
    folder = tmp_path_factory.mktemp("many")
    for k in range(MACHINES):
        where = {"gpu": f"cpu-{k}", "host": f"abc12{k}"}
        for option in range(OPTIONS if k == 0 else 4):
            write_run(folder, backend="fake", option=f"Q{option}_0", rate=20.0 + option, **where)
        for model in ("shape:tinyllama-1.1b", "shape:llama-2-7b"):
            write_run(folder, backend="fake", option="F16", model=model, weights="synthetic", **where)
        for backend, option in (("transformers", "float32"), ("llamacpp", "Q4_0"), ("vllm", "bfloat16")):
            write_every(folder, backend=backend, option=option, **where)
    return store.load(folder=folder)


@pytest.mark.parametrize("name", OWN)
@pytest.mark.check
def test_a_figure_fits_a_screen(name, many):
    whole = figures.DRAWN[name](many)
    for label, figure in [("", whole), *figures.parts(name, many)]:
        width, height = figure.get_size_inches()
        assert width == style.WIDTH and height / width * PAGE_PIXELS <= MOST_PIXELS, f"{name} {label}"


def test_the_numbers_that_decide_stand_before_what_is_always_the_same(many):
    (label, part), *others = pages.table_parts(tables.TABLES["latency"](many))
    assert label == "smollm2-135m (real weights) on cpu-0" and len(others) > MACHINES
    assert list(part)[:3] == ["engine", "option", "output tokens/s"]
    assert {"TTFT (ms)", "TPOT (ms)"} <= set(list(part)[:7])
    assert not {"device", "model", "weights"} & set(part)
    assert all(
        part.shape[1] <= 12 and len(part) <= 40
        for _, part in pages.table_parts(tables.TABLES["latency"](many))
    )


def test_a_page_draws_a_few_machines_and_says_where_the_others_are(many, monkeypatch):
    shown = []
    monkeypatch.setenv("SHOWN_ON_A_PAGE", "1")
    monkeypatch.setattr(pages, "display", lambda one: shown.append(one.data))
    pages.show_figure("ttft_tpot", many)
    labels = [label for label, _ in machines.labelled(many)]
    drawn, left = labels[: per_machine.MOST_MACHINES], labels[per_machine.MOST_MACHINES :]
    assert re.findall(r'data-device="(.*?)"', shown[0]) == drawn and left
    words = re.search(r"Not drawn here: (.*?)</p>", shown[0])[1]
    assert re.findall(r"<code>(.*?)</code>", words)[: len(left)] == left and "explore.html" in words


def test_what_a_page_leaves_out_is_in_the_file_beside_it(many, tmp_path, monkeypatch):
    shown = []
    monkeypatch.setenv("SHOWN_ON_A_PAGE", "1")
    monkeypatch.setattr(pages, "DOWNLOADS", tmp_path)
    monkeypatch.setattr(pages, "display", lambda one: shown.append(one.data))
    pages.show_table("latency", many, "Every option.")
    (file,) = tmp_path.glob("*.csv")
    assert f'href="downloads/{file.name}"' in shown[0] and "device" in file.read_text().splitlines()[0]
    assert len(file.read_text().splitlines()) == 1 + len(tables.TABLES["latency"](many))
    assert shown[0].count("<table") <= 8 and shown[0].count(" open>") == 1


def test_a_table_that_is_whole_needs_no_file(many, tmp_path, monkeypatch):
    monkeypatch.setenv("SHOWN_ON_A_PAGE", "1")
    monkeypatch.setattr(pages, "DOWNLOADS", tmp_path)
    monkeypatch.setattr(pages, "display", lambda one: None)
    pages.show_table("published", many, "Published.")
    assert not list(tmp_path.iterdir())
