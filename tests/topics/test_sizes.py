"""Models of several sizes: one table of speed and answers, whose order changes with the size, and the two
numbers that explain a token's time, on made-up runs of a known truth."""

import math

import pytest
from builders import make_sidecar, write_evaluation, write_run, write_score

from bench.observations import schema, store
from bench.topics import estimates, humaneval, sizes
from llm_measured.core import metrics

SMALL, MIDDLE, LARGE = "smollm2-135m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"
MEMORY = "The reference in float32 takes 8.2 GB of memory, and 5.1 GB are free."
# Rates in each model: a is twice as fast as b in the small one, half as fast in the large one; c like b.
RATES = {
    ("a", SMALL): 200.0, ("b", SMALL): 100.0, ("c", SMALL): 99.0,
    ("a", LARGE): 20.0, ("b", LARGE): 40.0, ("c", LARGE): 39.9,
}  # fmt: skip


def write(folder, model, rate, scatter=(0.99, 1.0, 1.01), more=None, **columns):
    """Three runs in the form of `sizes`, a minute apart."""
    for n, factor in enumerate(scatter, 1):
        sidecar = make_sidecar(started=f"2026-01-01T00:0{n}:00+00:00", **(more or {}))
        write_run(
            folder, sidecar, experiment="sizes", model=model, rate=rate * factor, run=n, tokens=128, **columns
        )


@pytest.fixture
def requests(tmp_path):
    for (backend, model), rate in RATES.items():
        write(tmp_path, model, rate, backend=backend, option="int8")
    return store.load(folder=tmp_path)


def test_a_row_has_speed_memory_the_answer_and_solved_problems(tmp_path):
    answer = {"prompt": 7, "answer": "9 × 8 is 11."}
    write(tmp_path, LARGE, 40.0, backend="a", option="int8", n=1, **answer)
    write(tmp_path, SMALL, 90.0, backend="a", option="int8", n=1, **answer)
    path = write_evaluation(tmp_path, backend="a", option="int8", model=LARGE)
    passed = [1] * 100 + [0] * 64
    write_score(tmp_path, passed, f"a/{path.stem}", backend="a", option="int8", model=LARGE)
    rows = store.load(folder=tmp_path)
    large, small = sizes.summary(rows).to_dict("records")
    assert (large["model"], small["model"]) == (LARGE, SMALL) and large["product"] == "11"
    assert large["tpot_s"] == pytest.approx(1 / 40, rel=0.01) and large["tpot_s_interval"] > 0
    own = humaneval.summary(rows).iloc[0]
    assert (large["solved"], large["pass_low"], large["pass_high"]) == (100, own["low"], own["high"])
    assert math.isnan(small["pass_at_1"])


def test_problems_that_another_machine_solved_are_named_so(tmp_path):
    write(tmp_path, LARGE, 40.0, backend="a", option="int8")
    where = {"backend": "a", "option": "int8", "model": LARGE, "gpu": "other-cpu", "host": "def456"}
    path = write_evaluation(tmp_path, **where)
    write_score(tmp_path, [1] * 164, f"a/{path.stem}", **where)
    (row,) = sizes.table(store.load(folder=tmp_path)).to_dict("records")
    assert (row["solved"], row["pass_at_1"], row["scored_on"]) == (164, 1, "other-cpu")


def test_another_version_of_the_engine_has_solved_nothing(tmp_path):
    write(tmp_path, LARGE, 40.0, backend="a", option="int8")
    where = {"backend": "a", "option": "int8", "model": LARGE, "backend_version": "2.0"}
    path = write_evaluation(tmp_path, **where)
    write_score(tmp_path, [1] * 164, f"a/{path.stem}", **where)
    assert sizes.table(store.load(folder=tmp_path))["pass_at_1"].isna().all()


def test_nine_prompts_of_200_tokens_are_in_no_row(tmp_path):
    write_run(tmp_path, backend="a", tokens=200, n=9)
    rows = store.load(folder=tmp_path)
    assert sizes.summary(rows).empty and sizes.pairs(rows).empty and sizes.laws(rows).empty


