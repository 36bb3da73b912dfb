"""Folds, scores and fits: what is left out stays out, and coefficients that made a table are found again."""

import numpy as np
import pandas as pd
import pytest

from llm_planner import check, engines, fit, published, step_time, validation, widths


@pytest.fixture(scope="module")
def table():
    return published.table()


def test_a_curve_is_in_one_fold(table):
    parts = validation.folds(table)
    assert len(np.unique(parts)) == 10 and len(np.unique(published.curves(table))) == 147
    assert pd.Series(parts).groupby(published.curves(table)).nunique().max() == 1


def test_coefficients_that_made_a_table_are_found_again(table):
    rows = table[(table["engine"] == "vllm") & (table["gpu"] == "b200_sxm")].iloc[::4]
    loads = [published.Load(case) for case in published.cases(rows)]
    truth = np.exp(fit.PRIOR) * np.array([1.3, 1.0, 1.0, 0.9, 1.1, 0.8, 1.3, 1.0, 1.3])
    made = published.predict(loads, truth)
    best, _ = fit.fit(loads, made)
    assert np.median(np.abs(fit.errors(loads, made, best)), axis=0).max() < 0.03
    assert best[step_time.NAMES.index("request_s")] == pytest.approx(truth[-1], rel=0.2)


def test_at_most_nine_coefficients_per_engine_and_gpu():
    committed = check.inputs.table(check.COMMITTED)
    real = committed[~committed["coefficient"].isin(widths.NAMES)]
    assert real.groupby(published.GROUP).size().max() <= 9
    shares = real[real["unit"] == "1"]
    assert shares["value"].between(0, 1).all()


def test_every_published_row_is_predicted_from_the_committed_file(table):
    found = check.predictions(table.drop(columns=published.MEASURED))
    values = found[[c for c in found if c.startswith("predicted_")]]
    assert np.isfinite(values).all(axis=None) and (values > 0).all(axis=None)
    assert (found["predicted_tpot_ms_low"] < found["predicted_tpot_ms_high"]).all()
    assert not found["estimated"].any()


def test_the_committed_fit_is_as_good_as_its_page_says(table):
    row = validation.scores(check.predictions(table))
    assert row["tpot_ms_median"] < 0.06 and row["tpot_ms_p90"] < 0.15
    assert row["ttft_ms_median"] < 0.16


def test_an_engine_or_gpu_nobody_measured_is_estimated(table):
    rows = table.head(3).assign(gpu="h100_sxm", weights="fp8", tensor_parallel=4)
    estimated = check.predictions(rows.assign(engine="sglang", gpu="b200_sxm"))
    assert estimated["estimated"].all()
    measured = check.predictions(rows.assign(engine="vllm"))
    for name in published.MEASURED:
        ratio = [t[f"predicted_{name}_high"] / t[f"predicted_{name}_low"] for t in (estimated, measured)]
        assert (ratio[0] > ratio[1]).all()


def test_names_are_read_as_people_write_them(table):
    rows = table[(table["engine"] == "vllm") & (table["gpu"] == "h200_sxm") & (table["weights"] == "fp8")]
    rows = rows[rows["model"] == "llama-3.1-70b"].head(2)
    written = rows.assign(
        model="meta-llama/Llama-3.1-70B-Instruct", gpu="NVIDIA H200", engine="vLLM 0.10", weights="FP8"
    )
    plain, found = (check.predictions(r)[validation.PREDICTED].to_numpy() for r in (rows, written))
    assert found == pytest.approx(plain)
    note = check.predictions(written)["note"].iloc[0]
    assert "vLLM 0.10 was read as vllm" in note and "NVIDIA H200 was read as h200_sxm" in note


def test_an_engine_that_nobody_described_is_predicted_with_the_widest_interval(table):
    rows = table[(table["engine"] == "vllm") & (table["gpu"] == "h200_sxm")].head(1)
    other, nowhere = (
        check.predictions(rows.assign(engine="lmdeploy", gpu=gpu)).iloc[0]
        for gpu in ("h200_sxm", "a100_80gb")
    )
    assert other["unknown"] == "engine" and nowhere["unknown"] == "gpu and engine"
    assert "vllm's scheduler" in other["note"]
    ratios = [row["predicted_tpot_ms_high"] / row["predicted_tpot_ms"] for row in (other, nowhere)]
    known = check.predictions(rows).iloc[0]
    assert known["predicted_tpot_ms_high"] / known["predicted_tpot_ms"] < ratios[0] < ratios[1]


def test_what_cannot_be_predicted_is_refused_in_a_sentence(table):
    rows = table[table["engine"] == "vllm"].head(2).reset_index(drop=True)
    rows.loc[0, "model"], rows.loc[1, "gpu"] = "gpt-oss-120b", "mi300x"
    shown = check.report(check.predictions(rows))
    assert "(1 of 2 rows): gpt-oss-120b is a mixture of experts" in shown and "a device of AMD" in shown
    assert "nan" not in shown


