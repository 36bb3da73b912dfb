"""Every check: a clean file passes, and the same file with the mistake put in fails with that finding
first."""

import numpy as np
import published
import pytest

import llm_measured.audit
from llm_measured.audit import checks
from llm_measured.audit.checks.finding import CONTRADICTION, IMPOSSIBLE

pytestmark = pytest.mark.early

ALARMS = IMPOSSIBLE, CONTRADICTION


def alarms(findings):
    return [f.check for f in findings if f.kind in ALARMS]


def test_the_older_layout_clean_and_with_each_of_its_mistakes(tmp_path):
    assert alarms(llm_measured.audit.audit([published.clean(tmp_path / "clean.csv")])) == []
    prompt = llm_measured.audit.audit([published.prompt_in_count(tmp_path / "prompt.csv")])
    assert alarms(prompt) == ["prompt_in_answers"]
    before, after = (
        prompt[0].undone["published_tokens_per_s"],
        prompt[0].undone["without_prompt_tokens_per_s"],
    )
    assert before > 25 and np.isclose(after, 1 / published.PACE_S, rtol=0.02)
    cached = llm_measured.audit.audit([published.cached(tmp_path / "cached.csv")])
    assert alarms(cached) == ["cached_answer_in_mean"] and np.isclose(
        cached[0].undone["tokens_per_s"], 24, rtol=0.02
    )


def test_a_four_bit_file_as_the_unquantised_baseline(tmp_path):
    quantised = published.clean(tmp_path / "bench-nf4.csv", "nf4 4bit quantization bitsandbytes")
    baseline = published.clean(tmp_path / "bench.csv", "")
    found = llm_measured.audit.audit([quantised, baseline])
    assert alarms(found) == ["same_run_twice"] and "4-bit" in found[0].sentence
    slower = published.clean(tmp_path / "slower.csv", "", pace=0.05)
    assert alarms(llm_measured.audit.audit([quantised, slower])) == []


@pytest.mark.parametrize(
    ("weights", "rate", "percent"),
    [("float32", 104.1, "135%"), ("float16", 191.0, "124%"), ("int8", 316.8, "103%")],
)
def test_published_rates_beyond_the_bandwidth_of_an_a100(tmp_path, weights, rate, percent):
    file = tmp_path / "table.csv"
    file.write_text(
        f"model,gpu,tp,weights,batch_size,output_tokens_per_s\nLlama-2-7B,A100-80GB,1,{weights},1,{rate}\n"
    )
    first = llm_measured.audit.audit([file])[0]
    assert (first.check, first.kind) == ("bandwidth_beyond_device", IMPOSSIBLE) and percent in first.sentence
    assert first.undone["most_tokens_per_s"] < rate
    file.write_text(
        file.read_text().replace("batch_size", "requests at once").replace(f"{weights},1,", f"{weights},,")
    )
    assert "as the file does not say" in llm_measured.audit.audit([file])[0].sentence


def test_a_ttft_that_no_device_can_compute_is_a_prefix_cache_hit(tmp_path):
    file = tmp_path / "table.csv"
    file.write_text(
        "model,gpu,tp,weights,concurrency,prompt_tokens,output_tokens,ttft_ms,tpot_ms\nLlama-3-8B,H100 "
        "SXM,1,bf16,1,8000,100,20,8\n"
    )
    found = llm_measured.audit.audit([file])
    alarms = [(f.check, f.kind) for f in found if f.kind in ALARMS]
    assert alarms == [("prefix_cache", CONTRADICTION)]


def test_a_late_client_and_more_under_way_than_it_allows(tmp_path):
    file = tmp_path / "table.csv"
    file.write_text("concurrency,requests_per_s,output_tokens,ttft_ms,tpot_ms,e2e_s\n8,2,100,6000,20,8\n")
    first = llm_measured.audit.audit([file])[0]
    assert first.check == "littles_law" and not first.undone, "Little's law alone has no cause"
    file.write_text("request_rate,requests_per_s,output_tokens,ttft_ms,tpot_ms,late_s\n8,8,100,60,20,0.5\n")
    assert llm_measured.audit.audit([file])[0].check == "client_late"
    file.write_text("concurrency,requests_per_s,output_tokens,ttft_ms,tpot_ms,e2e_s\n8,2,100,1000,20,3\n")
    assert alarms(llm_measured.audit.audit([file])) == []


def test_speculative_decoding_beats_no_peak(tmp_path):
    file = tmp_path / "table.csv"
    text = "model,gpu,tp,weights,batch_size,output_tokens_per_s,option\nLlama-2-7B,A100-80GB,1,float16,1,250,{}\n"
    file.write_text(text.format("eagle draft"))
    assert alarms(llm_measured.audit.audit([file])) == []
    file.write_text(text.format("plain"))
    assert alarms(llm_measured.audit.audit([file])) == ["bandwidth_beyond_device"]


@pytest.mark.parametrize(("requests", "found"), [(298, True), (299, False)])
def test_a_p99_needs_as_many_requests_as_bound_it(tmp_path, requests, found):
    file = tmp_path / "table.csv"
    file.write_text(f"requests,ttft_p99_ms\n{requests},30\n")
    assert ("percentile_from_too_few" in [f.check for f in llm_measured.audit.audit([file])]) is found


@pytest.mark.parametrize(
    ("text", "check"),
    [
        ("ttft_p50_ms,ttft_p99_ms\n30,20\n", "percentiles_out_of_order"),
        ("ttft_ms,e2e_s,answer\n30,0.02,a\n30,0.5,b\n", "times_backwards"),
        ("batch_size,output_tokens,output_tokens_per_s,e2e_s\n4,100,100,1\n", "rate_of_other_scope"),
        ("batch_size,output_tokens,output_tokens_per_s,e2e_s\n4,100,180,1\n", "rate_against_times"),
        ("concurrency,requests_per_s,e2e_mean_s\n64,4,3\n", "fewer_in_flight"),
        ("request_rate,requests_per_s,ttft_ms\n10,5,100\n", "overload"),
    ],
)
def test_each_other_check_has_a_file_that_fails_it(tmp_path, text, check):
    file = tmp_path / "table.csv"
    file.write_text(text)
    assert check in [f.check for f in llm_measured.audit.audit([file])]


def test_facts_fill_what_no_file_states(tmp_path):
    file = tmp_path / "table.csv"
    file.write_text("batch_size,output_tokens_per_s\n1,191\n")
    assert alarms(llm_measured.audit.audit([file])) == []
    assert alarms(
        llm_measured.audit.audit([file], model="Llama-2-7B", gpu="1x A100-80GB", weights="float16")
    ) == ["bandwidth_beyond_device"]
    with pytest.raises(ValueError, match="colour is no column"):
        llm_measured.audit.audit([file], colour="red")


def test_every_check_has_a_statement_a_formula_and_a_source():
    table = checks.table()
    assert (table[["statement", "formula", "source"]].map(len) > 3).all(axis=None) and table["name"].is_unique
    assert set(checks.ORDER) <= set(table["name"])
    named = {name for names in table["explains"] for name in names}
    assert named <= set(table["name"])
