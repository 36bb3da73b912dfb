"""Speculative decoding beside the same option without it, on made-up runs."""

import pandas as pd
import pytest
from builders import write_run

from bench.observations import store
from bench.topics import drafting, latency, sizes

PLAIN = {"backend": "llamacpp", "option": "as-shipped"}
DRAFT = PLAIN | {"option": "as-shipped-draft", "drafted_tokens": 8, "accepted_tokens": 4}


def runs(folder, rates, **columns):
    for number, rate in enumerate(rates, start=1):
        write_run(folder, rate=rate, run=number, **columns)


@pytest.fixture
def folder(tmp_path):
    """Three runs of each, the drafting one half as fast again; an option without its like beside them."""
    runs(tmp_path, (100.0, 101.0, 99.0), **PLAIN)
    runs(tmp_path, (150.0, 151.0, 149.0), **DRAFT)
    runs(tmp_path, (200.0, 201.0, 199.0), **DRAFT | {"option": "F16-ngram"})
    return tmp_path


def test_the_gain_is_that_over_the_same_option_without_drafts(folder):
    requests = store.load(folder=folder)
    (row,) = drafting.beside_plain(requests).to_dict("records")
    assert (row["option"], row["plain"], row["verdict"]) == ("as-shipped-draft", "as-shipped", "faster")
    mean = latency.runs(requests).groupby("option")["output_tokens_per_s"].mean()
    by_hand = mean["as-shipped-draft"] / mean["as-shipped"]
    assert row["ratio"] == pytest.approx(by_hand, rel=1e-3) and row["low"] < by_hand < row["high"]
    assert row["acceptance_rate"] == 0.5 and row["alike"] == row["answers"] > 0


def test_an_answer_that_differs_in_one_run_is_not_the_same(folder):
    requests = store.load(folder=folder)
    last = requests[(requests["option"] == "as-shipped-draft")].index[-1]
    requests.loc[last, "output_ids"] = "1 2 3"
    (row,) = drafting.beside_plain(requests).to_dict("records")
    assert row["alike"] == row["answers"] - 1


def test_a_prompt_that_failed_once_counts_for_neither(folder):
    requests = store.load(folder=folder)
    whole = len(requests["prompt"].unique())
    last = requests[requests["option"] == "as-shipped-draft"].index[-1]
    requests.loc[last, ["error", "output_tokens", "e2e_s"]] = ["the engine gave 116 tokens", 0, None]
    plain = requests["option"] == "as-shipped"
    requests.loc[plain & (requests["prompt"] == requests.loc[last, "prompt"]), "e2e_s"] *= 100
    (row,) = drafting.beside_plain(requests).to_dict("records")
    assert row["answers"] == whole - 1 and 1.2 < row["ratio"] < 1.6, "100 times slower at that prompt alone"


def test_the_table_has_both_forms_of_prompts(folder):
    requests = store.load(folder=folder)
    short = requests.assign(experiment="sizes", model="qwen2.5-coder-1.5b")
    shown = drafting.table(pd.concat([requests, short], ignore_index=True))
    assert set(shown["model"]) == {"smollm2-135m", "qwen2.5-coder-1.5b"} and len(shown) == 2
    assert set(shown["plain"]) == {"as-shipped"} and set(shown["experiment"]) == {"latency", "sizes"}


def test_nothing_drafted_is_an_empty_table(tmp_path):
    runs(tmp_path, (100.0, 101.0), **PLAIN)
    assert drafting.beside_plain(store.load(folder=tmp_path)).empty
    assert drafting.table(store.load(folder=tmp_path)).empty


def test_a_step_that_checks_drafts_explains_no_time_per_token(folder):
    requests = store.load(folder=folder).assign(experiment="sizes")
    # A file as shipped is in no law of sizes, so the two options get a format's name.
    requests["option"] = requests["option"].str.replace("as-shipped", "Q8_0")
    assert set(sizes.points(requests)["option"]) == {"Q8_0"}
