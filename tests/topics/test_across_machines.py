"""Ratios over machines: counted where both were measured, by processor type, pooled from five types on."""

import pandas as pd

from bench.topics import across_machines as analysis


def ratios(of_types, option="slow"):
    """What `ratios` gives of made-up machines: {processor: [(ratio, verdict)]}."""
    rows = [
        {
            "backend": "engine", "option": option, "backend_version": "1", "than_backend": "engine",
            "than_option": "fast", "than_backend_version": "1", "gpu": processor, "host": f"{processor}-{k}",
            "machine": f"{processor}-{k}", "ratio": ratio, "low": ratio * 0.95, "high": ratio * 1.05,
            "degrees_of_freedom": 20, "verdict": verdict, "runs": 3, "baseline_runs": 3,
        }
        for processor, each in of_types.items()
        for k, (ratio, verdict) in enumerate(each)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_slower_is_counted_on_the_machines_that_have_both():
    (row,) = analysis.summarised(
        ratios({"zen4": [(0.5, "slower"), (0.6, "slower")], "zen5": [(0.9, "cannot be distinguished")]})
    ).to_dict("records")
    assert (row["machines"], row["slower"], row["faster"]) == (3, 2, 0)
    assert row["processors"] == 2 and pd.isna(row["low"]), "of two types nothing is pooled"


def test_a_pooled_interval_takes_five_processor_types():
    several = {f"type{k}": [(0.5 + 0.02 * k, "slower")] for k in range(5)}
    (row,) = analysis.summarised(ratios(several)).to_dict("records")
    assert row["processors"] == 5 and row["low"] < row["ratio"] < row["high"] < 1
