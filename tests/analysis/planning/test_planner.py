"""The planner's answers and its refusals, each of them one sentence."""

import json

import numpy as np
import pytest

from bench.analysis.planning import candidates, check, planner, shapes, step_time

PLAIN = dict(
    model="llama-3.1-8b",
    weights="bf16",
    engine="vllm",
    gpu="h100_sxm",
    prompt_tokens=1000,
    new_tokens=200,
    rate=5,
    ttft_s=1.0,
    tpot_s=0.03,
    usd_per_gpu_hour=3.0,
    most_gpus=16,
)


class Usual:
    """The priors as coefficients."""

    def of(self, engine, gpu, stratum=""):
        return np.array([c.prior for c in step_time.COEFFICIENTS]), np.array([0.4, 0.15]), False


@pytest.fixture(scope="module")
def table():
    return planner.plan(candidates.Question(**PLAIN), Usual(), (0.1, 0.3))


def test_configurations_hold_the_objective_cheapest_first(table):
    assert (table["ttft_p99_s"] <= 1.0).all() and (table["tpot_p99_s"] <= 0.03).all()
    assert table["usd_per_hour"].is_monotonic_increasing and set(table["tensor_parallel"]) <= {1, 2, 4, 8}
    assert (table["gpus"] == table["tensor_parallel"] * table["replicas"]).all()
    assert (table["tpot_p99_low_s"] < table["tpot_p99_s"]).all() and (
        table["tpot_p99_s"] < table["tpot_p99_high_s"]
    ).all()


def test_dollars_of_input_and_output_add_up(table):
    tokens = 5 * 3600 / 1e6
    spent = table["usd_per_million_input"] * 1000 * tokens + table["usd_per_million_output"] * 200 * tokens
    assert spent.to_numpy() == pytest.approx(table["usd_per_hour"].to_numpy())
    api = (0.1 * 1000 + 0.3 * 200) / 1e6
    assert (table["break_even_requests_per_s"] * api * 3600).to_numpy() == pytest.approx(
        table["usd_per_hour"].to_numpy()
    )


def test_one_replica_less_does_not_hold():
    question = candidates.Question(**PLAIN | {"rate": 40})
    candidate = candidates.Candidate(question, 1, Usual())
    replicas, _ = candidate.fewest_replicas()
    assert replicas > 1 and candidate.good(candidate.simulate(40 / (replicas - 1))) < candidates.SHARE


@pytest.mark.parametrize(
    "changed, sentence",
    [
        ({"model": "llama-3.1-70b", "most_gpus": 1}, "does not fit"),
        ({"tpot_s": 0.0005}, "No configuration of h100_sxm holds"),
        ({"rate": 1e5}, "beyond every configuration"),
        ({"usd_per_gpu_hour": 0}, "price of 0"),
        ({"usd_per_gpu_hour": None, "gpu": "a10"}, "has no price for a10"),
        ({"rate": -1}, "rate is -1"),
        ({"weights": "int3"}, "Unknown precision"),
        ({"engine": "vlm"}, "Did you mean 'vllm'"),
        ({"model": "lama-3.1-8b"}, "Did you mean"),
        ({"gpu": "h100"}, "Unknown GPU"),
    ],
)
def test_bad_input_gets_one_sentence(changed, sentence):
    with pytest.raises(ValueError, match=sentence) as failure:
        planner.plan(candidates.Question(**PLAIN | changed), Usual())
    assert "\n" not in str(failure.value)


NOTEBOOK = dict(gpus="h100_sxm h200_sxm", api_usd_per_million_input="", api_usd_per_million_output="")


@pytest.mark.parametrize(
    "changed, sentence",
    [
        ({"usd_per_gpu_hour": "0.0"}, "usd_per_gpu_hour is 0.0, which is no price"),
        ({"usd_per_gpu_hour": "cheap"}, "usd_per_gpu_hour is cheap, which is no price"),
        ({"api_usd_per_million_input": "0"}, "api_usd_per_million_input is 0, which is no price"),
        ({"weights": "bf16 fp8", "model": "lama-3.1-8b"}, "Did you mean"),
        ({"rate": 0}, "rate is 0"),
    ],
)
def test_the_notebook_ends_with_one_sentence(changed, sentence):
    with pytest.raises(ValueError, match=sentence) as failure:
        planner.answers(PLAIN | NOTEBOOK | changed, Usual())
    assert "\n" not in str(failure.value)


def test_a_gpu_without_an_answer_is_named_beside_the_others():
    table, refusals = planner.answers(PLAIN | NOTEBOOK | {"gpus": "h100_sxm a10", "tpot_s": 0.008}, Usual())
    assert set(table["gpu"]) == {"h100_sxm"} and len(refusals) == 1
    assert refusals[0].startswith("a10, bf16: 5 requests/s are beyond")


def test_a_config_of_the_hub_is_a_model(tmp_path):
    path = tmp_path / "config.json"
    config = dict(
        num_hidden_layers=32,
        hidden_size=4096,
        num_attention_heads=32,
        num_key_value_heads=8,
        intermediate_size=14336,
        vocab_size=128256,
    )
    path.write_text(json.dumps(config))
    assert shapes.shape(path)[1:] == shapes.shape("llama-3.1-8b")[1:]
    path.write_text(json.dumps(config | {"num_experts": 8}))
    shapes.shape.cache_clear()
    with pytest.raises(ValueError, match="mixture of experts"):
        shapes.shape(path)


def test_an_answer_nobody_measured_says_so():
    assert "nobody has measured" in planner.nearest(candidates.Question(**PLAIN), 1)
    assert "TTFT" in planner.nearest(candidates.Question(**PLAIN | {"weights": "fp8", "gpu": "h200_sxm"}), 1)


def test_weights_of_llama_70b_as_published():
    assert shapes.weight_bytes(shapes.shape("llama-3.1-70b"), "bf16") == pytest.approx(141e9, rel=0.01)


def test_check_never_reads_measured_columns():
    rows = check.published.table().head(3)
    fits = Usual()
    seen = check.predictions(rows, fits)
    blind = check.predictions(rows.drop(columns=["ttft_ms", "tpot_ms"]), fits)
    columns = [c for c in seen if c.startswith("predicted_")]
    assert len(columns) == 6 and seen[columns].equals(blind[columns])
    scrambled = check.predictions(rows.assign(ttft_ms=1.0, tpot_ms=9e9), fits)
    assert scrambled[columns].equals(seen[columns])


def test_check_refuses_a_table_without_the_columns(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("model,gpu\nllama-3.1-8b,h100_sxm\n")
    assert "lacks the columns" in check.main([str(path)])
    assert "There is no table" in check.main([str(tmp_path / "none.csv")])
