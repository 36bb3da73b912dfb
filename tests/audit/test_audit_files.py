"""Files as people publish them, cut to the rows that matter: what is true of each (`files/README.md`), and the
same kinds of fault with other inputs."""

import numpy as np
import pandas as pd
import pytest

import llm_measured.audit
from bench.paths import ROOT
from llm_measured.audit import importers, report
from llm_measured.audit.checks.finding import ALARMS, CONTRADICTION, IMPOSSIBLE, UNCOUNTED
from llm_measured.audit.importers import numerals

FILES = ROOT / "tests" / "audit" / "files"


def alarms(file, **facts):
    """[(kind, check)] of what an audit says that cannot be, without what follows from another finding."""
    found = report.collect([file], **facts)[0]
    return [(f.kind, f.check) for f in found if f.kind in ALARMS and not f.consequence_of]


def sentence(file, check, **facts):
    return next(f.sentence for f in report.collect([file], **facts)[0] if f.check == check)


def table(tmp_path, text, name="table.csv"):
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize(
    "name",
    [
        "s01-two-requests.csv",
        "s02-two-decimals.csv",
        "s03-rounded-mean-median.csv",
        "s04-four-short-figures.csv",
        "s05-asked-osl.csv",
        "s06-german-thousands.csv",
        "s16-deepseek-r1-ollama.csv",
        "s28-llama-server.csv",
        "s30-log-bracket.txt",
        "s37-iso-timestamps.csv",
        "s38-one-run-in-two-files",
    ],
)
def test_a_file_that_is_right_raises_no_alarm(name):
    assert alarms(FILES / name) == []


@pytest.mark.parametrize(
    ("name", "kind", "check", "words"),
    [
        ("s08-ttft-p50-zero.csv", IMPOSSIBLE, "times_backwards", "The median of TTFT is 0"),
        ("s10-ttft-is-e2e.json", CONTRADICTION, "not_streamed", "a TPOT of 0.58 ms is no pace"),
        (
            "s12-rate-vs-time.csv",
            CONTRADICTION,
            "rate_against_times",
            "4.98 tokens/s × 1.809 s = 9.01 tokens, and 222 were generated",
        ),
        ("s14-jetson.csv", IMPOSSIBLE, "times_backwards", "generating took 36,019 s of an answer of 11 s"),
        ("s17-27b.csv", UNCOUNTED, "bandwidth_beyond_device", "At least 4 were at work"),
        ("s18-27b-control.csv", UNCOUNTED, "bandwidth_beyond_device", "At least 4 were at work"),
        ("s19-all-failed.json", CONTRADICTION, "no_result", "all 8 requests failed"),
        (
            "s21-mixed-prompts.csv",
            CONTRADICTION,
            "prompt_counted_as_output",
            "590.1 tokens/s × 236.1 s = 139,328 tokens, and 4 answers of 2,048 are 8,192",
        ),
        ("s26-8xH100.csv", IMPOSSIBLE, "bandwidth_beyond_device", "8 x H100 have"),
        ("s27-8x-H100-control.csv", IMPOSSIBLE, "bandwidth_beyond_device", "8 x H100 have"),
        (
            "s34-itl-per-chunk-no-tpot.json",
            CONTRADICTION,
            "tokens_per_event",
            "in which 292.29 tokens/s are 1.274 tokens",
        ),
        ("s35-clamped-1000.csv", CONTRADICTION, "clamped_figure", "a clock of 1 ms"),
    ],
)
def test_a_mistake_is_named_first_and_in_numbers(name, kind, check, words):
    assert alarms(FILES / name)[0] == (kind, check) and words in sentence(FILES / name, check)


def test_the_two_rates_of_one_line_are_told():
    assert "54.97 tokens/s" in sentence(FILES / "s14-jetson.csv", "same_rate_twice")


def test_what_came_outranks_what_was_asked():
    read = importers.read(FILES / "s05-asked-osl.csv")
    level = read.levels.iloc[0]
    assert np.isclose(level["output_tokens"], 696.94) and level["max_new_tokens"] == 2048
    assert any("697 tokens on average where osl says 2,048" in note for _, note in read.notes)


