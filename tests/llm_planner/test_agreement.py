"""The calculator of the planner and the simulator agree within their stated error on a grid of 60 questions."""

import itertools
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from llm_planner import calculator, candidates, check, engines, rows, step_time

NODE = shutil.which("node")
PLACES = [
    ("vllm", "h100_sxm"),
    ("vllm", "b200_sxm"),
    ("sglang", "h100_sxm"),
    ("trtllm", "h200_sxm"),
    ("vllm", "a100_80gb"),
]
MODELS = ["llama-3.1-8b", "qwen3-32b", "llama-3.1-70b"]
LENGTHS = [(200, 200, "bf16"), (1000, 1000, "fp8"), (4000, 500, "bf16"), (1000, 100, "fp8")]
WAVES = 6  # requests per place of a closed loop, of which the first, that all arrive at once, is not counted


def grid():
    """60 questions as the calculator gets them."""
    return [
        {"model": model, "weights": weights, "engine": engine, "gpu": gpu}
        | {"prompt_tokens": prompt, "answer_tokens": answer, "rate": 20.0}
        | {"ttft_s": 1.0, "tpot_s": 0.015, "usd_per_gpu_hour": 3.0}
        for (engine, gpu), model, (prompt, answer, weights) in itertools.product(PLACES, MODELS, LENGTHS)
    ]


@pytest.fixture(scope="module")
def calculated():
    """(question, its cheapest answer or None) of the whole grid, from assets/planner.js."""
    if not NODE:
        pytest.skip("no Node.js on this machine; install it to run the calculator of the page")
    questions = grid()
    script = Path(__file__).with_name("calculator.mjs")
    given = json.dumps({"data": calculator.data(), "questions": questions})
    said = subprocess.run([NODE, str(script)], input=given, capture_output=True, text=True, check=True)
    found = []
    for question, answers in zip(questions, json.loads(said.stdout)):
        holding = [answer for answer in answers if "note" not in answer]
        found.append((question, min(holding, key=lambda a: a["usd_per_hour"]) if holding else None))
    return found


def simulated(question, answer):
    """(mean TTFT s, mean TPOT s) of a closed loop with as many requests as the calculator thinks at once; lengths
    scatter around the question's, so that requests do not bunch, which the calculator does not know.
    """
    lengths = question["prompt_tokens"], question["answer_tokens"]
    place = question["model"], question["gpu"], question["engine"], question["weights"]
    case = engines.Case(*place, answer["tensor_parallel"], engines.SLOTS, *lengths, "plan")
    coefficients, _, _ = check.Fits().of(question["engine"], question["gpu"], question["model"])
    batch, draw = answer["batch"], np.random.default_rng(0)
    met = rows.Simulation(
        *(draw.integers(tokens // 2, tokens * 3 // 2 + 1, batch * WAVES) for tokens in lengths),
        step_time.cost(engines.setting(case), coefficients),
        engines.policy(case),
        concurrency=batch,
        request_s=coefficients[-1],
        gaps=False,
    )
    return met.ttft_s[batch:].mean(), met.tpot_s[batch:].mean()


def test_the_grid_has_sixty_questions_with_and_without_answers(calculated):
    answered = [answer for _, answer in calculated if answer]
    assert len(calculated) == 60 and 30 <= len(answered) < 60


def test_the_calculator_agrees_with_the_simulator_within_the_stated_error(calculated):
    off = []
    for question, answer in calculated:
        if answer is None:
            continue
        stated = check.Fits().of(question["engine"], question["gpu"], question["model"])[1]
        here = np.log([answer["ttft_s"], answer["tpot_s"]]) - np.log(simulated(question, answer))
        if (np.abs(here) > stated).any():
            off.append((question, answer, here.round(2), stated.round(2)))
    assert not off


def test_both_say_for_what_they_are_blind():
    assert "blind" in calculator.BLIND and "queues" in calculator.BLIND
    assert "blind" in candidates.BLIND and "hits that differ" in candidates.BLIND
