"""Sentences of the planner: what fell outside its interval."""

import pandas as pd

from llm_planner import accuracy, findings

LEVEL = dict(backend="llamacpp", option="F16", model="smollm2-135m", gpu="zen", concurrency=12)
TIMES = dict(
    predicted_tpot_s=0.02,
    predicted_tpot_s_low=0.02,
    predicted_tpot_s_high=0.03,
    predicted_ttft_s=0.3,
    predicted_ttft_s_low=0.2,
    predicted_ttft_s_high=0.4,
)


def test_predictions_outside_their_interval_are_counted(monkeypatch):
    rows = [
        LEVEL | TIMES | {"measured_tpot_s": tpot, "measured_ttft_s": ttft}
        for tpot, ttft in ((0.025, 0.3), (0.019, 0.5), (0.031, 0.3), (None, None))
    ]
    monkeypatch.setattr(accuracy, "predictions", lambda requests: pd.DataFrame(rows))
    first, second = findings.predictions(pd.DataFrame())
    assert first.startswith("4 levels were predicted") and "; 3 of them have been measured" in first
    assert second.startswith("Outside its interval fell TPOT in 2 and TTFT in 1 of these 3")
    assert "TPOT 19 ms, predicted 20 to 30 ms" in second and "TTFT 500 ms, predicted 200 to 400 ms" in second
