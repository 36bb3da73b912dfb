"""The committed errors: every row predicted once per way of leaving out, from the code that is there."""

import numpy as np
import pandas as pd
import pytest

from bench.analysis.planning import accuracy, fit, own, published, studies, validation


@pytest.mark.parametrize("left_out", accuracy.LEFT_OUT)
def test_every_row_is_predicted_once(left_out):
    table = accuracy.predicted(left_out)
    assert len(table) == len(published.table()) and table.index.is_unique
    assert (table.filter(like="predicted_") > 0).all(axis=None)
    assert table["estimated"].all() == (left_out in ("gpu", "engine"))


def test_tpot_is_as_near_as_the_issue_asks():
    row = validation.scores(accuracy.predicted())
    assert row["tpot_ms_median"] <= 0.05 and row["tpot_ms_p90"] <= 0.15
    assert 0.9 <= row["tpot_ms_coverage"] <= 0.99 and row["tpot_ms_half_width"] <= 0.15
    assert 0.9 <= row["ttft_ms_coverage"] <= 0.99 and row["ttft_ms_half_width"] <= 0.5


def test_the_planner_beats_regressions_with_the_same_folds():
    ours, plain = accuracy.errors(accuracy.predicted()), accuracy.errors(accuracy.regressions())
    for name in ("tpot_ms_median", "tpot_ms_p90", "ttft_ms_median", "ttft_ms_p90"):
        assert ours[name] < plain[name]


def test_aiconfigurator_has_an_estimate_or_a_reason_for_every_row():
    table = accuracy.aiconfigurator()
    known = table["predicted_tpot_ms"].notna()
    assert len(table) == len(published.table()) and known.sum() > 500
    assert table.loc[~known, "refusal"].str.len().min() > 5 and table.loc[known, "refusal"].isna().all()


def test_errors_worked_out_by_hand():
    rows = {"ttft_ms": [100.0, 100, 100], "tpot_ms": [10.0, 10, 10]}
    made = {"predicted_ttft_ms": [110, 120, np.nan], "predicted_tpot_ms": [10, 15, 99]}
    found = accuracy.errors(pd.DataFrame(rows | made))
    assert found["rows"] == 2 and found["ttft_ms_median"] == pytest.approx(0.15)
    assert found["tpot_ms_median"] == pytest.approx(0.25)


def test_the_worst_rows_are_the_worst_and_have_reasons():
    table = accuracy.worst(5)
    assert table.groupby("quantity").size().to_dict() == {"TPOT": 5, "TTFT": 5}
    every = accuracy.predicted()
    times = np.exp(np.abs(np.log(every["predicted_ttft_ms"] / every["ttft_ms"])))
    assert table.loc[table["quantity"] == "TTFT", "times"].tolist() == times.nlargest(5).tolist()
    assert (table.loc[table["quantity"] == "TTFT", "why"] != "").all()


@pytest.mark.check
def test_the_committed_predictions_are_those_of_the_code():
    rows = published.table()
    group = (rows["engine"] == "sglang") & (rows["gpu"] == "h100_sxm")
    out = group & (validation.folds(rows) == 3)
    loads = np.array([published.Load(c) for c in published.cases(rows)], dtype=object)
    kept = group & ~out
    fits = fit.groups(rows[kept], loads[kept.to_numpy()])
    found = validation.predicted(rows[out], loads[out.to_numpy()], fits)
    committed = accuracy.predicted().loc[found.index]
    for name in published.MEASURED:
        again = found[f"predicted_{name}"].to_numpy()
        assert committed[f"predicted_{name}"].to_numpy() == pytest.approx(again, rel=1e-3)


def test_errors_of_curves_by_hand():
    table = pd.DataFrame({"model": "m", "tpot_ms": [10.0, 10], "ttft_ms": [5.0, np.nan]})
    table = table.assign(predicted_tpot_ms=[12.0, 9], predicted_ttft_ms=[6.0, 1])
    row = studies.errors(table, ["model"]).iloc[0]
    assert row["tpot"] == pytest.approx(0.15) and row["tpot_bias"] == pytest.approx(0.05)
    assert row["ttft"] == pytest.approx(0.2) and row["levels"] == 2


def test_a_prediction_is_empty_until_its_level_is_measured():
    predicted = own.inputs.table("predictions").iloc[0]
    keys = ["backend", "option", "model", "gpu", "concurrency"]
    nothing = pd.DataFrame(columns=[*keys, "experiment", "error", "tpot_s", "ttft_s"])
    assert own.predictions(nothing)["measured_tpot_s"].isna().all()
    served = pd.DataFrame(
        [
            predicted[keys].to_dict() | {"experiment": "serving", "error": "", "tpot_s": t, "ttft_s": 1.0}
            for t in (0.02, 0.04, 0.05)
        ]
    )
    found = own.predictions(served)
    assert found.loc[0, "measured_tpot_s"] == 0.04 and found.loc[1:, "measured_tpot_s"].isna().all()
