"""The planner's answers and its refusals, each of them one sentence."""

import json

import numpy as np
import pytest

from llm_planner import candidates, check, nearby, planner, shapes, step_time

PLAIN = dict(
    model="llama-3.1-8b",
    weights="bf16",
    engine="vllm",
    gpu="h100_sxm",
    prompt_tokens=1000,
    answer_tokens=200,
    rate=5,
    ttft_s=1.0,
    tpot_s=0.03,
    usd_per_gpu_hour=3.0,
    most_gpus=16,
)


class Usual:
    """The priors as coefficients, without fitted points to correct by."""

    near = nearby.Errors([], np.zeros((0, 2)))

    def of(self, engine, gpu, model, error_group=""):
        return np.array([c.prior for c in step_time.COEFFICIENTS]), np.array([0.4, 0.15]), ""


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
    held = [candidate.holds(40 / (replicas - 1), future)[0] for future in candidates.futures()]
    assert replicas > 1 and np.mean(held) < candidates.FUTURES_HELD


def test_an_answer_holds_in_other_futures_than_those_it_was_chosen_by(table):
    """The fit's error and the arrivals drawn anew: the goal is met in about as many worlds as are promised,
    and by not many more replicas than the true step times need.
    """
    question, draw = candidates.Question(**PLAIN | {"rate": 40, "most_gpus": 64}), np.random.default_rng(7)
    candidate = candidates.Candidate(question, 1, Usual())
    replicas, _ = candidate.fewest_replicas()
    errors = draw.normal(size=(100, 2)) / 1.96
    worlds = [candidates.Future(*pair, seed=1000 + k) for k, pair in enumerate(errors)]
    assert np.mean([candidate.holds(40 / replicas, world)[0] for world in worlds]) >= 0.9
    fewest = [next(n for n in range(1, 65) if candidate.holds(40 / n, world)[0]) for world in worlds]
    assert replicas - np.median(fewest) <= 1


def test_the_outermost_futures_are_the_ends_of_the_interval():
    drawn = candidates.futures()
    assert drawn[0].error_tpot == pytest.approx(1) and drawn[-1].error_tpot == pytest.approx(-1)
    assert sorted(f.error_ttft for f in drawn) == pytest.approx(sorted(f.error_tpot for f in drawn))
    assert len({future.seed for future in drawn}) == len(drawn)
    candidate = candidates.Candidate(candidates.Question(**PLAIN), 1, Usual())
    loaded = [candidate.simulate(10, candidates.Future(error, 0.0, 0)) for error in (0, 1)]
    times = np.median(loaded[1].tpot_s) / np.median(loaded[0].tpot_s)
    assert times > 1.02 * np.exp(0.15)  # a slower step also fills the batch


