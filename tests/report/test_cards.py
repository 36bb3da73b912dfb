"""The page Cards in a browser, from its file: the plain table, what stands behind a card and a model, filters and
the CSV of what is shown."""

import csv
import operator

import pytest

from bench import site as tables
from bench.report import cards

pytestmark = [pytest.mark.early, pytest.mark.check]
READY = "#cards"


@pytest.fixture(scope="module")
def site(rendered):
    return rendered / "pages" / "cards.html"


def number(device, model, bits):
    """The number of a cell as data/tables/published_lookup.csv has it."""
    rows = tables.published("lookup")
    rows = rows[(rows["device"] == device) & (rows["model"] == model) & (rows["bits"] == bits)]
    return cards.rate(rows["number"].min(), rows["number"].max())


def test_without_javascript_the_table_stands_with_the_number_of_the_table(site, browser):
    page = browser.new_page(java_script_enabled=False)
    page.goto(f"file://{site}")
    row = page.locator("#cards tbody tr", has=page.locator("th", has_text="RTX 4090").first).first
    assert row.locator("td").nth(0).inner_text() == number("RTX 4090", "llama-3.1-8b", 4)
    heads = page.locator("#cards thead th").all_inner_texts()
    assert len(heads) <= 8 and heads[1] == "llama-3.1-8b"
    page.close()


def test_every_card_and_model_has_an_address_of_its_own(rendered):
    found = cards.devices()["address"].tolist() + cards.models()["address"].tolist()
    assert len(set(found)) == len(found)
    missing = [name for name in found if not (rendered / "downloads" / "cards" / f"{name}.js").is_file()]
    assert missing == []


def test_behind_a_card_stands_what_each_source_measured_and_every_row(opened):
    page = opened("?rtx-4090")
    assert page.locator("#cards h2").inner_text() == "RTX 4090"
    facts = page.locator("#cards h2 + p").inner_text()
    assert "24 GB" in facts and "next faster memory" in facts and "next slower memory" in facts
    of_source = page.locator(".tabulator").first
    assert "guruswami" in of_source.inner_text() or "localscore" in of_source.inner_text()
    assert page.locator(".tabulator").count() == 2


def test_only_faster_memory_is_called_faster_and_only_larger_models_larger():
    sized = [(cards.devices().set_index("device"), "bandwidth_gb_per_s")]
    sized += [(cards.models().set_index("model"), "parameters_b")]
    for found, size in sized:
        for side, holds in (("up", operator.gt), ("down", operator.lt), ("equal", operator.eq)):
            names = found[side].dropna()
            of_it, of_this = found.loc[names, size].to_numpy(), found.loc[names.index, size].to_numpy()
            assert len(names) > 5 and holds(of_it, of_this).all() and (names != names.index).all()
    found = cards.devices().set_index("device").loc["GB200"]
    assert (found["equal"], found["down"]) == ("GB300", "MI325X")


def test_behind_a_model_stand_its_cards(opened):
    page = opened("?llama-3.1-8b")
    assert page.locator("#cards h2").inner_text() == "llama-3.1-8b"
    assert page.locator(".tabulator").first.locator("a", has_text="A10").count() >= 1


def test_the_csv_has_the_rows_that_the_filters_leave(opened):
    page = opened("?rtx-4090")
    page.get_by_label("Filter: model").first.press_sequentially("llama-3.1-8b")
    page.get_by_label("Filter: bits").first.press_sequentially("8")
    page.wait_for_timeout(1500)
    with page.expect_download() as download:
        page.locator("#cards button", has_text="CSV").first.click()
    with open(download.value.path(), newline="") as file:
        saved = list(csv.DictReader(file))
    assert saved and {row["model"] for row in saved} == {"llama-3.1-8b"}
    assert min(float(row["bits"]) for row in saved) >= 8
    rows = tables.published("lookup")
    rows = rows[(rows["device"] == "RTX 4090") & (rows["model"] == "llama-3.1-8b") & (rows["bits"] >= 8)]
    assert len([row for row in saved if row["cards"] == "1"]) == len(rows)


def test_the_plain_table_is_sorted_and_filtered_too(opened):
    page = opened()
    page.get_by_label("Filter: card").press_sequentially("4090")
    page.wait_for_timeout(1500)
    assert 1 <= page.locator(".tabulator-row").count() <= 6
    page.locator(".tabulator-row a", has_text="RTX 4090").first.click()
    page.wait_for_url("**cards.html?rtx-4090*")


def test_a_number_of_another_setup_has_a_star_and_is_no_dash():
    rows = tables.published("lookup")
    rows = rows[(rows["bits"] == 4) & rows["model"].isin(cards.SHOWN)]
    cells = rows.groupby(["device", "model"])[["number", "number_in_another_setup"]].min()
    other = cells.loc[cells["number"].isna(), "number_in_another_setup"].dropna()
    assert len(other) and cards.table().count("*</td>") == len(other)
