"""The answers of the page Published: what they compute from made-up rows, and that what they show fits a page."""

import json
import math

import numpy as np
import pandas as pd
import pytest

from bench import registry
from bench.paths import ROOT
from bench.report.published import figures, findings, tables
from llm_measured.published import answers, checks, names, reports, sources
from llm_measured.published.sources import of_files


def test_a_mean_over_sources_weighs_sources_and_not_rows():
    draws = np.random.default_rng(1)
    logs = np.concatenate(
        [
            math.log(2) + draws.normal(0, 0.01, 300),
            *(math.log(4) + draws.normal(0, 0.01, 3) for _ in range(3)),
        ]
    )
    sources = pd.Series(["many"] * 300 + ["b"] * 3 + ["c"] * 3 + ["d"] * 3)
    found = answers.pooled(pd.Series(logs), sources)
    assert (found.rows, found.sources) == (309, 4) and 3.2 < found.factor < 3.6  # (2 · 4³)^¼ = 3.36, not 2.01
    assert found.low < 2.5 and found.high > 4 and 1.2 < found.between < 1.6


def test_sources_that_agree_have_a_narrow_interval_and_no_warning(recwarn):
    """Where sources differ no more than settings, a variance estimate would end at its boundary."""
    logs = pd.Series(np.log([1.9, 2.1, 2.1, 1.9, 2.0, 2.0]))
    found = answers.pooled(logs, pd.Series(list("aabbcc")))
    assert found.factor == pytest.approx(2, rel=0.01) and found.high < 2.02 and not recwarn.list


def _cells(*rows):
    columns = ["source", "accelerator", "accelerators", "model", "engine_family", "mbu"]
    return pd.DataFrame(rows, columns=columns)


def test_engines_are_compared_where_one_source_measured_both(monkeypatch):
    cells = _cells(
        ("a", "m5", 1, "x", "MLX", 0.6),
        ("a", "m5", 1, "x", "llama.cpp", 0.4),
        ("a", "m1", 1, "x", "MLX", 0.9),  # only the other source has llama.cpp there
        ("b", "m1", 1, "x", "llama.cpp", 0.3),
    )
    monkeypatch.setattr(answers, "decode_cells", lambda: cells)
    found = answers.engine_contrasts.__wrapped__()
    assert found[["source", "accelerator", "engine"]].to_numpy().tolist() == [["a", "m5", "MLX"]]
    assert found["ratio"].iloc[0] == pytest.approx(1.5)


def test_a_share_that_rests_on_few_sources_has_a_wide_interval():
    """Accelerators of one source are no independent witnesses of what that source does."""
    rows = [(f"s{n % 3}", f"card{n}", 1, "x", "e", (0.3, 0.5, 0.7)[n % 3] + n / 1e4) for n in range(90)]
    middle, low, high = answers.mbu_over_sources(_cells(*rows))
    over_cards = answers.resampled(np.array([row[-1] for row in rows]))
    assert middle == pytest.approx(0.5, abs=0.01) and low < 0.31 and high > 0.69
    assert high - low > 2 * (over_cards[1] - over_cards[0]) > 0


def test_what_checks_and_what_importers_say_is_counted_apart():
    every = answers.rows()
    stands, by_check, by_importer = findings.verdicts(every)
    assert stands + by_check + by_importer == len(every)
    heard = every.loc[every["audit"] != "ok"]
    alone = (
        heard["audit_notes"]
        .str.replace("stated_by_importer", "")
        .str.contains("|".join(f"{one.name}: " for one in checks.CHECKS))
    )
    # A row with the importer's word alone, or with that and a check's mere note.
    assert by_importer >= (~alone).sum() > 2000
    said = " ".join(findings.wrong())
    assert "stated by importer" not in said and "infpop (2,384)" in said


def test_reruns_are_stated_of_sources_that_have_some():
    every = answers.software()
    again = every[every["again"]]
    said = findings.reruns(again)
    apart = np.expm1(np.abs(np.log(again.loc[again["source"] == "aiconfigurator", "gain"])))
    assert any(f"{100 * apart.quantile(0.9):.0f} % or more (n = {len(apart)}" in s for s in said)
    assert "inferencex and tensorrt-llm there are no reruns" in said[-1]


def test_gain_and_promise_of_fewer_bits_are_pooled_alike():
    every = answers.quantization()
    by = np.log(every["promised"]).groupby(every["source"]).mean()
    assert f"promise {float(f'{math.exp(by.mean()):.3g}'):g} times" in findings.quantization()[0]


def test_one_source_has_no_interval_over_sources():
    found = answers.pooled(pd.Series(np.log([2.0, 8.0])), pd.Series(["a", "a"]))
    assert found.factor == pytest.approx(4) and math.isnan(found.low) and math.isnan(found.high)


def test_an_interval_is_the_same_each_time_and_fewer_than_three_have_none():
    values = np.arange(30.0)
    assert answers.resampled(values) == answers.resampled(values)
    low, high = answers.resampled(values)
    assert 6 < low < 14.5 < high < 23 and all(map(math.isnan, answers.resampled(values[:2])))


def test_a_front_has_only_what_no_other_exceeds_in_both():
    points = pd.DataFrame({"speed": [10, 20, 30, 25, 20], "throughput": [100, 80, 10, 5, 70]})
    edge = answers.front(points)
    assert list(zip(edge["speed"], edge["throughput"])) == [(10, 100), (20, 80), (30, 10)]
    along = answers._along(np.array([10.0, math.sqrt(200), 31.0]), points.to_numpy())
    assert along[:2] == pytest.approx([100, math.sqrt(8000)]) and math.isnan(along[2])


