"""Formulas against time stamps made by hand."""

import gc
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.instrument import in_process
from llm_measured.core import definitions, metrics


def test_one_request_by_hand():
    arrivals = [10.5, 10.6, 10.7, 11.0]
    assert metrics.ttft_s(10.0, arrivals) == pytest.approx(0.5)
    assert metrics.itl_s(arrivals) == pytest.approx([0.1, 0.1, 0.3])
    assert metrics.tpot_s(0.5, 1.0, 4) == pytest.approx(0.5 / 3)
    assert metrics.output_tokens_per_s(4, 1.0) == 4
    assert metrics.percentile([1, 2, 3, 4], 50) == 2.5


def test_what_is_missing_is_nan_and_not_zero():
    assert math.isnan(metrics.ttft_s(1.0, []))
    assert math.isnan(metrics.tpot_s(0.5, 1.0, 1))
    assert math.isnan(metrics.percentile([], 50))


def test_columns_of_text_numbers_and_gaps_are_taken_too():
    """Columns read from a CSV may be objects: numbers as text, or with a gap."""
    text = np.array(["4", None], dtype=object)
    assert metrics.itl_s(("1.0", "1.5")) == pytest.approx([0.5])
    assert metrics.percentile(["1", "2", "4"], 50) == 2
    assert metrics.tpot_s(0.5, ["1.1", "1.1"], ["4", "1"])[0] == pytest.approx(0.2)
    assert metrics.output_tokens_per_s(8, ["2", "4"]) == pytest.approx([4, 2])
    assert metrics.mean_context_tokens(10, ["4"]) == pytest.approx([12])
    assert metrics.prefill_flops(1, 1, 1, ["1"]) == pytest.approx([2 + 2 + 4])
    assert metrics.largest_batch(["10"], 4, 2) == pytest.approx([3])
    assert metrics.acceptance_rate(text, ["8", "8"])[0] == 0.5
    assert np.isnan(metrics.acceptance_rate(text, text)[1])
    assert metrics.decode_steps(text, text)[0] == -1 and np.isnan(metrics.decode_steps(text, 0)[1])
    assert metrics.energy_per_token_j(text, text)[0] == 1


def test_percentiles_are_linear_between_neighbours():
    assert metrics.percentile([4, 1, 3, 2], 90) == pytest.approx(3.7)
    assert isinstance(metrics.percentile([1, 2], 50), float)


def test_context_and_steps_by_hand():
    assert metrics.kv_values_per_token(80, 8, 128) == 163840
    assert metrics.mean_context_tokens(100, 50) == 125
    assert metrics.decode_steps(20, 7) == 12 and metrics.decode_steps(20, np.nan) == 19


def test_sizes_of_llama_2_7b():
    """6.74e9 parameters, of which the embedding (32000 x 4096) is looked up and the norms are vectors."""
    sizes = metrics.matrices(32, 4096, 11008, 32, 32, 128, 32000)
    assert sizes == {
        "block_parameters": 32 * (4 * 4096**2 + 3 * 4096 * 11008),
        "head_parameters": 32000 * 4096,
        "attention_values": 32 * 32 * 128,
    }
    assert sizes["block_parameters"] + 2 * sizes["head_parameters"] == pytest.approx(6.738e9, rel=1e-3)
    grouped = metrics.matrices(2, 10, 7, 4, 2, 3, 11, mlp_matrices=2)
    assert grouped["block_parameters"] == 2 * (2 * 10 * 4 * 3 + 2 * 10 * 2 * 3 + 2 * 10 * 7)
    assert grouped["attention_values"] == 2 * 4 * 3


def test_operations_by_hand():
    assert metrics.prefill_flops(100, 10, 3, 4) == 2 * 100 * 4 + 2 * 10 + 2 * 3 * 4 * 5
    assert metrics.decode_flops(100, 10, 3, 4) == 2 * 110 + 4 * 3 * 4
    # Reading a prompt is its tokens' steps, but for the output matrix that only the last token needs.
    steps = sum(metrics.decode_flops(100, 0, 3, n) for n in range(1, 6)) + 2 * 10
    assert metrics.prefill_flops(100, 10, 3, 5) == steps
    assert metrics.mfu(30.0, 2.0, 60.0) == 0.25
    assert metrics.arithmetic_intensity(30.0, 4.0) == 7.5 and metrics.ridge_point(30.0, 4.0) == 7.5


def test_largest_batch_by_hand():
    assert metrics.largest_batch(100, 40, 25) == 2 and metrics.largest_batch(100, 50, 25) == 2
    assert metrics.largest_batch(100, 100.5, 1) == 0 and metrics.largest_batch(100, 99.5, 0.25) == 2


