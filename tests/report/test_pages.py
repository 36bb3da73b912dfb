"""The pages as a reader sees them: rendered by Quarto from made-up runs and opened in headless Chromium, on a
desk and on a phone."""

import csv
import json
import re

import pandas as pd
import pytest
import yaml
from commands import run
from rendering import opened

from bench.paths import ROOT
from bench.report import prerender

pytestmark = [pytest.mark.early, pytest.mark.check]

SOURCES = yaml.safe_load((ROOT / "_quarto.yml").read_text())["project"]["render"]
PAGES = [name.replace(".qmd", ".html") for name in SOURCES]


@pytest.fixture(scope="module")
def desk(site, browser):
    """A function that opens a page on a desk, once for all tests that only look at it."""
    known = {}
    yield lambda name: known.get(name) or known.setdefault(name, opened(browser, f"{site}/{name}"))
    for page in known.values():
        page.close()


# Tables wider than their box, and those whose first cell with a number of the first row ends beyond it.
WIDER = """() => [...document.querySelectorAll(".table-scroll")]
  .filter(box => box.offsetParent && box.scrollWidth > box.clientWidth + 1)
  .map(box => box.getAttribute("aria-label"))"""
NUMBER_OUT_OF_SIGHT = """() => [...document.querySelectorAll(".table-scroll")].filter(box => {
  const number = box.querySelector("tbody tr")?.querySelector("td[data-sort]");
  return box.offsetParent && number
    && number.getBoundingClientRect().right > box.getBoundingClientRect().right + 1;
}).map(box => box.getAttribute("aria-label"))"""


@pytest.mark.parametrize(("width", "badly"), [(1280, WIDER), (390, NUMBER_OUT_OF_SIGHT)])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_opens_without_errors_and_fits_with_its_tables(site, browser, name, width, badly):
    page = opened(browser, f"{site}/{name}", width)
    assert page.troubles == [] and page.outside == []
    assert page.locator("h1").count() >= 1 and page.locator("nav a").count() >= len(PAGES)
    assert page.locator("table, #ask, pre").count() >= 1
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "the page scrolls sideways"
    for picture in page.locator("img").all():
        assert picture.get_attribute("alt") and picture.evaluate("i => i.naturalWidth") > 0
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    assert page.evaluate(badly) == []
    page.close()


def test_the_first_screen_holds_the_fields_the_answer_the_picture_and_the_lines(desk):
    """At 1280 by 800, without a scroll."""
    ends = desk("index.html").evaluate("""() => [
      ...document.querySelectorAll("#ask, #said, .front-page .beside img, .front-page p:has(> strong:first-child)")
    ].map(one => [one.innerText.slice(0, 12), one.getBoundingClientRect().bottom + scrollY])""")
    said = [words for words, _ in ends]
    assert {"Fewer bits. ", "You have no ", "Many users, "} <= set(said) and len(ends) == 6
    assert max(bottom for _, bottom in ends) <= 800


MOVED = pd.read_csv(ROOT / "pages" / "moved.csv")
# {a former address: the page that is there instead}.
BEFORE = {
    alias.removeprefix("/"): name.replace(".qmd", ".html")
    for name in SOURCES
    for alias in prerender.many(prerender.read(ROOT / name)[0].get("aliases"))
}


def test_the_address_that_a_page_had_before_leads_to_it(site, browser):
    assert {f"{name}.html" for name in (*MOVED["before"], "method", "answers")} <= set(BEFORE)
    for before, now in BEFORE.items():
        page = opened(browser, f"{site}/{before}#TOC")
        page.wait_for_url(re.compile(rf"{re.escape(f'{site}/{now}')}(\?[^#]*)?#TOC"))
        # A browser may call the old address's own request broken off: it left that page before it had ended.
        assert [each for each in page.troubles if each != f"{site}/{before}"] == []
        page.close()


@pytest.mark.parametrize("before", ["latency.html", "pages/answers.html"])
def test_the_address_that_a_page_had_before_leads_to_it_without_javascript(site, browser, before):
    page = browser.new_page(java_script_enabled=False)
    page.goto(f"{site}/{before}")
    page.wait_for_url(f"{site}/{BEFORE[before]}")
    assert page.locator("h1").count() >= 1
    page.close()