def test_a_client_that_nobody_described_may_draw_its_lengths_or_not(table):
    rows = table[(table["collection"] == "inferencemax") & (table["engine"] == "vllm")].head(1)
    ends = [
        check.predictions(rows.assign(collection=name)).iloc[0] for name in ("aic", engines.DRAWN, "mine")
    ]
    low, high = ends[2]["predicted_ttft_ms_low"], ends[2]["predicted_ttft_ms_high"]
    known = check.predictions(rows).iloc[0]
    assert all(low < end["predicted_ttft_ms"] < high for end in ends[1:])
    assert high / low > known["predicted_ttft_ms_high"] / known["predicted_ttft_ms_low"]


def test_a_row_that_does_not_fit_says_so(table):
    rows = table.head(1).assign(weights="bf16", gpu="h100_sxm", tensor_parallel=1, engine="vllm")
    found = check.predictions(rows)
    assert found["predicted_tpot_ms"].isna().all() and "does not fit" in found["note"].iloc[0]


def test_scores_of_a_table_worked_out_by_hand():
    rows = pd.DataFrame({"ttft_ms": [100.0, 100, 100], "tpot_ms": [10.0, 10, 10]})
    for name, values in (("ttft_ms", [100, 150, 80]), ("tpot_ms", [11, 10, 9])):
        rows = rows.assign(
            **{f"predicted_{name}": values, f"predicted_{name}_low": 85, f"predicted_{name}_high": 120}
        )
    row = validation.scores(rows)
    assert row["ttft_ms_median"] == pytest.approx(0.2) and row["tpot_ms_median"] == pytest.approx(0.1)
    assert row["ttft_ms_coverage"] == 1 and row["tpot_ms_coverage"] == 0


def test_inferencemax_draws_lengths_and_others_do_not():
    case = engines.Case("llama-3.1-70b", "h100_sxm", "vllm", "fp8", 4, 8, 1024, 1024, "inferencemax")
    prompt, output = engines.lengths(case, 500)
    assert prompt.min() >= 819 and prompt.max() <= 1024 and output.mean() == pytest.approx(921, rel=0.02)
    assert set(engines.lengths(case._replace(collection="aic"), 5)[0]) == {1024}


def errors(**columns):
    table = pd.DataFrame({"engine": "e", "gpu": "g", "error_group": "s", "unit": "u"} | columns)
    return table.assign(tpot=table["ttft"])


def test_an_unknown_has_the_normal_interval_of_so_many_units():
    found = widths.unknown(errors(ttft=[0.1, -0.1, 0.1, -0.1], unit=["a", "a", "b", "b"]))
    assert found == pytest.approx([1.96 * 0.1 * np.sqrt(1.5)] * 2)
    assert widths.together([np.array([3.0, 3.0]), np.array([4.0, 4.0])]) == pytest.approx([5, 5])


def test_a_known_width_is_a_quantile_of_the_own_errors_first():
    own_errors, others = np.linspace(0.01, 1.0, 100), np.full(100, 5.0)
    table = errors(
        ttft=[*own_errors, *others], engine=["e"] * 100 + ["f"] * 100, error_group=["s"] * 100 + ["t"] * 100
    )
    assert 0.93 <= widths.known(table, "e", "g", "s")[0] <= 0.99
    assert widths.known(table, "f", "g", "t")[0] == 5.0


@pytest.mark.check
def test_an_interval_never_sees_its_own_row(table):
    """One row's measured value is changed a thousandfold: no interval of its own fold, GPU or model moves."""
    made = check.inputs.table("planner_validation")[
        ["left_out", "row", "predicted_ttft_ms", "predicted_tpot_ms"]
    ]
    changed = table.assign(tpot_ms=table["tpot_ms"].where(table.index != 300, 1e3 * table["tpot_ms"]))
    before, after = (validation.with_intervals(rows, made) for rows in (table, changed))
    for left_out, same in (
        ("folds", validation.folds(table) == validation.folds(table)[300]),
        ("gpu", table["gpu"] == table.loc[300, "gpu"]),
        ("engine", table["engine"] == table.loc[300, "engine"]),
    ):
        rows = table.index[same]
        ends = [
            t[(t["left_out"] == left_out) & t["row"].isin(rows)]["predicted_tpot_ms_high"]
            for t in (before, after)
        ]
        assert ends[0].to_numpy() == pytest.approx(ends[1].to_numpy())
    others = [
        t[(t["left_out"] == "gpu") & ~t["row"].isin(table.index[table["gpu"] == table.loc[300, "gpu"]])]
        for t in (before, after)
    ]
    assert (others[1]["predicted_tpot_ms_high"] > others[0]["predicted_tpot_ms_high"]).all()


def test_rules_are_chosen_by_rows_that_were_fitted(table):
    made = pd.DataFrame({"row": [0, 0, 1, 1], "rules": list("abab"), "loss": [2.0, 1.0, 5.0, 4.0]})
    assert set(validation.chosen(made, table)["rules"]) == {"b"}