def test_shares_of_drafts_and_energy_of_nothing_are_nan():
    assert math.isnan(metrics.acceptance_rate(2, 0))
    assert metrics.acceptance_rate(3, 4) == 0.75
    assert metrics.acceptance_rate(1, 1) == 1
    assert math.isnan(metrics.acceptance_rate(0, 0)) and math.isnan(metrics.acceptance_rate(np.nan, 4))
    assert metrics.energy_per_token_j(30.0, 20) == 1.5 and metrics.energy_per_token_j(3.0, 1) == 3
    assert math.isnan(metrics.energy_per_token_j(30.0, 0))
    assert math.isnan(metrics.energy_per_token_j(np.nan, 5))
    assert metrics.cpu_energy_per_token_j(30.0, 20) == 1.5
    assert math.isnan(metrics.cpu_energy_per_token_j(1.0, 0))
    assert metrics.perplexity(math.log(7.0)) == pytest.approx(7)


def test_a_metric_is_declared_once_with_its_unit_and_label():
    ttft = metrics.METRICS["ttft_s"]
    assert (ttft.stored_unit, ttft.title, ttft.head, ttft.factor) == ("s", "TTFT", "TTFT (ms)", 1e3)
    assert ttft.function is metrics.ttft_s
    assert ttft.meaning == "Time to first token"
    assert "first token" in ttft.formula
    assert metrics.METRICS["mbu"].head == "MBU" and metrics.METRICS["mbu"].source == "MosaicML 2023"
    assert metrics.METRICS["load_s"].function is None and metrics.METRICS["load_s"].formula == ""
    assert metrics.METRICS["perplexity"].stored_unit == ""
    assert metrics.itl_s.__doc__ == f"{metrics.METRICS['itl_s'].meaning}: {metrics.METRICS['itl_s'].formula}."
    with pytest.raises(ValueError, match="ttft_s is declared twice"):
        definitions.declare("ttft_s", "again")


@pytest.mark.parametrize(
    "name, unit",
    [
        ("output_tokens_per_s", "tokens/s"),
        ("bandwidth_bytes_per_s", "bytes/s"),
        ("peak_flops_per_s", "FLOP/s"),
        ("goodput_per_s", "1/s"),
        ("output_tokens", "tokens"),
        ("weight_bytes", "bytes"),
        ("e2e_s", "s"),
        ("gpu_energy_j", "J"),
        ("experiment", ""),
    ],
)
def test_the_unit_is_the_suffix(name, unit):
    assert metrics.unit_of(name) == unit


def test_readers_see_milliseconds_megabytes_and_percent():
    """A stored figure times `factor` is in the unit that is shown."""
    factors = {"ms": 1e3, "MB": 1e-6, "%": 100, "s": 1, "J": 1, "": 1}
    for name, known in metrics.METRICS.items():
        assert known.factor == factors.get(known.unit, known.factor), name
        assert known.name == name
    shown = {name: (known.title, known.unit) for name, known in metrics.METRICS.items()}
    assert shown["itl_p90_s"] == ("ITL p90", "ms") and shown["tpot_p50_s"] == ("TPOT p50", "ms")
    assert shown["e2e_p99_s"] == ("E2E p99", "ms") and shown["itl_max_s"] == ("ITL max", "ms")


def test_kv_bytes_are_grouped_query_aware():
    # Llama-2-70B: 80 layers, 8 KV heads of 128; the published table gives 0.312 GiB for 1,024 tokens in 16 bits.
    assert metrics.kv_cache_bytes(1024, 2 * 80 * 8 * 128, 2) / 2**30 == pytest.approx(0.3125)


def test_mbu_by_hand():
    # 538 MB of weights and 10 MB of KV cache in 20 ms are 27.4 GB/s; of 40 GB/s that is 68.5 %.
    assert metrics.mbu(538e6, 10e6, 0.020, 40e9) == pytest.approx(0.685)


@given(st.lists(st.floats(0.001, 5), min_size=2, max_size=50))
def test_tpot_is_the_mean_of_the_gaps(gaps):
    arrivals = np.cumsum([1.0, *gaps])
    ttft, e2e = arrivals[0], arrivals[-1]
    assert metrics.tpot_s(ttft, e2e, len(arrivals)) == pytest.approx(np.mean(metrics.itl_s(arrivals)))


class Scripted:
    """An engine that hands over the tokens it was told to."""

    def __init__(self, ids, fails=None):
        self.ids, self.fails = ids, fails

    def generate(self, prompts, max_new_tokens, on_token):
        for k, token in enumerate(self.ids):
            for request in range(len(prompts)) if on_token else []:
                on_token(request, token)
            if self.fails == k:
                raise RuntimeError("the device is gone")
        return [self.ids for _ in prompts]


