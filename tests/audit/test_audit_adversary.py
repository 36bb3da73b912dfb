"""Files as real tools and people write them, made by small generators that are not the proof's: what was
missed or wrongly accused there."""

import json

import numpy as np
import pytest

import llm_measured.audit
from llm_measured.audit.checks.finding import CONTRADICTION, IMPOSSIBLE


def alarms(*files, **facts):
    return [
        f.check for f in llm_measured.audit.audit(files, **facts) if f.kind in (IMPOSSIBLE, CONTRADICTION)
    ]


def saved(tmp_path, name, content):
    file = tmp_path / name
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return file


def llmperf(middle):
    """A summary of LLMPerf, whose time stamp is no request's."""
    return {
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "num_concurrent_requests": 8,
        "mean_input_tokens": 250,
        "mean_output_tokens": 150,
        "results_ttft_s_mean": 0.0248,
        "results_ttft_s_quantiles_p50": 0.0201,
        "results_ttft_s_quantiles_p99": 0.111,
        "results_end_to_end_latency_s_mean": 1.648315,
        "results_end_to_end_latency_s_quantiles_p50": middle,
        "results_end_to_end_latency_s_quantiles_p99": 4.1245,
        "results_mean_output_throughput_token_per_s": 682.72,
        "results_num_completed_requests": 100,
        "results_number_errors": 0,
        "timestamp": 1700000000,
    }


def test_a_summary_with_a_time_stamp_is_no_request(tmp_path):
    file = saved(tmp_path, "llmperf.json", llmperf(1.5921))
    read = llm_measured.audit.read([file])
    assert read.requests.empty and read.levels["output_tokens_per_s"].tolist() == [682.72]
    assert alarms(file) == []


def test_a_latency_of_minutes_without_a_unit_is_not_read_as_microseconds(tmp_path):
    rows = [f"{c},256,150,{c * 2400},{0.9 * c * 150 / 2.4:.1f},40" for c in (32, 64)]
    head = "batch_size,input_tokens,output_tokens,latency,throughput,ttft"
    read = llm_measured.audit.read([saved(tmp_path, "table.csv", "\n".join([head, *rows]))])
    assert np.allclose(read.levels["e2e_s"], [76.8, 153.6])


def test_the_decimal_mark_is_one_for_a_whole_table(tmp_path):
    text = "users;OSL;ITL;tok/s/GPU;req/s\n16;20;12.25 ms;{};64.42\n32;20;14.5 ms;1,288;64.40\n"
    found = llm_measured.audit.read([saved(tmp_path, "points.csv", text.format("1,287"))])
    assert found.levels["output_tokens_per_s_per_device"].tolist() == [1287, 1288]
    text = "users;OSL;ITL (ms);tok/s;req/s\n16;20;12,25;1.287,4;64,42\n"
    found = llm_measured.audit.read([saved(tmp_path, "commas.csv", text)]).levels.iloc[0]
    assert (found["itl_s"], found["requests_per_s"]) == (0.01225, 64.42)


def test_of_a_throughput_that_may_be_of_many_no_format_is_told(tmp_path):
    text = "Accelerator,# of Accelerators,Model MLC,Result,Units\nH100 SXM,8,llama2-70b-99,34988.5,Tokens/s\n"
    found = llm_measured.audit.audit([saved(tmp_path, "mlperf.csv", text)])
    assert "bits" not in next(f.sentence for f in found if f.check == "dtype_missing")


def test_llmperfs_gap_is_no_gap(tmp_path):
    """It is e2e over tokens, so that a long wait for the first token is in it."""
    content = llmperf(1.5921) | {"results_inter_token_latency_s_mean": 0.0110, "results_ttft_s_mean": 0.62}
    content |= {"results_ttft_s_quantiles_p50": 0.6, "results_ttft_s_quantiles_p99": 0.9}
    file = saved(tmp_path, "llmperf.json", content)
    read = llm_measured.audit.read([file])
    assert read.levels["itl_mean_s"].isna().all() and any("LLMPerf's inter_token" in n for _, n in read.notes)
    assert alarms(file) == []


def served(**more):
    """A summary of vllm bench serve under an open load, whose short answers were slow: as published of a DGX
    Spark."""
    return {
        "model_id": "Qwen/Qwen3.8-27B",
        "request_rate": 0.3,
        "max_concurrency": None,
        "num_prompts": 200,
        "completed": 200,
        "failed": 0,
        "duration": 1231.565,
        "total_input_tokens": 823212,
        "total_output_tokens": 97092,
        "request_throughput": 0.1624,
        "output_throughput": 78.836,
        "mean_ttft_ms": 86257.9,
        "median_ttft_ms": 87195.2,
        "p99_ttft_ms": 181100.7,
        "mean_tpot_ms": 1290.54,
        "median_tpot_ms": 1271.1,
        "p99_tpot_ms": 2102.4,
        "mean_e2el_ms": 626520.4,
        "median_e2el_ms": 627365.8,
        "p99_e2el_ms": 1057341.8,
    } | more


