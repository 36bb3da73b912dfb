"""Each check finds what was planted, by arithmetic alone, and leaves a sound row."""

import pandas as pd
import pytest

from llm_measured.audit import checks as audit
from llm_measured.published import build, checks, names, schema

# A sound row: one Llama-2-7B in 16 bits on an H100 SXM, 64 requests in flight.
SOUND = {
    "source": "made-up",
    "source_file": "a.csv",
    "accelerator_raw": "NVIDIA H100-SXM-80GB",
    "accelerators": 1,
    "engine": "x",
    "checkpoint_raw": "Llama-2-7b",
    "weights_format": "fp16",
    "workload": "closed_loop",
    "concurrency": 64,
    "input_tokens": 128,
    "output_tokens": 129,
    "lengths": "exact",
    "throughput_raw": 4000.0,
    "throughput_counts": "output",
    "throughput_scope": "all",
    "ttft_mean_ms": 100.0,
    "tpot_mean_ms": 15.34,
    "e2e_mean_ms": 2063.5,
}
SINGLE = {
    "workload": "single",
    "concurrency": 1,
    "ttft_mean_ms": None,
    "tpot_mean_ms": None,
    "e2e_mean_ms": None,
}

BATCH = {"workload": "static_batch", "batch": 64, "latency_raw_s": 2.0}
BATCH |= {"ttft_mean_ms": None, "tpot_mean_ms": None, "e2e_mean_ms": None}


# What several findings had flagged, and is no fault of a row.
NO_FAULT = [
    ("spread_as_large", {"spread": 3000.0, "spread_kind": "sd"}),  # over users, not over runs
    ("tokens_per_event", {"itl_mean_ms": 40.0, "speculative": "MTP"}),  # a gap has a round's tokens
    ("tokens_per_event", {"itl_mean_ms": 3.0}),  # few long waits, while others' prompts are read
    ("rate_against_times", {"lengths": "mean", "throughput_raw": 4000.0, "latency_raw_s": 2.63}),
    (
        "weights_beyond_memory",
        {"accelerator_raw": "RTX 3060 12GB", "offload": "exps=CPU"},
    ),  # the source says so
    ("weights_beyond_memory", {"accelerator_raw": "RTX 3060 12GB", "host_weights_bytes": 2e9}),
    (  # 10 tokens, as TTFT says: mostly the start
        "prompt_slower_than_answer",
        SINGLE
        | {"throughput_raw": 100.0, "prompt_tokens_per_s": 20.0, "ttft_mean_ms": 500.0, "input_tokens": None},
    ),
    (  # steps take longer with what is in the cache: their median is above their mean
        "rate_against_times",
        BATCH | {"latency_raw_s": None, "ttft_p50_ms": 80.0, "tpot_p50_ms": 18.6},
    ),
    (  # a GGUF file keeps what the maker published, whatever the rest of it is in
        "file_smaller_than_format",
        {"checkpoint_raw": "gpt-oss-20b", "weights_format": "F16", "engine": "llama.cpp"}
        | {"weights_bytes": 13.8e9},
    ),
]


def frame(*rows):
    whole = [{"row_id": f"made-up:{n}", **SOUND, **row} for n, row in enumerate(rows)]
    return names.looked_up(build.typed(pd.DataFrame(whole)))


def found(*rows):
    """{(row, check): verdict}"""
    every = checks.findings(frame(*rows))
    return {(f.row, f.check): f.verdict for f in every.itertuples()}


def test_a_sound_row_has_no_finding():
    assert found({}) == {}
    assert checks.judged(frame({}))["audit"].to_list() == ["ok"]


