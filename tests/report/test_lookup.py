"""The look-up of published speeds: which rows count, how devices and classes are named, what does not fit."""

import pandas as pd
import pytest

from bench.report.published import expect_explorer, lookup
from llm_measured.published import build, comparable


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Intel Core i7-8550U CPU @ 1.80GHz (skylake)", comparable.LAPTOP),
        ("11th Gen Intel Core i5-1135G7 @ 2.40GHz", comparable.LAPTOP),
        ("AMD Ryzen 9 7940HS w/ Radeon 780M Graphics (znver4)", comparable.LAPTOP),
        ("AMD Ryzen AI 9 HX 370 w/ Radeon 890M", comparable.LAPTOP),
        ("AMD Ryzen 9 5950X 16-Core Processor (znver3)", comparable.DESKTOP),
        ("Intel Core i9-14900K (alderlake)", comparable.DESKTOP),
        ("Intel Xeon CPU E5-2697 v2 @ 2.70GHz", comparable.SERVER),
        ("AMD EPYC 9454P 48-Core Processor (znver4)", comparable.SERVER),
        ("Raspberry Pi 5 Model B Rev 1.0", comparable.BOARD),
    ],
)
def test_a_processor_is_looked_up_by_its_class(text, name):
    rows = pd.DataFrame({"accelerator_family": ["CPU"], "host_cpu": [text], "accelerator_raw": [text]})
    rows = rows.assign(backend_name=None)
    assert lookup.device(rows).tolist() == [name]


def test_rows_of_many_users_speculation_or_an_objection_do_not_count():
    rows = build.table().loc[lookup.qualifies(build.table())].head(1)
    assert lookup.qualifies(rows).all()
    changes = {
        "accelerators": 2.0, "speculative": "eagle", "context_depth": 32768.0, "comparable_within": "mlperf",
        "audit": "flagged", "duplicate_of": "other",
    }  # fmt: skip
    for column, value in changes.items():
        assert not lookup.qualifies(rows.assign(**{column: value})).any(), column
    many = rows.assign(in_flight_mean=8.0)
    assert not lookup.qualifies(many).any()


def test_a_cell_is_the_median_of_its_sources_medians_and_leads_to_its_rows():
    cell = lookup.cells()["RTX 4090", "7–8B, 4 bits"]
    rows = lookup.one_user()
    own = rows[(rows["device"] == "RTX 4090") & (rows["bits"] == 4) & rows["parameters_b"].between(6.5, 9.3)]
    assert (cell.n, cell.median, cell.low, cell.high) == (
        len(own), own.groupby("source")["rate"].median().median(), own["rate"].min(), own["rate"].max()
    )  # fmt: skip
    shown = expect_explorer.table(build.table())
    kept = shown[(shown["accelerator_family"] == "RTX 4090") & (shown["model_class"] == "7–8B, 4 bits")]
    assert set(kept["row_id"]) == set(own["row_id"])
    assert (
        "o-accelerator_family=RTX+4090" in cell.link and "o-model_class=7%E2%80%938B%2C+4+bits" in cell.link
    )


def test_a_card_that_waits_for_its_host_is_not_looked_up():
    rows = lookup.one_user()
    cards = rows[rows["device"].map(lookup.families()["kind"]) == "GPU"]
    assert cards["mbu"].min() >= lookup.LEAST_MBU and (rows["mbu"] < lookup.LEAST_MBU).any(), (
        "a chip whose memory is the machine's may"
    )


def test_a_class_that_is_slower_than_a_larger_one_is_marked():
    def cell(rate):
        return lookup.Cell(rate, rate, rate, 1, "")

    small, large = (
        next(each for each in lookup.CLASSES if each.title == f"{size}, 4 bits") for size in ("1B", "7–8B")
    )
    found = {("A", small.title): cell(96.0), ("A", large.title): cell(136.0), ("B", small.title): cell(300.0)}
    assert lookup.slow(found, "A", small) and not lookup.slow(found, "A", large)
    assert not lookup.slow(found, "B", small) and not lookup.slow(found, "B", large)


def test_what_does_not_fit_is_arithmetic():
    big, small = lookup.CLASSES[-1], lookup.CLASSES[0]
    assert big.title == "gpt-oss-120b" and 60e9 < big.least_bytes < 64e9
    assert not lookup.fits("RTX 4090", big) and lookup.fits("RTX 4090", small)
    assert lookup.fits("laptop CPUs", big), "the memory of a machine is not known"


def test_models_of_one_shape_are_looked_up_together():
    shapes = lookup.shapes()
    assert shapes["llama-3-8b"] == shapes["llama-3.1-8b"] == "llama-3.1-8b"
    assert shapes.get("qwen3-8b", "qwen3-8b") != shapes["llama-3-8b"]


def test_the_table_has_groups_for_phones_and_laptops_and_says_what_does_not_fit():
    text = lookup.table()
    assert ">laptop CPUs</th>" in text and ">phones</h3>" in text and "does not fit" in text