def test_two_sources_of_one_origin_are_set_apart():
    rows = pd.DataFrame(
        [
            ("x", "a", "one", "community", 10.0),
            ("x", "b", "one", "vendor", 20.0),
            ("x", "c", "two", "community", 10.0),
        ],
        columns=["accelerator", "source", "origin", "kind", "mbu"],
    )
    pairs = answers._pairs(rows, "same accelerator", ["accelerator"], "mbu")
    assert pairs[["first", "second", "one_origin", "ratio"]].to_numpy().tolist() == [
        ["a", "b", True, 2.0],
        ["a", "c", False, 1.0],
        ["b", "c", False, 2.0],
    ]


@pytest.mark.parametrize(
    "name, engine",
    [
        ("llama-server", "llama.cpp"),
        ("dynamo-trt", "TensorRT-LLM"),
        ("mori-sglang", "SGLang"),
        ("vllm-mlx", "MLX"),
        ("LM Studio", "LM Studio"),
        ("Transformers NeuronX", "Transformers NeuronX"),
        ("a new one", "a new one"),
        (None, None),
    ],
)
def test_a_front_end_counts_as_the_engine_below_it(name, engine):
    assert names.engine(name) == engine


def test_a_changed_file_leads_to_its_source():
    files = [
        "llm_measured/published/sources/rtx3090x4.py",
        "data/observatory/raw/mlx-lm/a.md",
        "README.md",
        "data/observatory/SOURCES.md",
    ]
    assert of_files(files) == ["4x3090", "mlx-lm"]


@pytest.fixture
def chosen():
    yield answers.choose
    answers.choose()


def test_a_source_can_be_looked_at_alone(chosen):
    chosen(source="gpt-fast")
    assert set(answers.rows()["source"]) == {"gpt-fast"} and answers.quantization()[
        "engine_family"
    ].unique() == ["gpt-fast"]
    with pytest.raises(answers.NoRows):
        answers.disagreement()
    assert figures.published_disagreement().texts  # says that there is nothing
    with pytest.raises(ValueError, match="gpt-fast"):
        chosen(source="gptfast")


def test_mlperf_enters_no_answer_but_its_own():
    assert answers.usable()["comparable_within"].isna().all() and "mlperf" not in set(
        answers.usable()["source"]
    )
    assert not {"mlperf"} & set(answers.disagreement()[["first", "second"]].to_numpy().ravel())
    table = answers.mlperf()
    assert table[["submitter", "result", "round", "scenario"]].notna().all().all() and len(table)
    # Results are compared only inside one round, benchmark, scenario, division and suite.
    assert (
        answers.mlperf_groups()
        .groupby("comparable_within")[["round", "benchmark", "scenario"]]
        .nunique()
        .max()
        .max()
        == 1
    )
    assert "trademark" in findings.trademark()


@pytest.mark.parametrize("name", [n for n in registry.TABLES if n.startswith("published-")])
def test_a_table_fits_its_page(name):
    table = registry.TABLES[name]()
    assert len(table) and len(table.columns) <= 12 and table.columns.is_unique
    assert len(table) <= tables.MOST_ROWS or "whole" in table.attrs


@pytest.mark.parametrize("name", [n for n in registry.FIGURES if n.startswith("published-")])
def test_a_figure_fits_a_screen(name):
    width, height = registry.FIGURES[name](None).get_size_inches()
    assert 928 / width * height <= 1100


def test_every_sentence_has_its_number_of_rows():
    for part in (findings.mbu, findings.disagreement, findings.software, findings.exchange, findings.energy):
        said = part()
        assert said and "nan" not in " ".join(said)
        assert any("n = " in sentence or "medians of" in sentence for sentence in said)


def test_what_was_read_by_hand_is_what_the_seed_draws():
    read = pd.read_csv(reports.build.DATA / "reviewed_rows.csv")
    assert read["row_id"].isin(answers.rows()["row_id"]).all() and set(read["right"]) == {
        "yes",
        "no",
        "undecidable",
    }
    summary = pd.read_csv(reports.build.DATA / "reviewed.csv").set_index("check")
    counted = read.groupby("check")["right"].agg(["size", lambda v: (v == "yes").sum()])
    for check, (drawn, right) in zip(counted.index, counted.to_numpy()):
        assert (summary.at[check, "drawn"], summary.at[check, "right"]) == (drawn, right)


def test_every_pitfall_has_rows_and_a_value_is_counted_where_no_label_contradicts_it():
    every = reports.pitfalls(answers.rows())
    pd.testing.assert_frame_equal(every, answers.pitfalls())
    table = every.set_index(["source", "check"])["as_printed"]
    assert (table[[source in sources_of_owners() for source, _ in table.index]] > 0).all()
    rows = answers.rows()
    cards = rows[rows["source"] == "vllm-cards-kyuz0"]
    both = (cards["throughput_counts"] == "input+output").sum()
    assert table["vllm-cards-kyuz0", "importer: throughput_counts = input+output"] == both == 72
    two = (rows["source"] == "r9700-kyuz0") & (rows["accelerators"] == 2)
    assert table["r9700-kyuz0", "importer: accelerators = 2"] == two.sum() > 0


def sources_of_owners():
    """Sources that were read on the day on which the cards that people own came in."""
    return {name for name, about in sources.listed().items() if about.retrieved == "2026-11-26"}


def test_the_notebook_names_its_parameters():
    notebook = json.loads((ROOT / "notebooks" / "published.ipynb").read_text())
    cell = next(c for c in notebook["cells"] if "parameters" in c["metadata"].get("tags", []))
    assert [line.split(" = ")[0] for line in cell["source"]] == ["source", "model", "accelerator", "out"]