PLANTED = [
    ("bandwidth_beyond_device", "excluded", SINGLE | {"throughput_raw": 300.0}),
    (
        "bandwidth_beyond_device",
        "excluded",
        SINGLE | {"accelerator_raw": "A100-80GB", "throughput_raw": 190.0},
    ),
    ("compute_beyond_device", "excluded", SINGLE | {"throughput_raw": 100.0, "prompt_tokens_per_s": 200_000}),
    ("impossible_time", "excluded", {"tpot_mean_ms": 0.0153}),
    ("impossible_time", "excluded", SINGLE | {"throughput_raw": 0.0}),
    ("power_above_tdp", "excluded", {"power_w": 358_000, "power_scope": "accelerators"}),
    ("power_above_tdp", "flagged", {"power_w": 900, "power_scope": "accelerators"}),
    (
        "power_of_another_window",
        "flagged",
        SINGLE | {"throughput_raw": 50.0, "runs": 5, "duration_s": 600, "power_w": 23.0},
    ),
    # A part without a datasheet's peak is held against the fastest of its kind.
    (
        "compute_beyond_device",
        "excluded",
        SINGLE
        | {"accelerator_raw": "Apple M3 Max", "weights_format": "4bit", "throughput_raw": 40.0}
        | {"prompt_tokens_per_s": 2_898_938.0},
    ),
    # Of a batch of 64: the rate counts the prompts, is of one sequence, or nobody knows what.
    ("rate_against_times", "excluded", BATCH | {"throughput_raw": 8000.0}),
    ("rate_against_times", "excluded", BATCH | {"throughput_raw": 64.5}),
    ("rate_against_times", "flagged", BATCH | {"throughput_raw": 5000.0}),
    ("littles_law", "excluded", {"throughput_raw": 32_000.0}),
    ("littles_law", "excluded", {"throughput_raw": 100.0}),
    ("littles_law", "flagged", {"throughput_raw": 4800.0}),
    ("rate_against_times", "flagged", {"e2e_mean_ms": 1860.0}),
    ("tokens_per_event", "note", {"itl_mean_ms": 153.4}),
    ("tokens_per_event", "note", {"itl_mean_ms": 0.004}),
    (
        "energy_against_power",
        "flagged",
        {"power_w": 600, "power_scope": "accelerators", "energy_j_per_output_token": 1.5},
    ),
    (
        "energy_against_power",
        "note",
        {"power_w": 600, "power_scope": "accelerators", "energy_j_per_output_token": 0.15},
    ),
    ("plain_sums", "flagged", {"lengths": "mean", "requests": 1000, "duration_s": 100}),
    # 4000 tokens/s where 1000 answers of 129 tokens in 64 s are 2016, and with the prompts 4016.
    ("plain_sums", "excluded", {"requests": 1000, "duration_s": 64}),
    ("plain_sums", "flagged", {"requests": 1000, "duration_s": 65}),  # near it, and sums are exact
    ("tokens_per_event", "note", {"itl_mean_ms": 153.4, "tpot_mean_ms": None}),
    ("percentiles_out_of_order", "excluded", {"ttft_p50_ms": 90.0, "ttft_p99_ms": 9.0}),
    ("times_backwards", "excluded", {"ttft_mean_ms": 2_200.0, "tpot_mean_ms": None}),
    (  # a prompt that was found in a cache
        "ttft_beyond_device",
        "flagged",
        {
            "lengths": "mean",
            "input_tokens": 4096,
            "ttft_mean_ms": 3.0,
            "e2e_mean_ms": None,
            "throughput_raw": None,
        },
    ),
    (
        "plain_sums",
        "flagged",
        {
            "lengths": "mean",
            "requests": 900,
            "failed": 100,
            "duration_s": 900 * 129 / 3600,
            "throughput_raw": 4000,
        },
    ),
    ("first_token_without_a_step", "flagged", {"ttft_mean_ms": 0.1, "e2e_mean_ms": None}),
    ("date_of_no_measurement", "flagged", {"measured_on": "2031-07", "retrieved": "2026-11-23"}),
    ("date_of_no_measurement", "flagged", {"measured_on": "1970-01-01"}),
    ("rate_against_times", "flagged", {"lengths": None, "e2e_mean_ms": 20.6}),
    (
        "compute_beyond_device",
        "excluded",
        {"workload": "offline", "concurrency": None, "lengths": "max", "throughput_raw": 400_000.0}
        | {"ttft_mean_ms": None, "tpot_mean_ms": None, "e2e_mean_ms": None},
    ),
    ("prompt_slower_than_answer", "flagged", SINGLE | {"throughput_raw": 100.0, "prompt_tokens_per_s": 20.0}),
    ("file_smaller_than_format", "note", {"weights_bytes": 4e9}),
    ("weights_beyond_memory", "flagged", {"accelerator_raw": "RTX 3060 12GB"}),
    ("weights_beyond_memory", "flagged", {"weights_bytes": 90e9}),
    ("best_of_several", "note", {"statistic": "best"}),
    ("spread_as_large", "flagged", SINGLE | {"throughput_raw": 90.0, "spread": 80.0, "spread_kind": "sd"}),
    (  # a prompt that was found in a cache, on a chip whose maker states no arithmetic
        "compute_beyond_device",
        "flagged",
        SINGLE
        | {"accelerator_raw": "Apple M3 Max", "checkpoint_raw": "Llama-3.1-8B", "weights_format": "Q4_K_M"}
        | {"throughput_raw": 50.0, "prompt_tokens_per_s": 20_000.0},
    ),
    ("stated_by_importer", "flagged", {"caveat": "typed over by hand"}),
]


