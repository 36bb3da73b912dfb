"""A folder of a source that nobody has written an importer for: what tools' files state is read, checked and
not kept; what is wrong in them is found or left empty with a sentence."""

import json

import pytest

from llm_measured.published import __main__ as door
from llm_measured.published import build

VLLM = {
    "date": "20250711-120000",
    "backend": "vllm",
    "model_id": "meta-llama/Llama-3.1-8B-Instruct",
    "request_rate": "inf",
    "max_concurrency": 16,
    "duration": 60.5,
    "completed": 200,
    "total_input_tokens": 204_800,
    "total_output_tokens": 40_000,
    "request_throughput": 3.306,
    "output_throughput": 661.2,
    "mean_ttft_ms": 150.1,
    "median_ttft_ms": 140.2,
    "p99_ttft_ms": 400.3,
    "mean_tpot_ms": 22.5,
    "median_tpot_ms": 22.1,
    "p99_tpot_ms": 30.2,
    "mean_itl_ms": 22.4,
    "median_itl_ms": 20.1,
    "p99_itl_ms": 60.3,
}
TABLE = "gpu,model,precision,num_gpus,concurrency,isl,osl,{names}\nH100 SXM,Llama-3.1-8B,bf16,{row}\n"


@pytest.fixture
def folder(tmp_path, monkeypatch, tables):
    monkeypatch.setattr(build, "DATA", tmp_path / "data")
    monkeypatch.setenv("OBSERVATORY_RAW", str(tmp_path / "raw"))
    (tmp_path / "raw" / "new").mkdir(parents=True)
    return tmp_path / "raw" / "new"


def told(capsys):
    assert door.main(["report", "new"]) == 0
    return capsys.readouterr().out


def read(folder, **files):
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text if isinstance(text, str) else json.dumps(text))
    return build.imported("new", folder)


def test_a_tool_s_file_is_a_row_with_what_it_states_and_nothing_else(folder):
    found = read(folder, a__json=VLLM)
    row = build.typed(found.rows).iloc[0]
    assert (row["throughput_raw"], row["tpot_mean_ms"], row["ttft_p99_ms"]) == (661.2, 22.5, 400.3)
    assert (row["concurrency"], row["output_tokens"], row["measured_on"]) == (16, 200, "2025-07-11")
    assert row[["accelerator_raw", "accelerators", "measured_by", "kind", "weights_format"]].isna().all()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"mean_tpot_ms": 0.0225, "median_tpot_ms": 0.0221}, "impossible_time (excluded): 1"),
        ({"mean_ttft_ms": 0.1501, "median_ttft_ms": 0.14}, "first_token_without_a_step (flagged): 1"),
        ({"output_throughput": -661.2}, "throughput_raw: -661.2 is negative (a.json /0)"),
        ({"mean_ttft_ms": float("nan")}, "NaN or infinity where a number should be (1), left empty"),
        ({"date": "20310711-120000"}, "date_of_no_measurement (flagged): 1"),
        ({"date": "20251311-120000"}, "measured_on: '2025-13-11' is no date"),
        ({"output_throughput": 6612}, "littles_law (excluded): 1"),
        ({"p99_ttft_ms": 40.3}, "percentiles_out_of_order (excluded): 1"),
        ({"model_id": "=cmd()"}, "begins like a formula"),
        ({"model_id": "<script>x</script>"}, "holds markup"),
    ],
)  # fmt: skip
def test_a_wrong_number_is_found_or_left_empty_with_a_sentence(folder, capsys, changed, says):
    (folder / "a.json").write_text(json.dumps(VLLM | changed))
    assert says in told(capsys)


@pytest.mark.parametrize(
    ("names", "row", "says"),
    [
        ("output tokens/s per GPU,TTFT (ms),TPOT (ms)", "8,64,128,129,500,100,15.34", "no finding"),
        (
            "output tokens/s,TTFT (ms),TPOT (ms)",
            "8,64,128,129,500,100,15.34",
            "littles_law (excluded): 1",
        ),
        ("output tokens/s,TTFT (ms),TPOT (s)", "1,64,128,129,4000,100,0.01534", "no finding"),
        ("output tokens/s,TTFT (s),TPOT (ms)", "1,64,128,129,4000,100,15.34", "littles_law (excluded): 1"),
        ("output tokens/s", "1,1,128,129,900", "bandwidth_beyond_device (excluded): 1"),
    ],
)
def test_scopes_and_units_of_a_table_are_read_from_its_names_and_held_against_the_rest(
    folder, capsys, names, row, says
):
    (folder / "a.csv").write_text(TABLE.format(names=names, row=row))
    assert says in told(capsys)


def test_columns_in_another_order_or_under_names_unknown_change_nothing_else(folder, capsys):
    lines = TABLE.format(names="output tokens/s,wibble", row="1,64,128,129,4000,7").splitlines()
    turned = "\n".join(",".join(reversed(line.split(","))) for line in lines)
    found = build.typed(read(folder, a__csv=turned).rows).iloc[0]
    assert (found["throughput_raw"], found["concurrency"], found["accelerators"]) == (4000, 64, 1)
    assert "mean nothing here: wibble" in told(capsys)


def test_what_no_importer_reads_is_a_sentence_each_and_the_rest_is_read(folder, capsys):
    (folder / "a.json").write_text(json.dumps(VLLM))
    (folder / "broken.json").write_text("{")
    (folder / "notes.txt").write_text("nothing")
    (folder / "binary.csv").write_bytes(b"\xff\xfe\x00")
    (folder / "mlperf.csv").write_text("Submitter,Scenario,Result\nX,Offline,5\n")
    text = told(capsys)
    assert "new: 1 rows" in text and text.count("left out 1") == 4
    assert "rules of their own" in text and "Traceback" not in text


def test_the_build_reads_a_folder_without_importer_and_keeps_nothing_of_it(folder, capsys):
    (folder / "a.json").write_text(json.dumps(VLLM))
    (folder.parent / "loose.json").write_text("{}")
    assert door.main(["build"]) == 0
    told = capsys.readouterr()
    assert "new: 1 rows as the tools' files state them, not kept" in told.err and "loose.json in" in told.err
    assert "1 rows of 1 sources" in told.out and not (build.DATA / "rows").exists()


def test_a_folder_that_is_not_there_is_one_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OBSERVATORY_RAW", str(tmp_path / "nowhere"))
    assert door.main(["build"]) == 1
    assert capsys.readouterr().err == "OBSERVATORY_RAW names 'nowhere', which is no folder here.\n"


def test_a_renamed_column_of_a_known_source_is_named(tmp_path, monkeypatch, capsys, tables):
    monkeypatch.setattr(build, "DATA", tmp_path)
    place = tmp_path / "raw" / "inferencex"
    place.mkdir(parents=True)
    row = {"hardware": "h100", "model": "dsr1", "conc": 4, "metrics": {"output_rate_per_gpu": 50.0}}
    (place / "benchmarks.json").write_text(json.dumps([row]))
    assert door.main(["report", "inferencex"]) == 0
    text = capsys.readouterr().out
    assert "left out 1: nothing measured in it" in text
    assert "looked for and in no record:" in text and "output_tput_per_gpu" in text
