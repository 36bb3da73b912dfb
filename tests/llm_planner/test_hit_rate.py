"""A plan with a prefix cache: fewer GPUs for more hits, and the three ways in which one asks for it."""

import numpy as np
import pytest
from commands import run_cells

from bench.analysis import commands
from llm_planner import candidates, check, command, page, planner

QUESTION = {
    "model": "llama-3.1-8b",
    "weights": "bf16",
    "engine": "vllm",
    "gpu": "h100_sxm",
    "prompt_tokens": 8000,
    "rate": 8.0,
    "ttft_s": 2.0,
    "tpot_s": 0.05,
}
ANSWER = {"answer_tokens": 200}


def test_what_is_hit_is_not_computed():
    fits = check.Fits()
    cold, warm = (
        candidates.Candidate(candidates.Question(**QUESTION, **ANSWER, hit_rate=rate), 1, fits)
        for rate in (0.0, 0.5)
    )
    assert warm.alone()[0] < 0.7 * cold.alone()[0] and warm.alone()[1] == cold.alone()[1]
    assert warm.capacity > 1.2 * cold.capacity


@pytest.mark.parametrize("rate", [-0.1, 1.0, np.nan])
def test_a_hit_rate_that_cannot_be_is_refused(rate):
    with pytest.raises(ValueError, match="hit_rate is .*; give a share of prompt tokens"):
        candidates.Question(**QUESTION, **ANSWER, hit_rate=rate)


ASKED = QUESTION | ANSWER | {"gpus": QUESTION["gpu"], "most_gpus": 16}
del ASKED["gpu"]


@pytest.fixture(scope="module")
def warm():
    return planner.answers(page.QUESTION | ASKED | {"hit_rate": 0.9})[0]


def test_an_answer_names_its_hit_rate_and_needs_less_for_it(warm):
    cold, _ = planner.answers(page.QUESTION | ASKED)
    assert warm["usd_per_hour"].iloc[0] < cold["usd_per_hour"].iloc[0]
    assert (warm["hit_rate"] == 0.9).all() and "90 % of prompt tokens from a prefix cache" in planner.verdict(
        warm
    )
    assert any("No fitted row states a hit rate" in sentence for sentence in planner.reasons(warm))
    said = [planner.verdict(cold), *planner.reasons(cold)]
    assert not any("cache" in sentence or "hit rate" in sentence for sentence in said)


def test_prompt_tokens_from_the_cache_take_no_share_of_the_dollars():
    fits = check.Fits()
    shares = [
        planner.prefill_share(
            candidates.Candidate(candidates.Question(**QUESTION, **ANSWER, hit_rate=rate), 1, fits)
        )
        for rate in (0.0, 0.9)
    ]
    assert shares[1] < 0.5 * shares[0]


def options(**more):
    asked = ASKED | more
    return [
        "plan",
        *(word for name, value in asked.items() for word in (f"--{name.replace('_', '-')}", str(value))),
    ]


def test_the_command_answers_with_a_hit_rate(warm, capsys):
    assert command.main(options(hit_rate=0.9)) is None
    assert capsys.readouterr().out.startswith(planner.verdict(warm))


@pytest.mark.parametrize("rate", [-0.1, 1.0, 40.0])
def test_the_command_refuses_a_hit_rate_that_cannot_be(rate):
    assert command.main(options(hit_rate=rate)) == (
        f"hit_rate is {rate:g}; give a share of prompt tokens, 0 or more and below 1."
    )


def test_command_page_and_notebook_ask_the_same():
    assert commands.defaults("plan") == page.QUESTION and list(command.ASKED) == list(page.QUESTION)


def test_the_notebook_answers_with_a_hit_rate(warm, capsys):
    run_cells("plan", ASKED | {"hit_rate": 0.9})
    assert capsys.readouterr().out.startswith(planner.verdict(warm))
    with pytest.raises(ValueError, match="hit_rate is 1.5; give a share of prompt tokens"):
        run_cells("plan", {"hit_rate": 1.5})
