"""The pages as a reader sees them: rendered by Quarto from made-up runs and opened in headless Chromium, on a
desk and on a phone."""

import csv
import posixpath
import re

import nbformat
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


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_opens_without_errors_and_fits(site, browser, desk, name, width):
    page = desk(name) if width == 1280 else opened(browser, f"{site}/{name}", width)
    assert page.troubles == [] and page.outside == []
    assert page.locator("h1").count() >= 1 and page.locator("nav a").count() >= len(PAGES)
    assert page.locator("table, #ask, pre").count() >= 1
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "the page scrolls sideways"
    for picture in page.locator("img").all():
        assert picture.get_attribute("alt") and picture.evaluate("i => i.naturalWidth") > 0
    if width > 1000:
        assert [name for name, beyond, numbers in page.evaluate(WIDTHS) if beyond > 0 and numbers < 4] == []
    else:
        page.close()


# Name, pixels beyond the window, and columns of numbers of every table that has rows.
WIDTHS = """[...document.querySelectorAll(".table-scroll:has(tbody th)")].map(box => [
  box.getAttribute("aria-label"),
  box.scrollWidth - box.clientWidth,
  box.querySelectorAll("tbody tr:first-child td[data-sort]").length])"""


def titles(source):
    """Second-level titles of a page."""
    text = re.sub(r"```.*?```", "", source, flags=re.DOTALL)
    return re.findall(r"^## (.+?)(?: \{#[\w-]+\})?$", text, flags=re.MULTILINE)


# Text of every heading below the page's own, and of the contents' first level; whether each has an address.
OUTLINE = """() => ({
  headings: [...document.querySelectorAll("main section > h2")].map(h => h.innerText),
  addresses: [...document.querySelectorAll("main section > :is(h2, h3)")].map(h => h.parentElement.id),
  contents: [...document.querySelectorAll("#TOC > ul > li > a")].map(a => a.innerText),
  targets: [...document.querySelectorAll("#TOC > ul a")].map(a => a.hash.slice(1)),
})"""


@pytest.mark.parametrize("name", SOURCES)
def test_headings_stand_in_the_contents(desk, name):
    outline, source = desk(name.replace(".qmd", ".html")).evaluate(OUTLINE), (ROOT / name).read_text()
    assert (
        outline["headings"] == titles(source) and len(outline["headings"]) > 1 and all(outline["addresses"])
    )
    if "\ntoc: false\n" in source:
        assert name in ("index.qmd", "pages/cards.qmd") and outline["contents"] == []
    else:
        assert outline["contents"] == outline["headings"] and outline["targets"] == outline["addresses"]


def test_the_first_screen_holds_the_fields_the_answer_the_picture_and_the_lines(desk):
    """At 1280 by 800, without a scroll."""
    ends = desk("index.html").evaluate("""() => [
      ...document.querySelectorAll("#ask, #said, .front-page .beside img, .front-page p:has(> strong:first-child)")
    ].map(one => [one.innerText.slice(0, 12), one.getBoundingClientRect().bottom + scrollY])""")
    said = [words for words, _ in ends]
    assert {"Fewer bits. ", "You have no ", "Many users, "} <= set(said) and len(ends) == 6
    assert max(bottom for _, bottom in ends) <= 800


def test_links_within_the_site_lead_somewhere(rendered):
    texts = {name: (rendered / name).read_text() for name in PAGES}
    links = [
        (name, link) for name, text in texts.items() for link in re.findall(r'<a [^>]*href="([^"]+)"', text)
    ]
    local = [
        (name, *link.partition("#")[::2]) for name, link in links if not re.match(r"https?:|mailto:", link)
    ]
    assert len(local) > 50
    for name, address, anchor in local:
        address = address.partition("?")[0]  # what a page shall show
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), address)) if address else name
        assert (rendered / target).is_file(), f"{name} links to {target}, which is not there"
        found = not anchor or target not in texts or f'id="{anchor}"' in texts[target]
        assert found, f"{name} links to {target}#{anchor}, which is not there"


# Pages that were joined to others: what stood at their address is a part of another page now.
JOINED = {
    **dict.fromkeys(("latency", "serving", "batching", "conversations"), "engines"),
    **dict.fromkeys(("quality", "answers", "backends"), "engines"),
    **dict.fromkeys(("guide", "audit"), "check"),
    **dict.fromkeys(("plan", "expect"), "how-much"),
    **dict.fromkeys(("published", "explore"), "cards"),
    "comparisons": "a-or-b",
    "changelog": "method",
}
LAID = ("method",)  # at the top, before pages/ was made
BEFORE = {f"{name}.html": f"pages/{name}.html" for name in LAID} | {
    f"{folder}{old}.html": f"pages/{new}.html" for old, new in JOINED.items() for folder in ("", "pages/")
}
MOVED = pd.read_csv(ROOT / "pages" / "moved.csv")


@pytest.mark.parametrize("before", BEFORE)
def test_the_address_that_a_page_had_before_leads_to_it(site, browser, before):
    left, now = f"{site}/{before}", f"{site}/{BEFORE[before]}"
    page = opened(browser, f"{left}#TOC")
    page.wait_for_url(re.compile(rf"{re.escape(now)}(\?[^#]*)?#TOC"))
    # A browser may call the old address's own request broken off: it left that page before its end was there.
    assert [each for each in page.troubles if each != left] == [] and page.locator("h1").count() >= 1
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


def test_every_page_says_where_it_was_before():
    fronts = {source.replace(".qmd", ".html"): prerender.read(ROOT / source)[0] for source in SOURCES}
    said = {alias: name for name, front in fronts.items() for alias in prerender.many(front.get("aliases"))}
    assert said == {f"/{before}": name for before, name in BEFORE.items()}


