"""What the pages may be at most: words, screens, tables, columns, small print, scripts."""

from urllib.parse import urlsplit

import pytest
from rendering import opened

from bench.paths import ROOT
from bench.report import prerender

pytestmark = [pytest.mark.early, pytest.mark.check]

# Words of a page's whole main element, folds, code and captions included.
WORDS = {
    "index": 900,
    "pages/cards": 3350,
    "pages/a-or-b": 1800,
    "pages/how-much": 1200,
    "pages/what-it-costs": 1550,
    "pages/engines": 2500,
    "pages/check": 1200,
    "pages/method": 1500,
}
ALL_WORDS, LINKED_WORDS = 14_000, 10_000
SCREENS, PHONE_SCREENS = 8, 8  # at 1280 by 800 and at 390 by 844; fonts differ by some 2 %; they only fall
TABLES, COLUMNS, TEXT_PIXELS, DESCRIPTION_WORDS, SCRIPT_LINES = 50, 8, 11, 12, 300
VENDORED = "sortable.min.js", "tabulator.min.js"
PAGES = [name.removesuffix(".qmd") for name in prerender.settings()["project"]["render"]]

MEASURED = """() => {
  const main = document.querySelector("main").cloneNode(true);
  for (const part of main.querySelectorAll("script, style, option")) part.remove();
  const tables = [...document.querySelectorAll("main table")];
  return {
    words: main.textContent.split(/\\\\s+/).filter(Boolean).length,
    columns: tables.map(table => Math.max(...[...table.rows].map(row => row.cells.length))),
    screens: document.documentElement.scrollHeight / innerHeight,
    files: [...document.querySelectorAll("main a[href$='.md'], main a[href*='.md#']")].map(a => a.href),
  };
}""".replace("\\\\", "\\")
# The smallest text of each picture in pixels, as wide as it is shown.
SMALLEST = """async () => Promise.all([...document.querySelectorAll("main img[src*='.svg']")].map(async image => {
  const text = await (await fetch(image.src)).text();
  const wide = Number(text.match(/viewBox="[\\d.]+ [\\d.]+ ([\\d.]+)/)[1]);
  const sizes = [...text.matchAll(/font(?:-size)?: *(?:[\\w-]+ )*?([\\d.]+)px/g)].map(found => Number(found[1]));
  return [image.src.split("/").pop(), Math.min(...sizes) * image.clientWidth / wide];
}))"""


@pytest.fixture(scope="module")
def measured(site, browser):
    """{page: what MEASURED says of it at 1280 by 800}."""
    found = {}
    for name in PAGES:
        page = opened(browser, f"{site}/{name}.html", 1280, 800)
        found[name] = page.evaluate(MEASURED)
        page.close()
    return found


def test_every_page_has_a_budget_of_words_and_keeps_it(measured):
    assert set(PAGES) <= set(WORDS) and sum(WORDS.values()) <= ALL_WORDS
    words = {name: each["words"] for name, each in measured.items()}
    assert {name: count for name, count in words.items() if count > WORDS[name]} == {}


def test_no_page_is_longer_than_eight_screens(measured):
    assert {name: each["screens"] for name, each in measured.items() if each["screens"] > SCREENS} == {}


def test_tables_are_few_and_none_is_wide(measured):
    columns = [count for each in measured.values() for count in each["columns"]]
    assert len(columns) <= TABLES and max(columns) <= COLUMNS


def test_linked_markdown_is_no_second_book(measured):
    links = {link for each in measured.values() for link in each["files"]}
    files = {ROOT / urlsplit(link).path.lstrip("/") for link in links}
    assert files and sum(len(file.read_text().split()) for file in files) <= LINKED_WORDS


@pytest.mark.parametrize("name", PAGES)
def test_on_a_phone_a_page_is_short_and_its_pictures_can_be_read(site, browser, name):
    page = opened(browser, f"{site}/{name}.html", 390, 844)
    assert page.evaluate("document.documentElement.scrollHeight / innerHeight") <= PHONE_SCREENS
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    assert [found for found in page.evaluate(SMALLEST) if found[1] < TEXT_PIXELS] == []
    page.close()


def test_descriptions_are_short():
    for name in PAGES:
        front, _ = prerender.read(ROOT / f"{name}.qmd")
        assert len(front["description"].split()) <= DESCRIPTION_WORDS, name


def test_the_site_s_own_scripts_are_short():
    scripts = [*ROOT.glob("assets/*.js"), ROOT / "assets" / "sorter.html"]
    own = [file for file in scripts if file.name not in VENDORED]
    assert sum(len(file.read_text().splitlines()) for file in own) <= SCRIPT_LINES