@pytest.mark.parametrize(
    "check, verdict, columns", PLANTED, ids=[f"{p[0]}-{n}" for n, p in enumerate(PLANTED)]
)
def test_a_planted_case_is_found(check, verdict, columns):
    assert found(columns)[0, check] == verdict


def test_a_check_that_finds_nothing_in_the_committed_rows_finds_alone_what_is_planted():
    """What another check finds as well needs no check of its own."""
    silent = {one.name for one in checks.CHECKS} - set(checks.committed()[1]["check"]) - {"own_figures"}
    for check, _, columns in PLANTED:
        if check in silent:
            assert {name for _, name in found(columns)} == {check}
            silent.discard(check)
    # These look at many rows of a file: their tests below plant a file each.
    assert silent <= {"median_adds_up_as_a_mean", "copied_from_another_source"}


@pytest.mark.parametrize("check, columns", NO_FAULT, ids=[name for name, _ in NO_FAULT])
def test_what_is_no_fault_is_not_flagged(check, columns):
    assert found(columns).get((0, check)) in (None, "note")


def test_what_a_sound_row_may_show_leaves_it_sound():
    """Gaps shorter than a step, one rate at two loads, medians that do not add up, power of the same time."""
    medians = {"ttft_p50_ms": 80.0, "tpot_p50_ms": 11.8, "e2e_p50_ms": 2063.5}
    rows = frame(
        {"in_flight_mean": 64, "itl_p50_ms": 8.0},
        medians | {"ttft_mean_ms": None, "tpot_mean_ms": None, "e2e_mean_ms": None},
        SINGLE | {"throughput_raw": 50.0, "runs": 5, "duration_s": 13.0, "power_w": 300.0, "source": "other"},
        SINGLE
        | {"accelerator_raw": "Apple M3 Max", "weights_format": "4bit", "throughput_raw": 40.0}
        | {"prompt_tokens_per_s": 2_898_938.0, "prefix_cached": "yes"},
    )
    judged = checks.judged(rows)
    assert judged["audit"].to_list() == ["ok"] * 4, judged["audit_notes"].to_list()


def test_a_name_of_several_variants_is_held_against_the_fastest_and_has_no_mbu():
    rows = frame(SINGLE | {"accelerator_raw": "A100-80GB", "throughput_raw": 100.0})
    assert rows["accelerator"].to_list() == [schema.UNKNOWN_VARIANT]
    derived = checks.context(rows).derived
    assert derived["mbu"].isna().all() and 0.5 < derived["mbu_at_least"].iloc[0] < 0.7