def test_german_numbers_are_read_and_the_reading_is_said():
    read = importers.read(FILES / "s06-german-thousands.csv")
    first = read.levels.iloc[0]
    assert first[["requests", "duration_s", "output_tokens_per_s"]].tolist() == [1000, 100.667, 1198.89]
    assert np.isclose(first["ttft_p99_s"], 9.91254) and any("decimal mark" in note for _, note in read.notes)


def test_a_prompts_rate_is_not_the_outputs():
    file = FILES / "s20-benchy.md"
    assert alarms(file, gpu="RTX 5090") == []
    levels = importers.read(file).levels
    assert levels["prompt_tokens_per_s"].tolist()[0] == 5856.51 and np.isnan(levels["prompt_tokens_per_s"][1])
    assert np.isclose(1 / levels["tpot_s"][1], 75.13)


def test_a_row_with_a_field_too_many_is_not_read_shifted(capsys):
    assert report.main([str(FILES / "s25-one-field-more.csv")]) == 2
    shown = " ".join(capsys.readouterr().out.split())
    assert "row 1 has 16 fields and the header 15 names" in shown and "nothing impossible" not in shown


def test_llama_servers_timings_are_read():
    level = importers.read(FILES / "s28-llama-server.csv").levels.iloc[0]
    assert level[["prompt_tokens", "output_tokens", "prefill_s"]].tolist() == [84, 256, 0.65264]
    assert np.isclose(1 / level["tpot_s"], 11.9693)


def test_a_log_that_begins_with_a_bracket_is_no_damaged_json():
    level = importers.read(FILES / "s30-log-bracket.txt").levels.iloc[0]
    assert level["output_tokens_per_s"] == 14389.7989 and level["tool"] == "trtllm-bench"


def test_moments_are_moments():
    read = importers.read(FILES / "s37-iso-timestamps.csv")
    assert np.allclose(np.diff(read.requests["sent_s"]), 60)


def test_one_run_in_two_files_is_said_once():
    findings, *_ = report.collect([FILES / "s38-one-run-in-two-files"])
    assert ["It counts once" in f.sentence for f in findings if f.check == "same_run_twice"] == [True]


# --- the same kinds with other inputs ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1.198,89", "1.000", "403,316"], [1198.89, 1000, 403.316]),
        (["1'198.89", "12.5"], [1198.89, 12.5]),
        (["1 198,89", "0,5"], [1198.89, 0.5]),
        (["1,00,000", "12,34,567.5"], [100000, 1234567.5]),
        (["1,276", "12.5"], [1276, 12.5]),
        (["403,316", "12,5"], [403.316, 12.5]),
        (["5.7–11.4", "5.7-11.4", "2025-08-27", "8B", "2 x 3", "<5", "3/4"], [np.nan] * 7),
    ],
)
def test_a_number_is_read_whole_by_its_column_or_not_at_all(texts, expected):
    values = pd.Series(texts)
    decimals, _ = numerals.of_table({"a": values}, comma_file=False)
    assert np.allclose(numerals.numbers(values, decimals["a"], "requests")[0], expected, equal_nan=True)


def test_a_range_is_left_empty_and_named(tmp_path):
    read = importers.read(table(tmp_path, "model,ttft_ms,tokens_per_s\nA,20,5.7–11.4\nB,21,12.0\n"))
    assert np.isnan(read.levels["output_tokens_per_s"][0]) and read.levels["output_tokens_per_s"][1] == 12
    assert any("5.7–11.4" in note for _, note in read.notes)


def test_dates_of_a_minutes_resolution_do_not_overlap(tmp_path):
    rows = "".join(f"2025-08-27 16:{12 + k // 3}:00,1,500,200,{100 + k},15.{k}\n" for k in range(9))
    header = "timestamp,concurrency,prompt_tokens,output_tokens,ttft_ms,e2e_s\n"
    assert alarms(table(tmp_path, header + rows)) == []


def test_percentile_rows_are_one_level(tmp_path):
    rows = "percentile,ttft_ms,e2e_s\np50,20,2.0\np90,30,2.5\np99,40,3.0\n"
    levels = importers.read(table(tmp_path, rows)).levels
    assert len(levels) == 1 and levels[["ttft_p50_s", "ttft_p99_s", "e2e_p90_s"]].iloc[0].tolist() == [
        0.02,
        0.04,
        2.5,
    ]