@pytest.mark.parametrize("streaming", [True, False])
def test_another_number_of_tokens_than_asked_is_an_error(streaming):
    for ids in ([7, 8], [7, 8, 9, 10]):
        (row,) = in_process.generate(Scripted(ids), [[1]], 3, streaming)
        assert f"{len(ids)} tokens where 3" in row["error"]


class Timed:
    """An engine whose tokens come at moments of a clock made by hand."""

    speculation = {"drafted_tokens": 5}

    def __init__(self, clock, gaps):
        self.clock, self.gaps, self.collecting = clock, gaps, None

    def generate(self, prompts, max_new_tokens, on_token):
        self.collecting = gc.isenabled()
        for k, gap in enumerate(self.gaps):
            self.clock.now += gap
            for request in range(len(prompts)) if on_token else []:
                on_token(request, 70 + k)
        self.clock.now += 0.5  # after the last token something is tidied up
        return [[70 + k for k in range(len(self.gaps))]] * len(prompts)


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(in_process, "clock", made)
    return made


def test_garbage_is_collected_before_a_request_but_not_where_joules_are_counted(monkeypatch):
    collected = []
    monkeypatch.setattr(in_process.gc, "collect", lambda: collected.append(1))
    for more, count in (({"collect": False}, 0), ({}, 1)):
        in_process.generate(Scripted([7]), [[1]], 1, **more)
        assert len(collected) == count


def test_times_of_a_row_are_those_of_the_clock(clock):
    engine = Timed(clock, [0.25, 0.125, 0.375, 0.25])
    assert gc.isenabled()
    first, second = in_process.generate(engine, [[1], [2]], 4)
    expected = {"sent_s": 100.0, "ttft_s": 0.25, "e2e_s": 1.0, "output_tokens": 4, "itl_p50_s": 0.25}
    expected |= {"itl_p90_s": 0.35, "itl_p99_s": 0.3725, "itl_max_s": 0.375}
    assert {name: first[name] for name in expected} == pytest.approx(expected)
    assert first["output_ids"] == [70, 71, 72, 73] and first["drafted_tokens"] == 5 and second == first
    assert gc.isenabled() and engine.collecting is False, "no collection in the middle of a request"


def test_without_streaming_the_end_is_that_of_the_call(clock):
    (row,) = in_process.generate(Timed(clock, [0.25, 0.25]), [[1]], 2, streaming=False)
    assert row["e2e_s"] == 1.0 and row["sent_s"] == 100.0 and row["output_ids"] == [70, 71]
    assert all(
        math.isnan(row[name]) for name in ("ttft_s", "itl_p50_s", "itl_p90_s", "itl_p99_s", "itl_max_s")
    )
    (one,) = in_process.generate(Timed(clock, [0.25]), [[1]], 1)
    assert one["ttft_s"] == one["e2e_s"] == 0.25 and math.isnan(one["itl_max_s"])


def test_rows_of_a_failed_batch_say_when_and_why(clock):
    assert (
        in_process.failed([[1], [2]], " no room \n", 7.0)
        == [{"sent_s": 7.0, "output_ids": [], "output_tokens": 0, "error": "no room"}] * 2
    )
    (row,) = in_process.failed([[1]], " ")
    assert row["sent_s"] == 100.0 and row["error"] == "no reason given"
    clock.now = 200.0

    class Late:
        def generate(self, prompts, max_new_tokens, on_token):
            clock.now += 9
            raise RuntimeError("the device is gone")

    first, second = in_process.generate(Late(), [[1], [2]], 1)
    assert first == second and first["sent_s"] == 200.0 and "ttft_s" not in first and gc.isenabled()
    (short,) = in_process.generate(Scripted([7]), [[1]], 2)
    assert short["sent_s"] == 209.0 and short["output_ids"] == []


def test_an_engine_is_asked_for_what_was_asked():
    class Asked(Scripted):
        def generate(self, prompts, max_new_tokens, on_token):
            self.prompts, self.tokens, self.listened = prompts, max_new_tokens, on_token is not None
            return super().generate(prompts, max_new_tokens, on_token)

    engine = Asked([np.int64(7), np.int64(8)])
    (row,) = in_process.generate(engine, [[1, 2]], 2)
    assert (engine.prompts, engine.tokens, engine.listened) == ([[1, 2]], 2, True)
    assert [type(token) for token in row["output_ids"]] == [int, int], "NumPy's numbers are no JSON"
    in_process.generate(engine, [[1]], 2, False)
    assert engine.listened is False
