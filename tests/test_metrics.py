"""Formulas against time stamps made by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import metrics
from bench.instrument import in_process


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


def test_a_row_holds_what_arrived():
    first, second = in_process.generate(Scripted([7, 8, 9]), [[1], [2]], 3)
    assert first["output_ids"] == second["output_ids"] == [7, 8, 9]
    assert first["output_tokens"] == 3 and first["error"] == ""
    assert 0 < first["ttft_s"] <= first["e2e_s"]


def test_a_failed_request_is_a_row_with_its_error():
    (row,) = in_process.generate(Scripted([7, 8, 9], fails=1), [[1]], 3)
    assert row["error"] == "RuntimeError: the device is gone" and row["output_tokens"] == 0


@pytest.mark.parametrize("streaming", [True, False])
def test_another_number_of_tokens_than_asked_is_an_error(streaming):
    (row,) = in_process.generate(Scripted([7, 8]), [[1]], 3, streaming)
    assert "2 tokens where 3" in row["error"]


def test_without_streaming_there_is_no_ttft():
    silent = Scripted([7, 8, 9])
    silent.streams = False
    (row,) = in_process.generate(silent, [[1]], 3)
    assert math.isnan(row["ttft_s"]) and row["e2e_s"] > 0 and row["error"] == ""