def test_rows_of_a_warm_up_are_left_out(tmp_path):
    rows = "phase,concurrency,ttft_ms,tpot_ms\nwarmup,1,900,8\nmeasure,1,20,8\nmeasure,2,21,9\n"
    read = importers.read(table(tmp_path, rows))
    assert read.levels["ttft_s"].tolist() == [0.02, 0.021] and any(
        "warm-up" in note for _, note in read.notes
    )


def test_means_of_categories_are_levels(tmp_path):
    rows = "model,category,ttft_ms,tokens_per_s\n" + "".join(
        f"llama3:8b,{name},{90 + k},{40 + k}\n"
        for k, name in enumerate(("code", "chat", "math", "poem", "list"))
    )
    read = importers.read(table(tmp_path, rows))
    assert len(read.levels) == 5 and len(read.requests) == 0 and read.levels["name"].tolist()[0] == "code"


def test_a_column_for_each_engine_is_a_level_each(tmp_path):
    text = (
        "# Results\n\nSome words.\n\n| Metric | vLLM | SGLang |\n|---|---|---|\n| Mean TTFT (ms) | 41.2 | 38.9 |\n"
        "| Output throughput (tok/s) | 2,412 | 2,530 |\n"
    )
    levels = importers.read(table(tmp_path, text, "README.md")).levels
    assert levels["option"].tolist() == ["vLLM", "SGLang"] and levels["output_tokens_per_s"].tolist() == [
        2412,
        2530,
    ]


def test_every_table_of_a_page_is_read(tmp_path):
    text = (
        "| Name | Age |\n|---|---|\n| x | 3 |\n\ntext\n\n| model | tok/s |\n|---|---|\n| Llama-3-8B | 41.5 |\n\n"
        "| model | TTFT (ms) |\n|---|---|\n| Llama-3-8B | 120 |\n"
    )
    read = importers.read(table(tmp_path, text, "README.md"))
    assert len(read.levels) == 2 and any(
        "2 of the text's 3 tables were read" in note for _, note in read.notes
    )


def test_a_flag_overrules_the_file(tmp_path):
    file = table(
        tmp_path,
        "gpu,model,dtype,concurrency,output_tokens_per_s\n8xH100 1FP8-meta,llama-3.1-405b,fp8,1,20\n",
    )
    read = llm_measured.audit.read([file], gpu="8x H100 SXM")
    assert read.levels["gpu"].tolist() == ["8x H100 SXM"] and any(
        "8xH100 1FP8-meta" in n for _, n in read.notes
    )


def test_a_failed_level_does_not_hide_the_others(tmp_path):
    rows = "concurrency,completed,failed,ttft_ms,e2e_s\n1,40,0,20,2\n2,0,40,0,0\n"
    file = table(tmp_path, rows)
    assert alarms(file) == [(CONTRADICTION, "no_result")]
    assert "in 1 of 2 levels" in sentence(file, "no_result")


def test_a_first_token_shortly_before_the_last_is_no_stream_either(tmp_path):
    rows = "concurrency,output_tokens,ttft_ms,e2e_ms\n" + "".join(
        f"4,400,{2000 + k},{2003 + k}\n" for k in range(6)
    )
    assert alarms(table(tmp_path, rows))[0] == (CONTRADICTION, "not_streamed")
    short = "concurrency,prompt_tokens,output_tokens,ttft_ms,e2e_ms\n4,90000,10,20000,20100\n"
    assert alarms(table(tmp_path, short)) == []


def test_a_check_that_breaks_off_is_a_sentence_and_the_others_go_on(tmp_path, monkeypatch):
    from dataclasses import replace

    from llm_measured.audit.checks.finding import REGISTRY

    def broken(audited):
        raise ZeroDivisionError("nothing to divide")

    monkeypatch.setitem(REGISTRY, "overload", replace(REGISTRY["overload"], function=broken))
    findings, *_ = report.collect([FILES / "s10-ttft-is-e2e.json"])
    assert "not_streamed" in {f.check for f in findings}
    assert any("broke off (ZeroDivisionError" in f.sentence for f in findings)


def test_a_sum_within_its_printed_digits_adds_up_and_beyond_does_not(tmp_path):
    assert alarms(table(tmp_path, "requests,duration_s,requests_per_s\n12,78.11,0.2\n")) == []
    wrong = "requests,duration_s,requests_per_s\n12,78.11,0.203\n"
    assert alarms(table(tmp_path, wrong)) == [(CONTRADICTION, "plain_sums")]