def test_html_that_a_cell_shows_is_refused():
    """Quarto would load jQuery and RequireJS from another host for it."""
    output = nbformat.v4.new_output("display_data", {"text/plain": "", "text/html": "<table></table>"})
    with pytest.raises(SystemExit, match="page.qmd: a cell shows text/html.*CDN"):
        prerender.refuse_html(output, "page.qmd")


def test_no_style_asks_another_host():
    site = prerender.settings()
    for theme in site["format"]["html"]["theme"].values():
        layers = [(ROOT / layer).read_text() for layer in theme if layer.endswith(".scss")]
        assert any("$web-font-path: false;" in layer for layer in layers), "Bootswatch imports a font"
    for style in [*ROOT.glob("assets/*.css"), *ROOT.glob("assets/*.scss")]:
        assert not re.search(r"^\s*@import|url\(\s*['\"]?(https?:)?//", style.read_text(), re.M), style.name


def test_a_page_has_one_paragraph_that_says_what_it_is():
    for source in SOURCES:
        front, _ = prerender.read(ROOT / source)
        assert front["description"] and "subtitle" not in front, source


def test_quarto_takes_resources_from_the_top_only():
    assert all(pattern.startswith("/") for pattern in prerender.settings()["project"]["resources"])


def test_quarto_warns_of_nothing(rendered):
    said = (rendered.parent / "render.log").read_text()
    assert "Output created: _site/index.html" in said
    assert [line for line in said.splitlines() if "WARN" in line] == []


def test_rendering_with_quarto_leaves_git_clean():
    lines = (ROOT / ".gitignore").read_text().splitlines()
    assert {"/.quarto/", "**/*.quarto_ipynb"} <= set(lines)


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


WIDER_THAN_ITS_BOX = """() => [...document.querySelectorAll(".table-scroll")]
  .filter(box => box.offsetParent && box.scrollWidth > box.clientWidth + 1)
  .map(box => box.getAttribute("aria-label"))"""
# Tables of many columns with addresses, commands or several words in each: they scroll. Any other has to fit.
WIDE = (
    "The systems of the three studies",
    "Replayed traces beside their schedules",
    "H200 and the others: settings that one source",
    "vLLM and the others: settings that one source",
    "Predicted before a source of ours had it",
)


def found_on_pages(site, browser, script, width):
    """[(page, label)] of what `script` finds on each page at `width`, with every fold open."""
    found = []
    for name in PAGES:
        page = opened(browser, f"{site}/{name}", width)
        page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
        found += [(name, label) for label in page.evaluate(script)]
        page.close()
    return found


@pytest.mark.check
def test_a_table_fits_a_wide_screen(site, browser):
    wide = found_on_pages(site, browser, WIDER_THAN_ITS_BOX, 1280)
    assert [found for found in wide if not any(words in found[1] for words in WIDE)] == []


# Tables whose first cell with a number of the first row ends beyond their box.
NUMBER_OUT_OF_SIGHT = """() => [...document.querySelectorAll(".table-scroll")].filter(box => {
  const number = box.querySelector("tbody tr")?.querySelector("td[data-sort]");
  return box.offsetParent && number
    && number.getBoundingClientRect().right > box.getBoundingClientRect().right + 1;
}).map(box => box.getAttribute("aria-label"))"""
# Tables whose rows have five names and more before a number.
LONG_NAMES = (
    "Settings that two families of sources measured",
    "Predicted before a source of ours had it",
    "Some common settings",
    "Settings of one source at two dates",
    "Energy of one output token",
    "MLPerf Inference: ",
    "What is easily misread in these files",
    "The systems of the three studies",
)


@pytest.mark.check
def test_a_table_shows_its_first_number_on_a_phone(site, browser):
    beyond = found_on_pages(site, browser, NUMBER_OUT_OF_SIGHT, 390)
    assert [found for found in beyond if not any(words in found[1] for words in LONG_NAMES)] == []


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
        assert f"]({text}): " in index and (rendered / text).is_file()


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
    assert (
        "intel-xeon-2c: not measured" in page.locator("caption", has_text="Qwen2.5-Coder 1.5B").inner_text()
    )
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
    command = ("python", "-m", "bench.report.preview", "--out")
    run(*command, tmp_path / "_site", BENCH_RESULTS=tmp_path / "none")
    assert (tmp_path / "_site" / "method.html").read_text() != "old"
    assert "make study" in (tmp_path / "_site" / "index.html").read_text()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letters.txt").write_text("dear")
    done = run(*command, tmp_path / "mine", check=False, BENCH_RESULTS=tmp_path / "none")
    assert done.returncode != 0 and "neither empty nor an earlier site" in done.stderr
    assert (tmp_path / "mine" / "letters.txt").exists()


@pytest.mark.check
def test_a_cell_that_fails_fails_the_build_and_keeps_the_old_site(tmp_path):
    (tmp_path / "r" / "tables").mkdir(parents=True)
    (tmp_path / "r" / "tables" / "sizes.csv").write_text("a\n1\n")
    (tmp_path / "_site").mkdir()
    (tmp_path / "_site" / "index.html").write_text("old")
    done = run(
        "python",
        "-m",
        "bench.report.preview",
        "--out",
        tmp_path / "_site",
        check=False,
        BENCH_RESULTS=tmp_path / "r",
    )
    assert done.returncode != 0 and "a cell failed, so no site was written" in done.stderr + done.stdout
    assert (tmp_path / "_site" / "index.html").read_text() == "old"
