"""Passes over k tokens: what a run measures, and the table of what they cost."""

from collections import Counter

import pytest
from builders import make_rows, make_sidecar

from bench import backends
from bench.observations import store
from bench.topics import passes, tables

ASKED = {"model": "qwen2.5-coder-1.5b", "backend": "llamacpp", "option": "Q4_0"}
SMALL = {"backend": "fake", "prefix_tokens": 8, "new_tokens": "1 3", "timed": 4}


def test_a_pass_costs_more_the_more_tokens_it_has_and_a_draft_pays_above_a_share(tmp_path):
    no_gaps = dict.fromkeys(f"itl_{name}_s" for name in ("p50", "p90", "p99", "max"))
    for run, unit in enumerate((0.030, 0.033), start=1):
        rows = make_rows(8, tokens=1, experiment="passes", run=run, **ASKED, **no_gaps)
        for k, row in enumerate(rows, start=1):
            time_s = unit * (1 + 0.25 * (k - 1))
            row |= {
                "prompt": k,
                "prompt_tokens": 128 + k,
                "ttft_s": time_s,
                "e2e_s": time_s,
            }
        asked = make_sidecar(parameters={"prefix_tokens": 128})
        store.write(rows, asked, rows[0]["run_id"], tmp_path)
    table = tables.tables(store.load(folder=tmp_path))["passes"].set_index("pass_tokens")
    assert table["ratio"].tolist() == pytest.approx([1 + 0.25 * k for k in range(8)])
    assert table.loc[1, "pass_s"] == pytest.approx(0.0315, rel=0.01) and (table["runs"] == 2).all()
    assert (table["prefix_tokens"] == 128).all()
    assert table.loc[4, "predicted_ratio"] > 1 and table.loc[4, "ratio_interval"] == pytest.approx(0)
    needed = table["acceptance_needed"]
    assert needed[2] == pytest.approx(0.25, abs=1e-3), "two tokens for 1.25 passes: one in four accepted"
    assert needed[3] + needed[3] ** 2 == pytest.approx(0.5, abs=1e-3)
    assert passes.acceptance_needed([1, 2], [1.0, 2.1]) == pytest.approx([float("nan")] * 2, nan_ok=True)


def test_every_pass_follows_the_same_prefix_with_a_token_of_its_own(cells):
    rows = cells("passes", **SMALL)["observed"]
    assert Counter(rows["prompt_tokens"]) == {9: 4, 11: 4} and rows["cached_tokens"].isna().all()
    assert (rows["expected_cached_tokens_high"] == 8).all(), "what is asked stands apart from what is counted"
    assert rows["prompt_tokens"].tolist() != sorted(rows["prompt_tokens"])


def test_an_engine_that_keeps_no_prefix_is_refused_with_those_that_do(cells, monkeypatch):
    monkeypatch.delattr(backends.get("fake").module.Engine, "keep_prefix")
    assert not backends.get("fake").can("keep_prefix") and backends.get("llamacpp").can("keep_prefix")
    with pytest.raises(ValueError, match="keeps no prefix between calls. These do: llamacpp"):
        cells("passes", **SMALL)
