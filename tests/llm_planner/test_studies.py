"""What was published elsewhere, predicted: every point has a prediction or the reason why not."""

from llm_planner import studies


def test_every_level_of_mlc_has_three_assumptions_on_lengths():
    table = studies.mlc()
    assert set(table["lengths"]) == set(studies.LENGTHS) and (table["predicted_tpot_ms"] > 0).all()
    assert table.groupby("lengths").size().nunique() == 1
    shared = table[table["lengths"] == "sharegpt"]
    assert (shared["predicted_tpot_ms"] / shared["tpot_ms"] - 1).abs().median() < 0.25


def test_every_point_of_mosaicml_is_predicted_or_explained():
    table = studies.mosaicml()
    assert (table["predicted_requests_per_s"].notna() | (table["note"] != "")).all()
