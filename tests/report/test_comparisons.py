"""A against B in published rows: only inside one source, and "cannot be told" where that is so."""

import pandas as pd
import pytest

from bench.report.published import comparisons, lookup
from llm_measured.published import names as published_names

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
    assert said == "**B is faster than A:** 2 times (1.8 to 2.3, 3 sources), faster in all of 3 settings."
    rows(*both("a", 2.0), *both("b", 0.5), *both("c", 1.1))
    (said,) = comparisons.verdicts(CARDS)
    assert "cannot be told" in said and said.endswith(
        "1.1 times in the median of 3 settings of 3 sources, from 0.5 (m, b) to 2 (m, a)."
    )


def test_where_two_cards_cannot_be_told_their_bandwidths_stand_beside(monkeypatch):
    pairs = [("a", 2.0), ("b", 0.5), ("c", 1.1)]
    cards = [
        (source, f"RTX {n}", "m", 50.0 * r) for source, ratio in pairs for n, r in ((4090, 1), (3090, ratio))
    ]
    table = pd.DataFrame(cards, columns=["source", "device", "model", "rate"])
    monkeypatch.setattr(lookup, "one_user", lambda: table.assign(bits=4.0, engine="llama.cpp"))
    names = ("RTX 4090", "RTX 3090")
    (said,) = comparisons.verdicts(comparisons.Comparison("device", names, names))
    assert said.endswith(
        "By bandwidth alone, of the fastest card of each name, it would be 0.93 times."
    )  # 936 GB/s to 1,008


def test_sources_that_mostly_agree_are_counted(rows):
    rows(*both("a", 2.0), *both("b", 0.4), *both("c", 1.9), *both("a", 1.8, "n"), *both("a", 1.7, "o"))
    (said,) = comparisons.verdicts(CARDS)
    assert said == (
        "**B was faster than A in 4 of 5 settings of 3 sources:** medians of the sources 0.4 to 1.9 times; "
        "1 of 3 says otherwise."
    )


def test_one_setting_is_named_as_one(rows):
    rows(*both("a", 1.2))
    (said,) = comparisons.verdicts(CARDS)
    assert said.endswith("cannot be told.** 1.2 times in the one setting that somebody measured.")


def test_many_users_are_compared_at_the_same_number_and_lengths(monkeypatch):
    served = pd.DataFrame(
        {
            "source": "a",
            "device": ["A", "B", "A", "B"],
            "model": "m",
            "bits": 8.0,
            "engine": "vllm",
            "accelerators": 1.0,
            "format": "fp8",
            "users": [8.0, 8.0, 16.0, 32.0],
            "input_tokens": 100.0,
            "output_tokens": 100.0,
            "rate": [100.0, 150.0, 180.0, 400.0],
        }
    )
    monkeypatch.setattr(lookup, "many_users", lambda: served)
    (pair,) = comparisons.pairs(
        comparisons.Comparison("device", ("A", "B"), ("A", "B"), many=True)
    ).itertuples()
    assert (pair.users, pair.first, pair.other, pair.engine) == (8.0, 100.0, 150.0, "vLLM")


def test_versions_are_the_oldest_and_the_newest_build_of_a_setting(monkeypatch):
    one = pd.DataFrame({"source": "a", "device": "A", "model": ["m"] * 3 + ["n"] * 2, "bits": 4.0})
    one = one.assign(
        engine="llama-server", backend=None, build=[5000, 5050, 6000, 7000, 7050], rate=[10, 11, 15, 20, 30]
    )
    monkeypatch.setattr(lookup, "one_user", lambda: one)
    (pair,) = comparisons.pairs(
        comparisons.Comparison("version", (comparisons.OLDER, comparisons.NEWER), ("old", "new"))
    ).itertuples()
    assert (pair.model, pair.first, pair.other) == ("m", 10, 15), "fifty builds are no two versions"


def test_a_build_is_read_as_versions_are_written():
    versions = [
        "b8639",
        "build=5921; commit=086cf81e",
        "build_info: b8925-0adede866",
        "9db451ee1",
        None,
        "b8460 2496f9c14",
    ]
    spelled = [version and published_names.spelled("engine_version", version) for version in versions]
    rows = pd.DataFrame({"version_name": spelled, "engine": "llama.cpp"})
    assert lookup.builds(rows).fillna(0).tolist() == [8639, 5921, 8925, 0, 0, 8460]
    assert lookup.builds(rows.assign(engine="vllm")).isna().all()


def test_fewer_sources_are_counted_and_not_generalised(rows):
    rows(*both("a", 2.0), *both("a", 1.5, "n"), *both("a", 3.0, "o"))
    (said,) = comparisons.verdicts(CARDS)
    assert said == (
        "**B was faster than A in all of 3 settings of 1 source:** 2 times in the median, 1.5 to 3 times."
    )
    rows(*both("a", 2.0), *both("a", 0.9, "n"))
    assert "cannot be told" in comparisons.verdicts(CARDS)[0]


def test_the_page_has_a_section_for_each():
    from bench.paths import ROOT

    page = (ROOT / "pages" / "comparisons.qmd").read_text()
    assert page.count("\n## ") == len(comparisons.COMPARISONS) == page.count("\nshow(")


def test_the_page_begins_with_what_can_be_told():
    said = comparisons.told()
    every = [verdict for each in comparisons.COMPARISONS for verdict in comparisons.verdicts(each)]
    assert 0 < len(said) < len(every) and set(said) < set(every)
    assert all("cannot be told" not in verdict for verdict in said)
