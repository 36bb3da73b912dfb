"""Sentences of the page Plan about own servers: what missed its target, and what fell outside its interval."""

import numpy as np
import pandas as pd
import pytest

from bench.analysis import serving
from llm_planner import findings, own

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
    monkeypatch.setattr(own, "predictions", lambda requests: pd.DataFrame(rows))
    first, second = findings.predictions(pd.DataFrame())
    assert first.startswith("4 levels were predicted") and "; 3 of them have been measured" in first
    assert second.startswith("Outside its interval fell TPOT in 2 and TTFT in 1 of these 3")
    assert "TPOT 19 ms, predicted 20 to 30 ms" in second and "TTFT 500 ms, predicted 200 to 400 ms" in second


@pytest.mark.parametrize("times, word", [(1.26, "missed"), (1.04, "met")])
def test_own_servers_say_whether_the_target_was_met(monkeypatch, times, word):
    level = LEVEL | dict(run_id="a", host="h", concurrency=1.0, request_rate=None, held=True)
    level |= dict(predicted_held=True)
    level |= dict(tpot_s=1.0, predicted_tpot_s=times, ttft_s=1.0, predicted_ttft_s=times)
    monkeypatch.setattr(own, "levels", lambda requests: pd.DataFrame([level]))
    off, within, _ = findings.own_servers(pd.DataFrame(), pd.DataFrame())
    assert f"5 % were aimed at: {word}" in off and f"15 % were aimed at: {word}" in off
    assert within.endswith("90 % were aimed at: met.")


def test_a_step_of_more_requests_that_takes_less_time_is_named(monkeypatch):
    level = LEVEL | dict(run_id="a", host="h", concurrency=1.0, request_rate=None, held=True)
    level |= dict(predicted_held=True, tpot_s=1.0, predicted_tpot_s=1.0, ttft_s=1.0, predicted_ttft_s=1.0)
    for name in ("levels", "levels_from_steps"):
        monkeypatch.setattr(own, name, lambda *given: pd.DataFrame([level]))
    steps = {"batch_size": [1.0, 4, 7, 8], "step_s": [0.01, 0.03, 0.062, 0.053], "max_new_tokens": 96.0}
    steps |= {"prompt_tokens": 64.0, "ttft_s": 0.1, "last_ttft_s": None, "error": "", "ends_together": False}
    late = {"batch_size": [1.0] * 2, "prompt_tokens": [64.0, 512], "last_ttft_s": [0.2, 1.0], "error": ""}
    table = pd.concat([pd.DataFrame(steps), pd.DataFrame(late).assign(max_new_tokens=0.0)], ignore_index=True)
    place = dict(zip(own.CONFIGURATION, ("llamacpp", "F16", "m", "g", "h")))
    said = " ".join(findings.own_servers(pd.DataFrame(), table.assign(**place)))
    assert "a step takes 10 ms while one request decodes and 53 ms while 8 do" in said
    assert "and 7 at once take longer (62 ms) than 8 (53 ms)." in said
    rising = table.assign(step_s=table["step_s"].replace(0.062, 0.05), **place)
    assert "end together" not in said
    together = table.assign(ends_together=True, **place)
    said = " ".join(findings.own_servers(pd.DataFrame(), together))
    assert "all end together, TPOT is off by 0.0 %" in said and "a step takes" not in said
    assert "take longer" not in " ".join(findings.own_servers(pd.DataFrame(), rising))


def test_an_own_level_holds_as_on_the_page_serving_and_failed_requests_count(monkeypatch):
    place = dict(zip(own.CONFIGURATION, ("llamacpp", "F16", "m", "g", "h")))
    monkeypatch.setattr(own.derived, "batches", lambda rows: pd.DataFrame([place]))
    monkeypatch.setattr(own.derived, "medians", lambda batches: batches)
    monkeypatch.setattr(own, "fitted", lambda batches: np.full(10, 1e-9))
    level = place | dict(experiment="serving", run_id="r", concurrency=2.0, request_rate=np.nan)
    level |= dict(prompt_tokens=10, output_tokens=10, ttft_s=0.1, tpot_s=0.01)

    def held(failed):
        errors = ["gone"] * failed + [""] * (20 - failed)
        return own.levels(pd.DataFrame(level | {"request": range(20), "error": errors}))["held"].item()

    assert own.SLO_HELD == serving.HELD and [held(n) for n in (0, 2, 3)] == [True, True, False]