def test_a_pair_is_compared_by_its_ratio_of_ratios(requests):
    """Made-up truth: a over b is 2 in the small model and a half in the large one, b over c the same."""
    table = sizes.pairs(requests)
    change = {(row["first"][0], row["second"][0]): row["change"] for _, row in table.iterrows()}
    assert change == {("a", "b"): "turns over", ("a", "c"): "turns over", ("b", "c"): estimates.EQUAL}
    small, large = table[table["second"].str[0] == "b"].to_dict("records")
    assert (small["model"], large["model"]) == (SMALL, LARGE)
    assert small["ratio"] == pytest.approx((0.05 + 127 / 100) / (0.05 + 127 / 200), rel=1e-3)
    assert small["change_ratio"] == pytest.approx(large["ratio"] / small["ratio"], rel=1e-6)
    assert small["change_ratio_low"] < small["change_ratio"] < small["change_ratio_high"] < 1
    assert (small["verdict"], large["verdict"]) == (estimates.FASTER, estimates.SLOWER)


def test_a_difference_that_is_significant_at_one_size_alone_has_not_changed(tmp_path):
    """1.06 times in the one and 1.03 times in the other model: the ratios do not differ."""
    for (backend, model), rate in {
        ("a", SMALL): 212,
        ("b", SMALL): 200,
        ("a", LARGE): 20.6,
        ("b", LARGE): 20,
    }.items():
        write(tmp_path, model, float(rate), backend=backend, option="int8")
    small, large = sizes.pairs(store.load(folder=tmp_path)).to_dict("records")
    assert (small["verdict"], large["verdict"]) == (estimates.FASTER, estimates.FASTER)
    assert small["change"] == large["change"] == estimates.EQUAL and small["change_p"] > 0.05


def test_what_was_not_judged_is_in_no_pair_and_in_no_law(tmp_path):
    unjudged = {"judge": {"verdict": "not judged", "why": MEMORY}}
    for model in (SMALL, MIDDLE, LARGE):
        write(tmp_path, model, 40.0, backend="a", option="int8")
        write(tmp_path, model, 50.0, backend="b", option="int8", more=unjudged if model == LARGE else {})
    rows = store.load(folder=tmp_path)
    table = sizes.summary(rows).set_index(["model", "backend"])
    assert table.loc[(LARGE, "b"), "reason"] == estimates.NOT_JUDGED
    assert set(sizes.pairs(rows)["model"]) == {SMALL, MIDDLE}
    assert set(sizes.laws(rows)["backend"]) == {"a"} and len(sizes.points(rows)) == 5


# --- how a token's time parts ----------------------------------------------------------------------------

LAYERS = {SMALL: 30, MIDDLE: 24, LARGE: 28}
BYTES = {SMALL: 1.2e8, MIDDLE: 6.5e8, LARGE: 1.8e9}
KV = metrics.kv_cache_bytes(metrics.mean_context_tokens(8, 128), 1000, 4)


def write_law(folder, layer_s=2e-4, bandwidth=2e10, off=None, options=("int8", "Q8_0"), backend="a"):
    """Runs whose time per token is exactly that of the two numbers, times `off` of a model."""
    for model, weights in BYTES.items():
        for option in options:
            tpot = LAYERS[model] * layer_s + (weights + KV) / bandwidth
            rate = 1 / (tpot * (off or {}).get((model, option), 1.0))
            more = {"weight_bytes": weights}
            write(folder, model, rate, (1.0, 1.0, 1.0), more, backend=backend, option=option)
    return store.load(folder=folder)


def test_the_two_numbers_of_a_known_truth_are_found(tmp_path):
    rows = write_law(tmp_path)
    (found,) = sizes.laws(rows).to_dict("records")
    assert found["layer_s"] == pytest.approx(2e-4, rel=1e-6) and found["bits"] == 8
    assert found["bandwidth_bytes_per_s"] == pytest.approx(2e10, rel=1e-6)
    assert (found["models"], found["points"]) == (3, 6) and found["residual"] < 1e-6
    predicted = sizes.predictions(rows)
    assert set(predicted["model"]) == {LARGE} and set(predicted["from_models"]) == {"135M, 0.5B"}
    assert predicted["error"].abs().max() < 1e-6


