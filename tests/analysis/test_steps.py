"""The steps of a server, found in rows whose times are known."""

import numpy as np
import pandas as pd

from bench.analysis import steps


def rows(**columns):
    known = {"experiment": "steps", "backend": "e", "option": "o", "model": "m", "gpu": "g", "host": "h"}
    known |= {"run_id": "r", "error": "", "concurrency": np.nan, "request_rate": np.nan, "max_new_tokens": 96}
    return pd.DataFrame(known | columns)


def two_pairs(**columns):
    """Two requests that decode, each with a prompt of 256 tokens that comes in its middle."""
    known = {"request_rate": 0.5, "request": [4, 5, 6, 7], "prompt_tokens": [64, 256, 64, 256]}
    known |= {"max_new_tokens": [96, 2, 96, 2], "itl_p50_s": 0.01, "itl_max_s": [0.2, 0.01, 0.4, 0.01]}
    return rows(**known | columns)


def test_a_loop_has_the_median_gap_and_a_late_prompt_the_longest_gap_of_the_one_before_it():
    loop = rows(
        concurrency=2.0,
        request=[1, 2, 3],
        prompt_tokens=64,
        itl_p50_s=[0.01, 0.02, 0.09],
        itl_max_s=1.0,
        ttft_s=0.1,
    )
    pairs = two_pairs(ttft_s=[0.1, 0.5, 0.1, 0.7])
    table = steps.steps(pd.concat([loop, pairs], ignore_index=True))
    alone, late = table.to_dict("records")
    assert (alone["batch_size"], alone["step_s"], alone["requests"]) == (2, 0.02, 3)
    assert np.isnan(alone["last_ttft_s"]) and np.isnan(late["step_s"])
    assert (late["batch_size"], late["prompt_tokens"], late["requests"]) == (1, 256, 2)
    assert round(late["last_ttft_s"], 6) == 0.3 and round(late["ttft_s"], 6) == 0.6


def test_a_pair_of_which_one_failed_is_left_out_and_other_experiments_are():
    pairs = two_pairs(ttft_s=0.1, error=["", "died", "", ""])
    (late,) = steps.steps(pairs).to_dict("records")
    assert (late["requests"], late["last_ttft_s"]) == (1, 0.4)
    nothing = steps.steps(pairs.assign(experiment="serving"))
    assert nothing.empty and list(nothing) == steps.COLUMNS


def test_a_loop_whose_answers_have_one_length_ends_together():
    loop = {"concurrency": 2.0, "request": [1, 2], "prompt_tokens": 64, "itl_p50_s": 0.01, "ttft_s": 0.1}
    apart = rows(**loop | {"max_new_tokens": [90, 100], "run_id": "a"})
    table = steps.steps(pd.concat([apart, rows(**loop, run_id="b")], ignore_index=True))
    assert list(table["ends_together"]) == [False, True] and list(table["max_new_tokens"]) == [95, 96]
