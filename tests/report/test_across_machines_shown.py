"""What holds on every machine, as it is shown: one figure of one height, tables that fit a page, a sentence."""

import pytest
from builders import write_repeats, write_run
from pictures import drawn, words

from bench.analysis import across_machines as across
from bench.observations import store
from bench.report import findings, hover, tables
from bench.report.findings import across_machines as across_findings
from bench.report.tables import across_machines as across_tables

RATES = {"int4": 100.0, "int8": 60.0, "float32": 25.0}
PAGE_PX, MOST_PX, NAME = 928, 1100, "across_machines"


def write_machines(folder, machines, rates=RATES, runs=3, first=1):
    """So many runs of every option of `rates` on so many machines, 1 % apart; the rates of each differ."""
    for k in range(first, first + machines):
        for option, rate in rates.items():
            each = [rate * (1 + k / 20) * (1 + n / 100) for n in range(runs)]
            write_repeats(folder, each, option=option, gpu=f"cpu{k}-2c", host=f"host{k}")
    return store.load(folder=folder)


def pixels(figure):
    width, height = figure.get_size_inches()
    return height * PAGE_PX / width


@pytest.mark.check
def test_its_height_is_that_of_its_rows_however_many_machines_there_are(tmp_path):
    heights = [pixels(drawn(NAME, write_machines(tmp_path / str(n), n))) for n in (2, 9)]
    assert len(set(heights)) == 1


@pytest.mark.check
def test_it_fits_a_screen_with_more_options_than_rows(tmp_path):
    rates = {f"o{n}": 20.0 + n for n in range(30)}
    requests = write_machines(tmp_path, 2, rates, runs=2)
    figure = drawn(NAME, requests)
    assert pixels(figure) <= MOST_PX
    assert "9 more in the table" in words(figure)
    assert len(tables.TABLES["across_machines"](requests)) == 29


def test_every_mark_says_its_row_and_machine_and_which_had_one_run(tmp_path):
    write_machines(tmp_path, 3)
    requests = write_machines(tmp_path, 1, runs=1, first=8)
    titles = hover.titles(drawn(NAME, requests))
    rows = {name: [t for t in titles if t.startswith(f"fake {name}")] for name in ("int8", "float32")}
    for each in rows.values():
        assert [sum(f"cpu{k}-2c" in t for t in each) for k in (1, 2, 3, 8)] == [1, 1, 1, 1]
        assert sum("cpu8-2c, one run" in t for t in each) == 1 and sum("pooled" in t for t in each) == 1
    assert not any(t.startswith("fake int4") for t in titles)  # the one that all are held against


def test_tables_have_the_verdict_first_and_fit_a_page(tmp_path, monkeypatch):
    assert across_tables.MOST_ROWS <= 40 and len(tables.TABLES["across_machines_coverage"]()) <= 40
    monkeypatch.setattr(across_tables, "MOST_ROWS", 2)
    # Four options in one order and in the other: of six pairs all depend on the machine.
    write_machines(tmp_path, 2, {f"o{n}": 20.0 + 5 * n for n in range(4)}, runs=2)
    requests = write_machines(tmp_path, 1, {f"o{n}": 35.0 - 5 * n for n in range(4)}, runs=2, first=3)
    for name in ("across_machines", "depends_on_machine"):
        table = tables.TABLES[name](requests)
        assert len(table.columns) <= 12 and table.columns[0] == "verdict" and len(table) == 2
    assert len(tables.TABLES["across_machines_coverage"]().columns) <= 12


def test_a_pair_whose_order_turns_depends_on_the_machine(tmp_path):
    write_machines(tmp_path, 2)
    requests = write_machines(tmp_path, 1, {"int4": 60.0, "int8": 100.0, "float32": 25.0}, first=3)
    table = tables.TABLES["depends_on_machine"](requests)
    assert list(table["option"] + " " + table["against"]) == ["int4 fake int8"]
    assert "**fake int8**" in across_findings.everywhere(requests)
    assert "depends on the machine in 1" in across_findings.pairs(requests)


@pytest.mark.check
def test_it_is_the_first_finding_where_three_machines_have_three_rounds(tmp_path):
    few = write_machines(tmp_path, 2)
    sentence = across_findings.everywhere(few)
    assert findings.headlines(few)[1] == sentence and "Over 2 machines, **fake int4** is fastest" in sentence
    assert sentence.endswith("2 of the 2 other options are slower on every machine that has both.")
    one_run = write_machines(tmp_path, 1, runs=1, first=7)
    assert findings.headlines(one_run)[1].startswith("Over 3 machines")
    three = write_machines(tmp_path, 1, first=3)
    first = findings.headlines(three)[0]
    assert first.startswith("Over 4 machines")
    assert first.endswith("both (2 of them in three runs on three machines or more).")
    assert across_findings.pairs(three).endswith("one is faster on every machine in 3.")


def test_no_superlative_where_another_option_cannot_be_distinguished(tmp_path):
    requests = write_machines(tmp_path, 3, {"int4": 100.0, "int8": 99.9, "float32": 25.0})
    sentence = across_findings.everywhere(requests)
    assert "**fake int4** has the highest mean" in sentence and "cannot be distinguished from it." in sentence


def test_one_machine_has_nothing_to_say(tmp_path):
    requests = write_machines(tmp_path, 1)
    assert across_findings.everywhere(requests) is None and across_findings.pairs(requests) is None
    assert tables.TABLES["across_machines"](requests).empty
    assert not drawn(NAME, requests).axes and not any("Over " in s for s in findings.headlines(requests))
    write_run(tmp_path, backend="other", option="int4", gpu="x-2c", host="xxx111")
    assert across.every_pair(store.load(folder=tmp_path)).empty
