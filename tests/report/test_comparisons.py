"""A against B in published rows: only inside one source, and "cannot be told" where that is so."""

import pandas as pd
import pytest

from bench.report.published import comparisons, lookup

CARDS = comparisons.Comparison("device", ("A", "B"), ("A", "B"))


@pytest.fixture
def rows(monkeypatch):
    """A function that puts published rows in place: (source, device, model, rate) each."""

    def put(*found):
        table = pd.DataFrame(found, columns=["source", "device", "model", "rate"])
        monkeypatch.setattr(lookup, "one_user", lambda: table.assign(bits=4.0, engine="llama.cpp"))

    return put


def both(source, ratio, model="m"):
    return [(source, "A", model, 50.0), (source, "B", model, 50.0 * ratio)]


def test_two_sources_that_measured_one_each_are_not_compared(rows):
    rows(("one", "A", "m", 50.0), ("other", "B", "m", 100.0))
    assert comparisons.verdicts(CARDS) == [
        "**B against A: cannot be told.** Nobody here measured both in one setting."
    ]


def test_three_sources_that_agree_give_a_verdict_and_three_that_do_not_give_none(rows):
    rows(*both("a", 2.0), *both("b", 2.1), *both("c", 1.9))
    (said,) = comparisons.verdicts(CARDS)
    assert said.startswith("**B is faster than A:** 2 times (1.8 to 2.3; 3 settings of 3 sources)")
    rows(*both("a", 2.0), *both("b", 0.5), *both("c", 1.1))
    (said,) = comparisons.verdicts(CARDS)
    assert "cannot be told" in said


def test_fewer_sources_are_counted_and_not_generalised(rows):
    rows(*both("a", 2.0), *both("a", 1.5, "n"), *both("a", 3.0, "o"))
    (said,) = comparisons.verdicts(CARDS)
    assert said == (
        "**B was faster than A in all 3 settings of 1 source:** 1.5 to 3 times. More sources could differ."
    )
    rows(*both("a", 2.0), *both("a", 0.9, "n"))
    assert "cannot be told" in comparisons.verdicts(CARDS)[0]


def test_the_page_has_a_section_for_each():
    from bench.paths import ROOT

    page = (ROOT / "pages" / "comparisons.qmd").read_text()
    assert page.count("\n## ") == len(comparisons.COMPARISONS) == page.count("\nshow(")