def test_the_same_numbers_are_found_across_sources_and_statistics():
    times = {
        "ttft_mean_ms": 205.55675,
        "tpot_mean_ms": 17.789099,
        "e2e_mean_ms": None,
        "throughput_raw": None,
    }
    as_median = {
        "source": "other",
        "ttft_mean_ms": None,
        "tpot_mean_ms": None,
        "e2e_mean_ms": None,
        "throughput_raw": None,
        "ttft_p50_ms": 205.55675,
        "tpot_p50_ms": 17.789099,
    }
    judged = checks.judged(frame(times, as_median, {}))
    assert judged["duplicate_of"].notna().sum() == 1
    assert judged["audit_notes"].str.contains("mean there p50|p50 there mean", regex=True).sum() == 1


def test_a_rate_that_counts_the_prompt_is_called_that():
    notes = checks.findings(frame({"throughput_raw": 8000.0 * 128.5 / 129})).set_index("check")["note"]
    assert "counts the prompt" in notes["littles_law"]
    assert "counts" not in checks.findings(frame({"throughput_raw": 32_000.0}))["note"].iloc[0]


def curve(off=0.0, **columns):
    """Levels of a curve whose times add up as means do, or are `off` as medians are."""
    rows = []
    for n in (2, 4, 8, 16, 32, 64):
        ttft, tpot = 40 + 3.1 * n, 9 + 0.1 * n
        whole = ttft + 128 * tpot
        times = {"ttft_mean_ms": None, "tpot_mean_ms": None, "e2e_mean_ms": None}
        times |= {"ttft_p50_ms": ttft * (1 - off), "tpot_p50_ms": tpot * (1 - off / 3)}
        rows.append(times | {"concurrency": n, "throughput_raw": 1000 * n * 129 / whole, **columns})
    return rows


def test_means_that_are_called_medians_add_up_too_well():
    hits = [row for row, check in found(*curve()) if check == "median_adds_up_as_a_mean"]
    assert hits == [0, 1, 2, 3, 4, 5]
    assert not [c for _, c in found(*curve(off=0.03)) if c == "median_adds_up_as_a_mean"]


def test_runs_copied_from_another_source_are_found_on_the_copy_however_they_are_named():
    rates = (71.2, 84.6, 93.1, 104.0, 118.5, 127.3)
    first = [SINGLE | {"throughput_raw": rate, "prompt_tokens_per_s": 2000.0} for rate in rates]
    copy = [
        SINGLE
        | {"source": "copier", "accelerator_raw": "H100 SXM5 80GB", "engine": "y", "throughput_raw": rate}
        for rate in rates
    ]
    hits = [row for row, check in found(*first, *copy) if check == "copied_from_another_source"]
    assert hits == [6, 7, 8, 9, 10, 11]
    other = [row | {"throughput_raw": row["throughput_raw"] * 1.013} for row in copy]
    assert not [c for _, c in found(*first, *other) if c == "copied_from_another_source"]


def test_a_first_level_that_was_not_warm_is_found():
    level = {"ttft_mean_ms": None, "tpot_mean_ms": None, "e2e_mean_ms": None}
    alone = level | {"workload": "single", "concurrency": 1, "throughput_raw": 32.3}
    assert (0, "slower_alone") in found(alone, level | {"concurrency": 5, "throughput_raw": 199.0})
    assert (0, "slower_alone") not in found(alone, level | {"concurrency": 5, "throughput_raw": 150.0})