def test_a_mean_pace_that_a_few_short_answers_lifted_is_no_misfit(tmp_path):
    """As published of a DGX Spark: TPOT of 52 ± 378 ms over answers of 5.3 ± 5.6 s."""
    lengths = {"total_output_tokens": 36540, "completed": 200, "num_prompts": 200, "duration": 800.0}
    lengths |= {"output_throughput": 36540 / 800, "request_throughput": 0.25, "request_rate": 0.25}
    times = {"mean_ttft_ms": 124.5, "mean_tpot_ms": 52.4, "mean_e2el_ms": 5298.9, "median_ttft_ms": 120.0}
    tails = {"p99_tpot_ms": 39.8, "median_tpot_ms": 28.3, "median_e2el_ms": 3102.3, "p99_e2el_ms": 26000.0}
    spread = {"std_tpot_ms": 377.9, "std_e2el_ms": 5647.4}
    file = served(p99_ttft_ms=300.0, **lengths, **times, **tails)
    assert "rate_against_times" not in alarms(saved(tmp_path, "lifted.json", file | spread))
    even = file | {"std_tpot_ms": 5.0, "std_e2el_ms": 500.0}
    assert "rate_against_times" in alarms(saved(tmp_path, "even.json", even))


def test_two_rates_of_three_digits_may_be_equal(tmp_path):
    rows = [{"model": "Llama-3.2-3B", "framework": name, "decode_tps": 19.3} for name in ("coreai", "mlx")]
    more = [{"model": "Qwen3-1.7B", "framework": "coreai", "decode_tps": 64.8}]
    text = "\n".join(map(json.dumps, rows + more))
    assert "same_run_twice" not in alarms(saved(tmp_path, "rates.jsonl", text))


def test_a_rate_that_stands_for_infinity_is_no_offered_rate(tmp_path):
    read = llm_measured.audit.read([saved(tmp_path, "all.json", served(request_rate=1e9))])
    assert read.levels["request_rate"].isna().all() and (read.levels["all_at_once"] == 1).all()


def test_a_model_that_was_published_in_four_bits_reads_them_whatever_it_computes_in(tmp_path):
    """trtllm-bench and vLLM call the activations' bfloat16 the dtype."""
    text = "model,gpu,tp,dtype,concurrency,tpot_ms\n{},H100 SXM,2,bfloat16,1,{}\n"
    assert alarms(saved(tmp_path, "a.csv", text.format("openai/gpt-oss-120b", 1.02))) == []
    assert alarms(saved(tmp_path, "b.csv", text.format("openai/gpt-oss-120b", 0.2))) != []
    assert alarms(saved(tmp_path, "c.csv", text.format("Llama-3.1-8B", 1.02))) != []


@pytest.mark.parametrize("unit", [1.0, 1e3])
def test_short_latencies_of_requests_are_read_by_their_own_rates(tmp_path, unit):
    lines = [
        f"{k},{20 + k},{unit * 0.0081:.4f},{unit * 0.0065 * (20 + k):.4f},{1 / 0.0065:.2f}" for k in range(12)
    ]
    file = saved(
        tmp_path, "r.csv", "\n".join(["request_id,output_tokens,ttft,latency,tokens_per_second", *lines])
    )
    assert np.allclose(llm_measured.audit.read([file]).requests["e2e_s"], 0.0065 * (20 + np.arange(12)))
    assert alarms(file) == []


def test_a_rate_while_decoding_is_read_as_one_and_not_as_a_queue(tmp_path):
    """As published of four RTX 3090: tokens/s of one request after its first token, beside a long prefill."""
    text = "engine,concurrency,prompt_tokens,output_tokens,ttft_ms,tpot_ms,output_tok_s\nvllm,1,{},256,{},52.02,{}\n"
    file = saved(tmp_path, "decode.csv", text.format(32768, 38400, 19.22))
    assert alarms(file) == [] and any(
        "after the first token" in n for _, n in llm_measured.audit.read([file]).notes
    )
    # Beside a short prefill both are the same, and a rate that fits neither stays what it is.
    assert alarms(saved(tmp_path, "other.csv", text.format(32768, 38400, 60.0))) != []
