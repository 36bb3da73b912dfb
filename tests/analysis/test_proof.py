"""The proof that the intervals hold."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest

from bench.analysis import proof


@pytest.mark.parametrize("scatter", [proof.NORMAL, proof.SKEWED, proof.SPEEDS])
def test_simulated_runs_have_the_spread_and_correlation_that_they_claim(scatter):
    values = proof.simulate(np.random.default_rng(1), (20_000, 4), 0.6, scatter, spread=0.1) - 1
    assert values.mean() == pytest.approx(0, abs=0.005)
    assert values.std() == pytest.approx(0.1, rel=0.05)
    assert np.corrcoef(values[:, 1], values[:, 2])[0, 1] == pytest.approx(0.6, abs=0.06)


def test_the_committed_proof_holds_for_these_modules():
    record = json.loads(proof.FILE.with_suffix(".json").read_text())
    assert record["modules"] == proof.digests(), (
        "run python -m bench.analysis.proof and commit what it writes"
    )
    assert record["studies"] >= 1000 and record["designs"] >= 100


def test_the_committed_proof_keeps_every_promise():
    results = proof.load()
    assert proof.broken(results).empty
    ours = results[(results["method"] == proof.OURS) & (results["quantity"] == proof.MEAN)]
    assert set(itertools.product(["3", "5", "10", "auto"], [0.0, 0.3, 0.6])) <= set(
        zip(ours["runs"], ours["correlation"])
    )
    assert (ours["studies"] >= 1000).all()


def test_a_broken_promise_is_found():
    random = np.random.default_rng(1)
    results = pd.DataFrame(proof.fixed(random, 1000, 10, 0.3))
    assert proof.broken(results).empty
    assert len(proof.broken(results[results["method"] == proof.STUDENT].assign(method=proof.OURS))) == 1


def test_the_table_of_the_proof_has_a_column_per_correlation():
    found = proof.table(proof.load())
    assert {0.0, 0.3, 0.6, "width", "runs_used", "studies"} <= set(found.columns)
    assert {proof.OURS, proof.STUDENT} == set(found["method"])
    assert not found[[0.0, 0.3, 0.6]].isna().any().any()
