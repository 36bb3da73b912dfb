"""The simulated studies of the committed design, and the components of variance that they are made with."""

import numpy as np
import pandas as pd
import pytest
from builders import write_repeats

from bench.analysis import comparison, design_proof
from bench.observations import store


@pytest.fixture(scope="module")
def requests(tmp_path_factory):
    """Three options, three runs each in one sitting and three in another, of one machine."""
    rng, folder = np.random.default_rng(2), tmp_path_factory.mktemp("runs")
    for option, rate in (("F16", 100.0), ("Q8_0", 150.0), ("Q4_0", 200.0)):
        for first, later, hour in ((1, "", 1.0), (4, "02-01", 0.8)):
            rates = rate * hour * np.exp(0.1 * rng.standard_normal(3))
            write_repeats(folder, rates.tolist(), first=first, later=later, option=option)
    return store.load(folder=folder)


def test_the_components_of_variance_are_found(requests):
    table = design_proof.variances(requests).set_index("metric")
    row = table.loc["output_tokens_per_s"]
    assert (row["runs"], row["configurations"], row["sittings"], row["freedom"]) == (18, 3, 2, 2)
    assert 0.05 < row["residual"] < 0.2
    assert np.isnan(row["placement"])


def test_a_machine_whose_runs_were_never_repeated_has_no_design(tmp_path):
    write_repeats(tmp_path, [100.0], option="F16")
    write_repeats(tmp_path, [200.0], option="Q4_0")
    assert design_proof.designs(store.load(folder=tmp_path)) == []


def test_simulated_figures_have_the_scatter_that_they_claim(requests):
    ((_, design),) = design_proof.designs(requests)
    random, sds = np.random.default_rng(0), {"residual": 0.1, "sitting": 0.0, "placement": 0.0}
    made = [design_proof.simulate(random, design, sds) for _ in range(300)]
    sitting = comparison.sittings(design).to_numpy()
    left = np.array([logs - effects[sitting] for logs, effects in made])
    assert left.std() == pytest.approx(0.1, rel=0.05)
    assert np.array([effects for _, effects in made]).std() == pytest.approx(design_proof.SITTING_SD, rel=0.1)


def test_every_scenario_is_counted_and_the_worst_configuration_is_named(requests):
    table = design_proof.coverage(requests, studies=4)
    assert set(table["scenario"]) == {*design_proof.SCENARIOS, *design_proof.TWO_SPEEDS}
    assert table["share"].between(0, 1).all() and (table["share_low"] <= table["share"]).all()
    own = table[(table["host"] != "") & (table["quantity"] == design_proof.MEAN)]
    assert set(own["configuration"]) == {"all", "fake F16", "fake Q8_0", "fake Q4_0"}


@pytest.mark.parametrize(
    ("quantity", "share", "found"),
    [
        (design_proof.MEAN, 0.95, False),
        (design_proof.MEAN, 0.80, True),
        (design_proof.RATIO, 0.999, True),
        (design_proof.ANY, 0.02, False),
        (design_proof.ANY, 0.2, True),
    ],
)
def test_a_broken_promise_is_found(quantity, share, found):
    first = next(iter(design_proof.SCENARIOS))
    row = dict.fromkeys(design_proof.COLUMNS, "") | {
        "scenario": first,
        "configuration": "all",
        "quantity": quantity,
    }
    row |= {"share": share, "share_low": share - 0.01, "share_high": share + 0.01}
    assert bool(len(design_proof.broken(pd.DataFrame([row])))) == found


def test_the_committed_proof_keeps_every_promise():
    from bench import inputs

    table = inputs.table("proof/comparisons")
    assert len(table) and design_proof.broken(table).empty