def test_intervals_are_students_of_the_points(tmp_path):
    off = {(SMALL, "int8"): 1.03, (MIDDLE, "Q8_0"): 0.96, (LARGE, "int8"): 1.02}
    (found,) = sizes.laws(write_law(tmp_path, off=off)).to_dict("records")
    assert found["layer_s_low"] < 2e-4 < found["layer_s_high"]
    assert found["bandwidth_bytes_per_s_low"] < 2e10 < found["bandwidth_bytes_per_s_high"]
    assert found["residual"] == pytest.approx(0.03, abs=0.02)


def test_the_largest_model_has_no_say_in_its_own_prediction(tmp_path):
    """It takes twice as long as the law of the smaller ones says: the prediction stays, and is half of it."""
    rows = write_law(tmp_path, off={(LARGE, "int8"): 2.0, (LARGE, "Q8_0"): 2.0})
    predicted = sizes.predictions(rows)
    truth = LAYERS[LARGE] * 2e-4 + (BYTES[LARGE] + KV) / 2e10
    assert predicted["predicted_s"].tolist() == pytest.approx([truth] * 2, rel=1e-6)
    assert predicted["error"].tolist() == pytest.approx([-0.5] * 2, rel=1e-6)
    bytes_alone = (
        (LAYERS[MIDDLE] * 2e-4 + (BYTES[MIDDLE] + KV) / 2e10) * (BYTES[LARGE] + KV) / (BYTES[MIDDLE] + KV)
    )
    assert predicted["bytes_alone_s"].tolist() == pytest.approx([bytes_alone] * 2, rel=1e-6)


def test_a_model_between_is_predicted_from_the_smaller_ones_alone(tmp_path):
    shape = "shape:tinyllama-1.1b"
    tpot = 2 * (22 * 2e-4 + (1.2e9 + KV) / 2e10)  # twice what the law says, which the largest one feels
    write(tmp_path, shape, 1 / tpot, (1.0, 1.0, 1.0), {"weight_bytes": 1.2e9}, backend="a", option="Q8_0")
    predicted = sizes.predictions(write_law(tmp_path)).set_index(["model", "option"])
    assert list(predicted.index.unique("model")) == [LARGE, shape]
    assert predicted.loc[(shape, "Q8_0"), "error"] == pytest.approx(-0.5, rel=1e-6)
    assert predicted.loc[(shape, "Q8_0"), "from_models"] == "135M, 0.5B"
    assert predicted.loc[LARGE, "error"].min() > 0.01


def test_a_prediction_interval_holds_a_model_that_scatters_as_the_smaller_ones_do(tmp_path):
    off = {(SMALL, "int8"): 1.02, (SMALL, "Q8_0"): 0.98, (MIDDLE, "int8"): 0.98, (LARGE, "int8"): 1.02}
    predicted = sizes.predictions(write_law(tmp_path, off=off))
    assert (predicted["predicted_low"] < predicted["tpot_s"]).all()
    assert (predicted["tpot_s"] < predicted["predicted_high"]).all()


def test_a_predicted_time_is_never_below_zero(tmp_path):
    off = {(SMALL, "int8"): 1.5, (MIDDLE, "Q8_0"): 0.7}
    predicted = sizes.predictions(write_law(tmp_path, off=off))
    assert (predicted["predicted_low"] == 0).any() and (predicted["predicted_low"] >= 0).all()


def test_without_points_to_spare_there_is_no_interval(tmp_path):
    predicted = sizes.predictions(write_law(tmp_path, options=("int8",)))
    assert predicted["predicted_low"].isna().all() and predicted["error"].abs().max() < 1e-6


def test_a_format_whose_name_states_no_bits_has_those_that_it_reads():
    row = {"option": "as-shipped", "parameters_b": 1.544, "weight_bytes": 1.0e9}
    assert sizes.bits(row) == 4 and sizes.bits(row | {"option": "bfloat16"}) == 16


def test_without_runs_there_is_nothing(nothing):
    assert sizes.summary(nothing).empty and sizes.predictions(nothing).empty
    for table in (sizes.table, sizes.pairs, sizes.laws):
        assert table(nothing).empty


def test_sizes_are_a_form_of_latency():
    assert schema.SCORES["sizes_quality"] == "sizes" and sizes.size_words(LARGE) == "1.5B"
    assert sizes.parameters_b("shape:tinyllama-1.1b") == 1.1