def test_a_place_within_a_former_page_leads_to_where_it_is_now(rendered, site, browser):
    for before, anchor, now in MOVED.itertuples(index=False):
        target, _, place = now.partition("#")
        assert not place or f'id="{place}"' in (rendered / "pages" / target).read_text(), now
        for folder, up in (("", "pages/"), ("pages/", "")):
            left = (rendered / f"{folder}{before}.html").read_text()
            assert f'<li id="{anchor}"><a href="{up}{now}">' in left  # without JavaScript
    page = opened(browser, f"{site}/latency.html#what-we-measured")
    page.wait_for_url(f"{site}/pages/engines.html#quick-check")
    page.close()


def test_quarto_warns_of_nothing(rendered):
    said = (rendered.parent / "render.log").read_text()
    assert "Output created: _site/index.html" in said
    assert [line for line in said.splitlines() if "WARN" in line] == []


def test_tables_sort_by_click(site, browser):
    page = opened(browser, f"{site}/pages/engines.html")
    table = page.locator("table.sortable", has_text="Qwen2.5-Coder 1.5B").first
    rates = lambda: [
        float(cell.get_attribute("data-sort"))
        for cell in table.locator("tbody tr td:nth-child(3)").all()
        if cell.is_visible()
    ]
    header = table.locator("th:nth-child(3)")
    header.click()
    page.wait_for_timeout(200)  # the sorter waits a moment before it moves the rows
    once = rates()
    header.click()
    page.wait_for_timeout(200)
    assert len(once) >= 3 and rates() == once[::-1] and once in (sorted(once), sorted(once, reverse=True))
    page.close()


def shown_rows(table):
    return [row.inner_text() for row in table.locator("tbody tr").all() if row.is_visible()]


def test_a_table_is_searched_narrowed_and_saved_with_the_keyboard_alone(site, browser):
    page = opened(browser, f"{site}/pages/engines.html")
    box = page.locator(".table-scroll", has_text="Qwen2.5-Coder 1.5B").first
    table, tools = box.locator("table"), box.locator("xpath=preceding-sibling::div[1]")
    every, heads = len(shown_rows(table)), table.locator("thead th").all_inner_texts()
    tools.locator("input[type=search]").focus()
    page.keyboard.type("LLAMACPP q4_0")
    assert len(shown_rows(table)) == 1 < every and f"1 of {every} rows" in tools.inner_text()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")  # past the first column, which stays
    page.keyboard.press("Space")
    gone = heads[1]
    assert not table.locator("thead th", has_text=gone).first.is_visible()
    page.keyboard.press("Escape")
    assert not tools.locator("fieldset").is_visible()
    page.keyboard.press("Tab")
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    with open(download.value.path(), newline="") as file:
        saved = list(csv.DictReader(file))
    assert len(saved) == 1 and list(saved[0]) == [head for head in heads if head != gone]
    cells = table.locator("tbody tr:not(.no-match)").first.locator("th:visible, td:visible").all()
    assert list(saved[0].values()) == [c.get_attribute("data-sort") or c.inner_text().strip() for c in cells]
    assert page.troubles == []
    page.close()


def test_printed_pages_show_whole_tables_and_no_tools(site, browser):
    page = opened(browser, f"{site}/pages/engines.html", 720)
    page.emulate_media(media="print")
    assert not page.locator(".table-tools").first.is_visible() and page.locator("table").first.is_visible()
    assert page.evaluate(
        "[...document.querySelectorAll('.table-scroll')].every(b => getComputedStyle(b).overflow === 'visible')"
    )
    page.close()


# The dark colours and the phone's widths are the same on all pages: three have every kind of content.
BARRIERS = [(name, "light", 1280) for name in PAGES]
BARRIERS += [
    (f"pages/{name}.html", "dark", width)
    for name in ("engines", "cards", "how-much")
    for width in (1280, 390)
]


@pytest.mark.check
@pytest.mark.parametrize(("name", "scheme", "width"), BARRIERS)
def test_a_page_has_no_serious_barrier(site, browser, name, scheme, width):
    from axe_playwright_python.sync_playwright import Axe

    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.goto(f"{site}/{name}", wait_until="load")
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    found = Axe().run(page).response["violations"]
    serious = [(v["id"], v["nodes"][0]["html"]) for v in found if v["impact"] in ("serious", "critical")]
    assert serious == []
    page.close()