def test_slower_steps_stay_below_the_shown_upper_end_which_a_factor_does_not_reach():
    """All step times at the end of their interval also fill the batch: beyond p99 times that factor."""
    question = candidates.Question(**PLAIN | {"answer_tokens": 1000, "rate": 20, "most_gpus": 64})
    row = planner.plan(question, Usual()).iloc[0]
    candidate = candidates.Candidate(question, row["tensor_parallel"], Usual())
    candidate.cost = candidate.cost * np.exp(0.15)
    slow = candidate.simulate(20 / row["replicas"], candidates.Future(0.0, 0.0, 99))
    p99 = np.percentile(slow.tpot_s[len(slow.tpot_s) // 10 :], 99)
    assert p99 < 1.02 * row["tpot_p99_high_s"] and p99 > 1.05 * row["tpot_p99_s"] * np.exp(0.15)
    assert candidate.good(slow) > 0.9


OFFLINE = dict(answer_tokens=1000, rate=20, ttft_s=600, tpot_s=1, most_gpus=64)


@pytest.fixture(scope="module")
def offline():
    return planner.plan(candidates.Question(**PLAIN | OFFLINE), Usual())


def test_only_a_queue_that_settles_holds_even_a_goal_of_minutes(offline):
    """The requests of half an hour fit a goal of 600 s on one GPU, but that queue never ends."""
    for row in offline.to_dict("records"):
        candidate = candidates.Candidate(
            candidates.Question(**PLAIN | OFFLINE), row["tensor_parallel"], Usual()
        )
        assert row["replicas"] * candidate.capacity > 20 and row["utilisation"] < 1
        ttft_s = candidate.simulate(20 / row["replicas"]).ttft_s
        half = len(ttft_s) // 2
        assert np.median(ttft_s[-half // 2 :]) < 2 * np.median(ttft_s[half // 2 : half]) + 1


def test_only_requests_that_were_taken_up_hold_memory(offline):
    for row in offline.to_dict("records"):
        assert 0 < row["kv_gb_per_replica"] < 80 * row["tensor_parallel"]
        assert row["batch"] * 1500 * 131072 / 1e9 == pytest.approx(row["kv_gb_per_replica"], rel=0.1)


def test_a_growing_queue_is_refused_with_the_rate_at_which_it_grows():
    with pytest.raises(ValueError, match="the queue grows by .* requests every second") as failure:
        planner.plan(candidates.Question(**PLAIN | OFFLINE | {"most_gpus": 2}), Usual())
    completed = float(str(failure.value).split("can complete ")[1].split()[0])
    grows = float(str(failure.value).split("grows by ")[1].split()[0])
    assert completed + grows == pytest.approx(20, rel=0.01)


def test_a_refusal_says_which_objective_fails_and_by_how_much():
    with pytest.raises(ValueError, match=r"of 20 simulated futures: .*TPOT within .* ms more than the goal"):
        planner.plan(candidates.Question(**PLAIN | {"rate": 20, "tpot_s": 0.0075, "most_gpus": 2}), Usual())
    with pytest.raises(ValueError, match="TPOT takes at least .* ms more than the goal") as failure:
        planner.plan(candidates.Question(**PLAIN | {"tpot_s": 0.0005}), Usual())
    assert "TTFT takes" not in str(failure.value)


def test_the_fewest_gpus_of_a_future_are_bounded_by_what_completes():
    candidate = candidates.Candidate(candidates.Question(**PLAIN | OFFLINE), 1, Usual())
    slow = candidates.Future(1.0, 0.0, 1)
    assert candidate.utilisation(5, slow) == pytest.approx(candidate.utilisation(5) * np.exp(0.15))
    assert candidate.holds(2 * candidate.capacity, candidates.MIDDLE) == (False, None)


@pytest.mark.parametrize(
    "changed, sentence",
    [
        ({"model": "llama-3.1-70b", "most_gpus": 1}, "does not fit"),
        ({"tpot_s": 0.0005}, "No configuration of h100_sxm holds"),
        ({"rate": 1e5}, "beyond every configuration"),
        ({"usd_per_gpu_hour": 0}, "price of 0"),
        ({"usd_per_gpu_hour": None, "gpu": "a10"}, "has no price for a10"),
        ({"rate": -1}, "rate is -1"),
        ({"weights": "FP8"}, "Unknown precision 'FP8'. Did you mean 'fp8'"),
        ({"weights": "int4"}, "No measured row has weights in int4"),
        ({"model": "minicpm3-4b"}, "latent attention"),
        ({"model": "gemma-3-27b"}, "sliding window"),
        ({"model": "gpt-oss-120b"}, "mixture of experts"),
        ({"engine": "vlm"}, "Did you mean 'vllm'"),
        ({"model": "lama-3.1-8b"}, "Did you mean"),
        ({"gpu": "h100"}, "Unknown GPU"),
    ],
)
def test_bad_input_gets_one_sentence(changed, sentence):
    with pytest.raises(ValueError, match=sentence) as failure:
        planner.plan(candidates.Question(**PLAIN | changed), Usual())
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize(
    "changed, sentences",
    [
        (
            {"model": "mixtral-8x7b", "gpus": "mi300x H100", "usd_per_gpu_hour": "", "rate": 0},
            [
                "mixtral-8x7b is a mixture of experts",
                "mi300x is a device of AMD",
                "Did you mean 'h100_sxm'",
                "rate is 0",
            ],
        ),
        ({"engine": "vlm", "usd_per_gpu_hour": "free"}, ["Did you mean 'vllm'", "usd_per_gpu_hour is free"]),
        (
            {"gpus": "h100_sxm a10", "usd_per_gpu_hour": "", "tpot_s": -1},
            ["tpot_s is -1", "no price for a10"],
        ),
        ({"tpot_s": 50.0}, ["tpot_s is 50 s; objectives are in seconds, so write 0.05 for 50 ms"]),
    ],
)
def test_all_faults_of_a_question_are_named_at_once_names_first(changed, sentences):
    with pytest.raises(ValueError) as failure:
        planner.answers(PLAIN | NOTEBOOK | changed, Usual())
    said = str(failure.value)
    places = [said.find(sentence) for sentence in sentences]
    assert -1 not in places and places == sorted(places) and "\n" not in said
    assert "price for mi300x" not in said and "price for H100" not in said


def test_the_answer_begins_with_one_sentence_and_hides_no_column(table):
    said = planner.verdict(table)
    row = table.iloc[0]
    assert said.startswith(f"{row['gpus']} H100 SXM: {row['replicas']} replica") and said.count(". ") == 0
    shown = planner.goal_table(table)
    assert {"TTFT p99 (ms)", "TPOT p99 (ms)"} <= set(shown) and len(shown) == len(table)
    assert "..." not in shown.to_string() and "<td>...</td>" not in shown._repr_html_()
    assert float(shown["TPOT p99 (ms)"][0].split()[0]) == pytest.approx(1e3 * row["tpot_p99_s"], rel=0.01)
    assert planner.verdict(table.head(0)) == "No configuration holds the goal."


NOTEBOOK = dict(
    gpus="h100_sxm h200_sxm", hit_rate=0.0, api_usd_per_million_input="", api_usd_per_million_output=""
)


@pytest.mark.parametrize(
    "changed, sentence",
    [
        ({"usd_per_gpu_hour": "0.0"}, "usd_per_gpu_hour is 0.0, which is no price"),
        ({"usd_per_gpu_hour": "cheap"}, "usd_per_gpu_hour is cheap, which is no price"),
        ({"api_usd_per_million_input": "0"}, "api_usd_per_million_input is 0, which is no price"),
        ({"weights": "bf16 fp8", "model": "lama-3.1-8b"}, "Did you mean"),
        ({"rate": 0}, "rate is 0"),
        ({"hit_rate": 1.2}, "hit_rate is 1.2; give a share of prompt tokens"),
    ],
)
def test_the_notebook_ends_with_one_sentence(changed, sentence):
    with pytest.raises(ValueError, match=sentence) as failure:
        planner.answers(PLAIN | NOTEBOOK | changed, Usual())
    assert "\n" not in str(failure.value)


def test_a_gpu_without_an_answer_is_named_beside_the_others():
    table, refusals = planner.answers(PLAIN | NOTEBOOK | {"gpus": "h100_sxm a10", "tpot_s": 0.008}, Usual())
    assert set(table["gpu"]) == {"h100_sxm"}
    assert refusals[-1].startswith("a10, bf16: 5 requests/s are beyond")


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
    for more, said in (
        ({"num_experts": 8}, "mixture of experts"),
        ({"kv_lora_rank": 512}, "latent attention"),
        ({"linear_num_value_heads": 32}, "linear attention"),
    ):
        path.write_text(json.dumps(config | more))
        shapes.shape.cache_clear()
        with pytest.raises(ValueError, match=said):
            shapes.shape(path)


def test_a_sliding_window_is_predicted_as_a_whole_context_and_said(tmp_path):
    path = tmp_path / "config.json"
    sizes = dict(num_hidden_layers=32, hidden_size=4096, num_attention_heads=32, intermediate_size=14336)
    config = sizes | dict(num_key_value_heads=8, vocab_size=32000, sliding_window=4096)
    path.write_text(json.dumps(config))
    shapes.shape.cache_clear()
    table, _ = planner.answers(PLAIN | NOTEBOOK | {"model": str(path), "gpus": "h100_sxm"}, Usual())
    assert "see the last 4096 tokens only" in table["carries_over"].iloc[0]
    path.write_text(json.dumps(config | {"use_sliding_window": False}))
    shapes.shape.cache_clear()
    assert shapes.shape(path).note == ""


def test_what_no_row_was_fitted_to_is_named(table):
    said = planner.reasons(table)
    assert any("No row of vllm on h100_sxm states bf16" in sentence for sentence in said)
    fits = check.Fits()
    assert fits.of("vllm", "h100_sxm", "llama-3.1-70b")[2] == ""
    assert fits.of("vllm", "h100_sxm", "llama-3.1-8b")[2] == "model"
    assert (
        fits.of("vllm", "h100_sxm", "llama-3.1-8b")[1] > fits.of("vllm", "h100_sxm", "llama-3.1-70b")[1]
    ).all()
    assert fits.of("vllm", "a10", "llama-3.1-8b")[2] == "gpu"
    assert fits.of("vllm", "a10", "llama-2-7b")[2] == "model and gpu"
    widths = [
        fits.of("vllm", gpu, model)[1] for gpu, model in (("a10", "llama-3.1-8b"), ("a10", "llama-2-7b"))
    ]
    assert (widths[1] > widths[0]).all()


def test_one_replica_less_fails_for_the_reason_that_is_given():
    parameters = PLAIN | NOTEBOOK | {"gpus": "h100_sxm", "rate": 40, "most_gpus": 8}
    table, _ = planner.answers(parameters, Usual())
    first = planner.reasons(table)[0]
    assert table["replicas"][0] > 1 and first.startswith("One replica less fails: ")
    assert "the queue" in first or "more than the goal" in first or "simulated futures" in first


def test_gpus_of_a_replica_without_an_answer_say_why():
    parameters = PLAIN | NOTEBOOK | {"model": "llama-3.1-70b", "gpus": "h100_sxm", "tpot_s": 0.05}
    table, absent = planner.answers(parameters, Usual())
    assert 1 not in set(table["tensor_parallel"]) and "does not fit on 1 x h100_sxm" in absent[0]


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
    assert "lacks the columns" in check.run(str(path))
    assert "There is no table" in check.run(str(tmp_path / "none.csv"))
