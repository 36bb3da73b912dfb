"""The fields of How much and Start in a browser, from their files; answers are those of the command."""

import json
import re
import sys

import pytest
from commands import run

pytestmark = [pytest.mark.early, pytest.mark.check]
READY = "#ask"


@pytest.fixture(scope="module")
def site(rendered):
    return rendered / "pages" / "how-much.html"


def said(page):
    return page.locator("#said").inner_text()


def choose(page, **values):
    """Choose values of fields, and wait until the answer stands there."""
    for name, value in values.items():
        before = int(page.locator("#ask").get_attribute("data-ready"))
        page.select_option(f"#ask [name={name}]", value)
        page.wait_for_function(f"Number(document.getElementById('ask').dataset.ready) > {before}")


def test_the_first_answer_says_what_was_measured_what_to_expect_and_what_fits(opened):
    page = opened()
    assert all(word in said(page) for word in ("measured", "expect", "fits"))
    assert page.locator("#ask select").count() == 7


def test_an_answer_is_the_one_of_the_command(opened):
    page = opened()
    choose(page, accelerator="rtx-3090", model="llama-3.1-8b", format="Q4_K_M", users="8", context="8192")
    command = page.locator("#command").inner_text()
    assert command.startswith('llm-measured expect "RTX 3090" llama-3.1-8b Q4_K_M llama.cpp')
    words = ["RTX 3090", "llama-3.1-8b", "Q4_K_M", "llama.cpp", "--context", "8192", "--users", "8", "--json"]
    told = json.loads(run(sys.executable, "-m", "llm_measured", "expect", *words).stdout)
    (rate,) = [value for key, value in told.items() if key == "predicted_output_tokens_per_s"]
    assert f"expect {rate:.0f} (" in said(page) and "for each of 8" in said(page)


def test_a_smaller_memory_and_more_cards_change_what_fits(opened):
    page = opened("?accelerator=rtx-3090&model=llama-3-70b")
    assert "does not fit" in said(page)
    choose(page, count="2")
    assert "fits" in said(page) and "does not fit" not in said(page) and "of 48 GB" in said(page)
    page = opened("?accelerator=apple-m4-max&model=gpt-oss-120b&memory=64")
    assert "does not fit" in said(page) and "of 64 GB" in said(page)
    choose(page, memory="128")
    assert "fits" in said(page) and "does not fit" not in said(page)


def test_a_choice_stands_in_the_address(opened):
    page = opened()
    choose(page, accelerator="rtx-5090", users="32")
    again = opened(page.evaluate("location.search"))
    assert said(again) == said(page) and "for each of 32" in said(page)


def test_start_asks_five_fields_of_the_same_answers_and_has_the_first_without_javascript(
    opened, rendered, browser
):
    page = opened(file=rendered / "index.html")
    assert page.locator("#ask select").count() == 5 and said(page) == said(opened())
    plain = browser.new_page(java_script_enabled=False)
    plain.goto(f"file://{rendered / 'index.html'}")
    assert said(plain).split() == said(page).split()
    plain.close()


def test_the_rows_behind_an_answer_are_those_of_its_card_number_model_and_bits(opened):
    page = opened("?accelerator=rtx-3090&count=2&model=llama-3-70b")
    measured = said(page)
    page.click("#rows")
    page.wait_for_selector("#cards[data-ready]")
    inputs = page.locator("#cards input").evaluate_all("all => all.map(one => one.value).filter(Boolean)")
    assert inputs == ["llama-3-70b", "=4", "=2", "llama-3-70b", "Q4_K_M", "=2"]
    counts = (
        page.locator(".tabulator").first.locator(".tabulator-row [tabulator-field=rows]").all_inner_texts()
    )
    assert counts and f"(all {sum(map(int, counts))} rows" in measured


def test_what_was_measured_is_of_the_format_or_says_of_which_and_by_whom(opened):
    page = opened()
    assert said(page).startswith(
        "measured 119 to 163 tokens/s (all 13 rows of 3 sources: 58 to 165) · expect"
    )
    choose(page, format="INT4")
    assert said(page).startswith(
        "not measured in INT4; in Q4_K_M 119 to 163 tokens/s (all 13 rows of 3 sources"
    )
    page = opened("?accelerator=laptop-cpus")
    assert "rows of localscore: 1.5 to 13)" in said(page)


def test_what_cannot_fit_says_so_and_what_a_model_was_not_made_for(opened):
    page = opened("?accelerator=rtx-4090&model=llama-3-70b&context=32768")
    assert "does not fit: needs 51 of 24 GB" in said(page) and "listed" not in said(page)
    assert "llama-3.1-70b" in page.locator("#command").inner_text()
    choose(page, model="llama-3.1-405b")
    assert "does not fit: needs at least" in said(page) and "listed" not in said(page)
    choose(page, model="llama-2-7b")
    assert "llama-2-7b was made for 4,096 tokens" in said(page) and "listed" not in said(page)


def test_an_answer_far_from_what_was_measured_says_what_was_measured_otherwise(opened):
    page = opened("?accelerator=h100&model=llama-3.1-8b&format=Q4_K_M")
    assert "llama.cpp on h100-sxm, above all that was measured, mostly on h100-pcie in 2024" in said(page)
    assert "that was measured" not in said(opened())


def test_another_format_says_that_the_engine_is_another(opened):
    page = opened("?accelerator=h100&model=llama-3.1-8b&format=Q4_K_M")
    first = re.search(r"with (\S+)", said(page))[1]
    others = page.locator("[name=format] option").evaluate_all("all => all.map(one => one.value)")
    choose(page, format=next(name for name in others if name != "Q4_K_M"))
    assert f", no longer {first}" in said(page) and said(page) != first
    choose(page, users="8")
    assert "no longer" not in said(page)


def test_where_nothing_is_listed_of_two_cards_the_answer_says_that_it_is_of_one(opened):
    page = opened("?accelerator=rtx-3090&count=2")
    choose(page, accelerator="apple-m4-max")
    assert said(page).startswith("nothing is listed of 2 × Apple M4 Max, so this is one")
    assert page.locator("[name=count] option").all_inner_texts() == ["1"]


def test_the_answers_are_small_and_none_is_impossible(rendered):
    files = sorted((rendered / "downloads" / "expect").glob("*.js"))
    sizes = [file.stat().st_size for file in files]
    assert len(files) > 130  # all but groups of machines that nobody names, such as laptop GPUs
    assert max(sizes) <= 60_000 and sum(sizes) <= 4_000_000
    for file in files:
        answers = json.loads(file.read_text().removeprefix("globalThis.answers=").rstrip(";\n"))
        for formats in answers["of"].values():
            for _, listed in formats.values():
                assert len(listed) == 27
                for answer in listed:
                    if isinstance(answer, list):
                        rate, low, high, needs, users = answer
                        assert (
                            0 < low <= 1.06 * rate and rate <= 1.06 * high and needs > 0 and (users or 0) >= 0
                        )


def test_the_forty_most_asked_stand_without_javascript(site, browser):
    page = browser.new_page(java_script_enabled=False)
    page.goto(f"file://{site}")
    table = page.locator("table", has_text="users at 10 tokens/s")
    assert table.locator("tbody tr").count() == 40 and table.locator("thead th").count() <= 8
    page.close()