def test_one_rate_for_two_settings_and_a_run_far_from_its_group_are_found():
    one = SINGLE | {"throughput_raw": 13.48, "weights_format": "4-bit"}
    both = found(one | {"accelerators": 2}, one | {"accelerators": 4})
    assert [both[row, "one_number_for_several"] for row in (0, 1)] == ["note", "note"]
    group = [
        SINGLE | {"lengths": "mixed", "input_tokens": None, "throughput_raw": v} for v in (60, 61, 62, 10)
    ]
    assert [row for row, check in found(*group) if check == "far_from_group"] == [3]


def test_runs_of_other_settings_are_no_group():
    # One file's rates by length, of which the importer knows no more than its name.
    rates = {128: 61.3, 512: 59.3, 2048: 54.0, 16384: 12.3}
    group = [
        SINGLE | {"lengths": None, "input_tokens": None, "throughput_raw": rate, "flags": f"prompt_size={n}"}
        for n, rate in rates.items()
    ]
    assert "far_from_group" not in {check for _, check in found(*group)}
    drafted = [SINGLE | {"lengths": None, "throughput_raw": v} for v in (20, 21, 20.5)]
    faster = SINGLE | {"lengths": None, "throughput_raw": 70, "speculative": "MTP"}
    assert "far_from_group" not in {check for _, check in found(*drafted, faster)}


def test_one_thousand_tokens_at_the_top_of_a_file_in_three_settings_is_a_clocks_limit():
    alone = SINGLE | {"accelerator_raw": "x", "checkpoint_raw": "SmolLM2-360M", "throughput_raw": 1000.0}
    capped = [alone | {"weights_format": form} for form in ("Q8_0", "Q6_K", "Q4_K_M")]
    check = "rate_at_clock_limit"
    assert [found(*capped)[n, check] for n in range(3)] == ["excluded"] * 3
    assert (0, check) not in found(*capped[:2])  # of two settings it may be chance
    assert (0, check) not in found(*capped, alone | {"throughput_raw": 1200.5})


def test_a_rate_that_counts_the_prompt_is_corrected_when_read():
    rows = frame({"throughput_counts": "input+output", "input_tokens": 387, "throughput_raw": 4000.0})
    assert checks.context(rows).derived["output_tokens_per_s"].iloc[0] == pytest.approx(1000.0)
    drawn = frame({"lengths": "max_of_uniform_0.8"})
    assert checks.context(drawn).made.iloc[0] == pytest.approx(0.9 * 129)


def test_a_record_that_stands_twice_in_its_file_is_a_duplicate_however_few_its_digits():
    rows = frame(
        SINGLE | {"row_id": "made-up:abc", "throughput_raw": 40}, SINGLE | {"row_id": "made-up:abc-2"}
    )
    judged = checks.judged(rows)
    assert judged["duplicate_of"].to_list() == [None, "made-up:abc"]


def test_every_check_shared_with_the_audit_is_planted_and_is_no_gap():
    """One vocabulary: what both packages look for has one name, and the name means one thing."""
    shared = {check for check, _, _ in PLANTED} & set(audit.REGISTRY)
    assert len(shared) >= 8 and {one.name for one in checks.CHECKS} & set(audit.REGISTRY) <= shared
    assert all(audit.REGISTRY[name].kind != "cannot be told" for name in shared)


def test_findings_of_the_committed_rows_are_read_and_of_changed_ones_computed(monkeypatch):
    kept = checks.committed()
    monkeypatch.setattr(checks, "found", lambda rows: "computed")
    assert checks.findings(build.rows().assign(in_flight=1.0)).equals(kept[1])
    assert isinstance(checks.findings(build.rows().assign(caveat="x")), str)


def test_the_committed_table_is_what_the_checks_say_today():
    """Of one small source whose rows need no other source; CI builds all of them."""
    source = "exllamav2"
    table = build.table()
    table = table[table["source"] == source].reset_index(drop=True)
    rows = build.joined()
    rows = rows[rows["source"] == source].reset_index(drop=True)
    assert len(table) > 5 and table.equals(checks.judged(rows)), "run: make observatory"
