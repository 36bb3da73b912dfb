"""The closed form and the choices that follow from step times, against the simulator and by hand."""

import numpy as np
import pytest

from llm_planner import check, engines, rows, scheduler, steady, step_time, tradeoffs

FITS = check.Fits()


def case(engine="vllm", prompt=1000, new=300, tensor_parallel=1):
    load = tensor_parallel, engines.SLOTS, prompt, new, "plan"
    return engines.Case("llama-3.1-8b", "h100_sxm", engine, "fp8", *load)


@pytest.mark.parametrize("engine", ["vllm", "trtllm", "sglang"])
@pytest.mark.parametrize("batch", [1, 16, 64])
def test_the_closed_form_is_near_the_simulator(engine, batch):
    asked = case(engine)
    coefficients, _, _ = FITS.of("vllm", "h100_sxm", "llama-3.1-70b")
    one = steady.replica(asked, coefficients)
    # Lengths that vary keep arrivals from bunching, which the closed form does not know.
    draw = np.random.default_rng(0)
    lengths = draw.integers(500, 1500, batch * 20), draw.integers(100, 500, batch * 20)
    more = dict(concurrency=batch, request_s=one.request_s, gaps=False)
    met = rows.Simulation(*lengths, one.cost, engines.policy(asked), **more)
    _, tpot = steady.times(one, batch, 1000, 300)
    assert tpot == pytest.approx(np.median(met.tpot_s[batch:]), rel=0.15)


def test_the_largest_batch_holds_and_one_more_does_not():
    one = steady.replica(case(), FITS.of("vllm", "h100_sxm", "llama-3.1-70b")[0])
    batch = steady.largest_batch(one, 1000, 300, 1.0, 0.015)
    assert steady.times(one, batch, 1000, 300)[1] <= 0.015 < steady.times(one, batch + 1, 1000, 300)[1]
    assert steady.largest_batch(one, 1000, 300, 1.0, 1e-4) == 0


def test_memory_bounds_the_batch():
    one = steady.replica(case(), FITS.of("vllm", "h100_sxm", "llama-3.1-70b")[0])
    assert steady.largest_batch(one, 50_000, 10_000, 1e6, 1e6) == int(one.kv_tokens // 60_000) > 0


def test_dollars_and_replicas_of_an_answer():
    one = steady.replica(case(), FITS.of("vllm", "h100_sxm", "llama-3.1-70b")[0])
    question = dict(
        prompt_tokens=1000, answer_tokens=300, rate=100, ttft_s=1, tpot_s=0.02, usd_per_gpu_hour=2
    )
    found = steady.answer(one, 2, question)
    assert (
        found["replicas"] == np.ceil(100 / found["requests_per_s"]) and found["gpus"] == 2 * found["replicas"]
    )
    assert found["usd_per_hour"] == 2 * found["gpus"]
    assert found["usd_per_million_output"] == pytest.approx(found["usd_per_hour"] / (100 * 3600 * 300 / 1e6))
    assert steady.answer(one, 2, question | {"tpot_s": 1e-5}) == {"batch": 0}


@pytest.fixture(scope="module")
def loops():
    return tradeoffs.closed_loops("llama-3.1-8b", "h100_sxm", "vllm", "bf16", (500, 100), (4, 8, 16, 32, 64))


def test_more_gpus_are_faster_and_replicas_yield_more(loops):
    spread = tradeoffs.parallelism(loops)
    for _, part in loops.groupby("concurrency"):
        assert part.sort_values("tensor_parallel")["tpot_s"].is_monotonic_decreasing
    assert (spread["output_tokens_per_s"] == 8 * spread["output_tokens_per_s_per_gpu"]).all()
    most = spread.loc[spread["output_tokens_per_s"].idxmax()]
    assert most["tensor_parallel"] == 1 and most["replicas"] == 8


def test_the_crossover_goes_from_one_replica_to_many(loops):
    found = tradeoffs.crossover(tradeoffs.parallelism(loops))
    assert (
        len(found) > 1
        and found["load"].is_monotonic_increasing
        and (found["fastest"].diff().dropna() <= 0).all()
    )


def test_a_device_without_a_price_has_no_dollars():
    table = tradeoffs.closed_loops("llama-3.1-8b", "a10", "vllm", "bf16", (100, 20), (1,))
    assert table["usd_per_million_output"].isna().all() and (table["unknown"] == "model and gpu").sum() == 0
    assert (table["unknown"] == "gpu").all()


@pytest.mark.parametrize("accept, drafts", [(0.3, 2), (0.7, 4), (0.95, 8)])
def test_the_least_acceptance_is_where_tokens_outweigh_time(accept, drafts):
    yielded = (1 - accept ** (drafts + 1)) / (1 - accept)
    assert tradeoffs.least_accepted(yielded, drafts) == pytest.approx(accept, abs=1e-9)


def test_acceptance_at_the_ends():
    assert tradeoffs.least_accepted(1.0, 4) == 0.0
    assert np.isnan(tradeoffs.least_accepted(5.0, 4)) and tradeoffs.least_accepted(4.9, 4) < 1


def test_checking_no_draft_is_a_decode_step():
    cost = step_time.cost(engines.setting(case()), FITS.of("vllm", "h100_sxm", "llama-3.1-70b")[0])
    decode = scheduler.step_s(cost, 32, 32 * 1500.0, 0.0, 0.0)
    assert tradeoffs.verify_s(cost, 32, 1500, 0) == pytest.approx(decode)
    assert tradeoffs.verify_s(cost, 32, 1500, 8) > decode


def test_speculation_must_accept_more_in_large_batches_and_with_a_draft_model():
    free = tradeoffs.speculation("llama-3.1-8b", "h100_sxm", "vllm", "bf16")
    paid = tradeoffs.speculation("llama-3.1-8b", "h100_sxm", "vllm", "bf16", draft_share=0.1)
    for _, part in free.groupby("drafts"):
        assert part.sort_values("batch_size")["accept"].is_monotonic_increasing
    assert (paid["accept"].fillna(1) > free["accept"].fillna(0)).all()