def test_pages_are_light_and_listed_for_language_models(rendered):
    for file in rendered.rglob("*.html"):
        assert file.stat().st_size <= 500_000, f"{file.name} weighs {file.stat().st_size / 1e3:.0f} kB"
    index = (rendered / "llms.txt").read_text()
    for name in PAGES:
        text = name.replace(".html", ".llms.md")
        assert text in index and "base64" not in (rendered / text).read_text()


def test_the_search_finds_what_readers_ask(rendered):
    """Quarto's search looks for a question's words as they stand, in headings and text."""
    listed = json.loads((rendered / "search.json").read_text())
    texts = [f"{each['title']} {each['section']} {each['text']}".lower() for each in listed]
    for words in ("redraw", "redraw a figure", "q8 kv cache", "rtx 4090", "rocm"):
        assert any(words in text for text in texts), words


def test_a_shared_link_has_a_picture(rendered):
    for name in PAGES:
        text = (rendered / name).read_text()
        (picture,) = re.findall(r'property="og:image" content="([^"]+)"', text)
        assert (rendered / name).parent.joinpath(
            picture
        ).is_file() and 'property="og:description" content="' in text


def test_one_choice_of_a_processor_shows_its_rows_in_every_table(site, browser):
    page = opened(browser, f"{site}/pages/engines.html")
    choice = page.locator("#processor select")
    first = choice.input_value()
    choice.select_option("epyc-zen4-2c")
    of = "[...document.querySelectorAll('tr[data-of]')].filter(row => !row.hidden).map(row => row.dataset.of)"
    assert first != "epyc-zen4-2c" and set(page.evaluate(of)) == {"epyc-zen4-2c"}
    choice.select_option("intel-xeon-2c")
    none = page.locator("table", has_text="Qwen2.5-Coder 1.5B").first.locator(".none")
    assert none.inner_text() == "not measured on this processor"
    page.close()
    page = browser.new_page(java_script_enabled=False)
    page.goto(f"{site}/pages/engines.html")
    shown = page.locator("table", has_text="Qwen2.5-Coder 1.5B").first.locator("tbody tr")
    assert {row.get_attribute("data-of") for row in shown.all() if row.is_visible()} == {first}
    page.close()


def test_every_figure_and_table_carries_its_command(desk):
    for name in PAGES:
        page = desk(name)
        commands = page.locator(".command").all_text_contents()  # of folded parts too
        cells = page.locator("[id^=cell-fig-], [id^=tbl-].cell").count()
        assert len(commands) >= page.locator("figure.plot").count() + cells
        known = ("papermill notebooks/", "python -m bench.", "make expect-")
        assert all(any(word in c for word in known) for c in commands)


@pytest.mark.check
def test_a_site_of_nothing_replaces_an_old_one_and_no_stranger_s_folder(tmp_path):
    (tmp_path / "_site").mkdir()
    # Snakemake removes its target, index.html, before it builds.
    (tmp_path / "_site" / "method.html").write_text("old")
    command = ("python", "-m", "bench.report.preview")
    run(*command, BENCH_SITE=tmp_path / "_site", BENCH_RESULTS=tmp_path / "none")
    assert (tmp_path / "_site" / "method.html").read_text() != "old"
    assert "make study" in (tmp_path / "_site" / "index.html").read_text()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letters.txt").write_text("dear")
    done = run(*command, check=False, BENCH_SITE=tmp_path / "mine", BENCH_RESULTS=tmp_path / "none")
    assert done.returncode != 0 and "neither empty nor an earlier site" in done.stderr
    assert (tmp_path / "mine" / "letters.txt").exists()


@pytest.mark.check
def test_a_cell_that_fails_fails_the_build_and_keeps_the_old_site(tmp_path):
    (tmp_path / "r" / "tables").mkdir(parents=True)
    (tmp_path / "r" / "tables" / "sizes.csv").write_text("a\n1\n")
    (tmp_path / "_site").mkdir()
    (tmp_path / "_site" / "index.html").write_text("old")
    places = {"BENCH_SITE": tmp_path / "_site", "BENCH_RESULTS": tmp_path / "r"}
    done = run("python", "-m", "bench.report.preview", check=False, **places)
    assert done.returncode != 0 and "a cell failed, so no site was written" in done.stderr + done.stdout
    assert (tmp_path / "_site" / "index.html").read_text() == "old"
