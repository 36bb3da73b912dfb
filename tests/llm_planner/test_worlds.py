"""The planner's answer in drawn worlds: what is drawn, what is counted, and what is committed."""

import numpy as np
import pytest

from bench import inputs
from llm_planner import candidates, check, findings, fit, page, worlds

SMALL = page.QUESTION | {"gpus": "h100_sxm", "weights": "fp8", "rate": 8.0, "most_gpus": 8}


def test_worlds_scatter_as_the_fit_does():
    fits = check.Fits()
    drawn = np.log(worlds.coefficients(fits, "vllm", "h100_sxm", 4000))
    table = inputs.table(check.COVARIANCE)
    same = table[(table["engine"] == "vllm") & (table["gpu"] == "h100_sxm")].set_index("coefficient")
    free = ~np.isfinite(fit.HIGHEST)
    variances = np.diag(same.to_numpy()[:, 2:].astype(float))[~np.isfinite(fit.HIGHEST)]
    assert drawn.var(axis=0)[free] == pytest.approx(variances, rel=0.1)
    assert np.median(drawn, axis=0)[free] == pytest.approx(
        np.log(fits.coefficients["vllm", "h100_sxm"][0])[free], abs=0.1
    )
    assert (np.exp(drawn)[:, ~free] <= 1).all()


def test_the_least_number_is_found_from_both_sides():
    assert [worlds.least(lambda n: n >= 3, start, 10) for start in (1, 3, 9)] == [3, 3, 3]
    assert worlds.least(lambda n: False, 2, 4) == 5


def test_a_world_of_slower_steps_needs_more():
    question = candidates.Question(
        "llama-3.1-8b", "fp8", "vllm", "h100_sxm", 1000, 1000, 20, 1.0, 0.03, usd_per_gpu_hour=1.0
    )
    best = check.Fits().coefficients["vllm", "h100_sxm"][0]
    slow = best * np.where(np.isfinite(fit.HIGHEST), 0.7, 1.4)
    fast, slow = (candidates.Candidate(question, 1, worlds.Drawn(c)) for c in (best, slow))
    assert slow.capacity < 0.8 * fast.capacity and (fast.widths == 0).all()


def test_tried_worlds_are_counted():
    table = worlds.tried(SMALL, number=4)
    assert set(table["drawn"]) == {worlds.COEFFICIENTS, worlds.ERRORS} and (table["worlds"] == 4).all()
    assert ((table["least"] <= table["most"]) & (table["met"] <= 4)).all()
    assert (table["more"] == table["replicas"] - table["least"]).all()


@pytest.mark.check
def test_the_recommended_rows_of_the_page_hold_in_drawn_worlds():
    table = inputs.table(worlds.TABLE)
    assert (table["worlds"] == 100).all() and (table["met"] >= 90).all()
    for sentence, (_, part) in zip(findings.tried_worlds(), table.groupby("drawn", sort=False)):
        assert ("missed" in sentence) == (part["more"] > 1).any()
    answers = page.answers()[0].groupby(["gpu", "weights"], sort=False).first()
    for row in table.to_dict("records"):
        answer = answers.loc[(row["gpu"], row["weights"])]
        assert (answer["replicas"], answer["tensor_parallel"]) == (row["replicas"], row["tensor_parallel"])
