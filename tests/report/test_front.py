"""The front page's picker: the first answer stands in the page, and the browser gives the same and others."""

import contextlib
import html
import re

import pytest
from builders import write_every, write_run

from bench import site as page
from bench.observations import store
from bench.paths import ROOT, TABLES
from bench.report import front
from bench.report.published import lookup
from bench.topics import quality, tables

READY = "#picker"
START = front.DEVICE, front.MODEL, front.BITS


@contextlib.contextmanager
def read_of(rows, folder):
    """Context in which pages read the tables of `rows`, which are written into `folder`."""
    folder = folder / "tables"  # the folder above may lie among runs
    tables.write(rows, folder)
    with page.reading(folder):
        yield


def words(text):
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())


def test_the_first_answer_is_counted_from_the_rows():
    rows = lookup.one_user()
    own = rows[(rows["device"] == "RTX 4090") & (rows["model"] == "llama-3.1-8b") & (rows["bits"] == 4)]
    said = words(front.answer(*START))
    assert f"{len(own)} measurements of llama-3.1-8b or llama-3-8b" in said
    assert not own["format"].str.contains("Q3|Q5").any(), "what the name calls three bits is none of four"
    assert said.startswith(f"{own['rate'].min():.0f} to {own['rate'].max():.0f} tokens/s for one user")


def test_what_nobody_measured_says_so_and_names_what_comes_nearest():
    said = words(front.answer("RTX 4090", "qwen3-235b-a22b", 16))
    assert said.startswith("Nobody here has measured exactly this.")
    assert front.nearest("RTX 4090", "llama-3.1-8b", 4)


def test_our_largest_model_with_a_reference_is_shown(tmp_path):
    for model in ("smollm2-135m", "qwen2.5-coder-1.5b"):
        for backend, option in (("transformers", "float32"), ("llamacpp", "F16")):
            write_every(tmp_path, backend=backend, option=option, model=model)
    write_every(tmp_path, backend="llamacpp", option="F16", model="llama-3.1-8b")
    rows = store.load(folder=tmp_path)
    with read_of(rows, tmp_path / "tables"):
        assert front.own_rows().model == "qwen2.5-coder-1.5b", "the largest, but one without a reference"
        assert "qwen2.5-coder-1.5b, 1.5 billion parameters" in front.processor_line()
    with read_of(rows.iloc[:0], tmp_path / "none"):
        assert front.processor_line() == ""


def test_the_fastest_is_named_with_the_problems_that_it_does_not_solve():
    """Of the committed runs: speed of one machine, HumanEval of another."""
    with page.reading(TABLES):
        rows, said, scores = front.own_rows(), front.processor_line(), page.table("humaneval")
    best = rows.means("output_tokens_per_s").idxmax()
    scores = scores[(scores[["backend", "option"]] == best).all(axis=1) & (scores["model"] == rows.model)]
    verdict = scores["verdict"].iloc[0]
    assert f"programming problems it solves {verdict} than the same 4-bit file in transformers" in said


def test_where_no_other_option_answers_as_the_reference_the_front_page_says_so(tmp_path):
    for backend, option in (("transformers", "float32"), ("llamacpp", "F16")):
        write_every(tmp_path, backend=backend, option=option, model="qwen2.5-coder-1.5b")
    rows = store.load(folder=tmp_path)
    none = "Every option with fewer bits differs somewhere from the answers of **transformers float32**"
    with read_of(rows, tmp_path / "same"):
        assert none not in front.processor_line()
    turned = rows["output_ids"].map(lambda ids: " ".join(reversed(ids.split())))
    scored = (rows["experiment"] == "quality") & (rows["backend"] == "llamacpp")
    with read_of(rows.assign(output_ids=rows["output_ids"].mask(scored, turned)), tmp_path / "other"):
        assert none in front.processor_line()


def test_a_larger_model_that_was_asked_three_prompts_only_is_shown_with_its_form(tmp_path):
    """SmolLM2 has both forms, the larger model the short one: neither is pooled."""
    for backend, option in (("transformers", "float32"), ("llamacpp", "F16")):
        write_run(tmp_path, backend=backend, option=option, n=9, tokens=200)
        for model in ("smollm2-135m", "qwen2.5-coder-0.5b"):
            short = {"experiment": "sizes", "tokens": 128, "rate": 20.0}
            write_run(tmp_path, backend=backend, option=option, model=model, **short)
    rows = store.load(folder=tmp_path)
    with read_of(rows, tmp_path / "both"):
        assert front.own_rows().model == "qwen2.5-coder-0.5b"
        assert "3 prompts of 128 new tokens" in front.processor_line()
        assert set(front.own_rows().front["requests"]) == {3}
    with read_of(rows[rows["model"] == "smollm2-135m"], tmp_path / "small"):
        assert set(front.own_rows().front["requests"]) == {9}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The picker alone, as a page with its assets beside it."""
    folder = tmp_path_factory.mktemp("front")
    for name in ("picker.js", "expect.js"):
        (folder / "assets").mkdir(exist_ok=True)
        (folder / "assets" / name).write_text((ROOT / "assets" / name).read_text())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(front, "DOWNLOADS", folder / "downloads")
        text = front.picker()
    (folder / "index.html").write_text(f"<!doctype html><html lang=en><title>Front</title>{text}</html>")
    return folder / "index.html"


@pytest.mark.check
def test_the_browser_answers_as_python_does(opened):
    page = opened()
    first = words(page.locator("#picker-said").inner_html())
    for device, model, bits in (
        ("Apple M4 Max", "llama-3.1-8b", 4),
        ("RTX 3090", "qwen3-8b", 8),
        START,
    ):
        before = int(page.get_attribute("#picker", "data-ready"))
        for name, value in (("device", device), ("model", model), ("bits", str(bits))):
            page.select_option(f"[name={name}]", value)
        page.wait_for_selector(f"#picker[data-ready='{before + 3}']")
        assert words(page.locator("#picker-said").inner_html()) == words(front.answer(device, model, bits))
        assert f"device={device.replace(' ', '+')}" in page.url and f"bits={bits}" in page.url
    assert words(page.locator("#picker-said").inner_html()) == first
    again = opened("?device=RTX+3090&model=llama-3.1-8b&bits=4")
    assert words(again.locator("#picker-said").inner_html()) == words(
        front.answer("RTX 3090", "llama-3.1-8b", 4)
    )


@pytest.mark.check
def test_the_answer_stands_there_without_javascript(site, browser):
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto(site.as_uri())
    assert "measurements of" in page.locator("#picker-said").inner_text()
    page.close()


def test_the_picture_has_a_row_for_each_device_and_every_option_of_our_own(tmp_path):
    for option, answer in (("F16", "9 × 8 is 72"), ("Q4_0", "9 × 8 is 11")):
        write_run(tmp_path, backend="llamacpp", option=option, answer=answer, prompt=quality.QUESTION)
    write_run(
        tmp_path, backend="transformers", option="float32", answer="9 × 8 is 72", prompt=quality.QUESTION
    )
    with read_of(store.load(folder=tmp_path), tmp_path / "tables"):
        own = front.shown_own()
    assert len(own) == 3, "Q4_0 says 11, and is in the table: it is in the picture"
    shown = front.shown_rows()
    fastest = shown.groupby("device")["rate"].max().sort_values(ascending=False)
    assert list(dict.fromkeys(shown["device"])) == list(fastest.index)
