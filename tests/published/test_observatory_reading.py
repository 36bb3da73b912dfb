"""Raw files are read without trust: each hostile one ends in one sentence, and nothing of it is executed."""

import json
import re
import tarfile

import pandas as pd
import pytest

from llm_measured.published import build, names
from llm_measured.published.reading import (
    LeftOut,
    Raw,
    Row,
    SourceError,
    cut,
    decimal_comma,
    leading,
    number,
    scaled,
)


def raw(tmp_path, **files):
    for name, text in files.items():
        (tmp_path / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return Raw("made-up", tmp_path)


def one_row(tmp_path, **columns):
    source = raw(tmp_path, a__jsonl='{"x": 1}\n')
    at, _ = next(source.jsonl("a.jsonl"))
    return at.row(**{"throughput_raw": 10, **columns})


@pytest.mark.parametrize(
    "column, value, says",
    [
        ("checkpoint_raw", '=HYPERLINK("http://evil")', "begins like a formula"),
        ("checkpoint_raw", "@SUM(A1)", "begins like a formula"),
        ("checkpoint_raw", "-1+cmd|' /C calc'!A0", "begins like a formula"),
        ("engine", "<script>alert(1)</script>", "holds markup"),
        ("engine", "llama <img src=x onerror=alert(1)>", "holds markup"),
        ("throughput_raw", float("nan"), "nan is not a number that can be measured"),
        ("throughput_raw", "NaN", "nan is not a number that can be measured"),
        ("throughput_raw", float("inf"), "inf is not a number"),
        ("throughput_raw", -3.5, "-3.5 is negative"),
        ("throughput_raw", "fast", "'fast' stands where a number should"),
        ("throughput_raw", "12,5", "a comma that parts no thousands"),
        ("throughput_raw", "1,2345", "a comma that parts no thousands"),
        ("throughput_raw", [1], "list stands where a number should"),
        ("throughput_raw", 10**400, "hundreds of digits"),
        ("concurrency", 1.5, "not a whole number"),
        ("workload", "batch", "is none of"),
        ("measured_on", "yesterday", "is no date"),
    ],
)
def test_a_value_that_cannot_be_leaves_the_row_out_and_names_its_column(tmp_path, column, value, says):
    found = one_row(tmp_path, **{column: value})
    assert isinstance(found, LeftOut) and found.refused
    assert found.reason.startswith(column) and says in found.reason and "\n" not in found.reason


def test_a_sound_row_is_kept_with_its_place_and_a_stable_id(tmp_path):
    found = one_row(tmp_path, engine="vLLM", throughput_raw="1,234.5")
    again = one_row(tmp_path, engine="another reading of the same record")
    assert isinstance(found, Row)
    assert found.columns["throughput_raw"] == 1234.5 and found.columns["source_row"] == "L1"
    assert found.columns["row_id"] == again.columns["row_id"]


def test_what_the_files_labels_say_otherwise_is_kept_beside_the_row(tmp_path):
    found = one_row(tmp_path, printed={"concurrency": 64, "throughput_raw": 10}, concurrency=1)
    assert json.loads(found.columns["as_printed"]) == {"concurrency": 64}


def test_a_file_of_a_gigabyte_is_refused_before_it_is_read(tmp_path):
    with open(tmp_path / "huge.jsonl", "wb") as file:
        file.truncate(10**9)
    with pytest.raises(SourceError, match=r"huge.jsonl has 1,000 MB, and at most 64 are read"):
        Raw("made-up", tmp_path).text("huge.jsonl")


def test_an_archive_that_unpacks_to_more_than_allowed_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("llm_measured.published.reading.MAX_BYTES", 1000)
    (tmp_path / "big.txt").write_text("0" * 5000)
    with tarfile.open(tmp_path / "all.tar.xz", "w:xz") as archive:
        archive.add(tmp_path / "big.txt", "inside.txt")
    (tmp_path / "big.txt").unlink()
    with pytest.raises(SourceError, match="unpacks to more than allowed"):
        Raw("made-up", tmp_path).files("*")


@pytest.mark.parametrize(
    "name, text, says",
    [
        ("a.json", "{", "is not JSON"),
        ("a.json", "[" * 100_000, "is not JSON"),
        ("a.yaml", "!!python/object/apply:os.system ['touch executed']", "is not YAML"),
    ],
)
def test_what_is_no_data_is_named_in_one_sentence_and_not_executed(tmp_path, monkeypatch, name, text, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(text)
    source = Raw("made-up", tmp_path)
    with pytest.raises(SourceError, match=says) as error:
        (source.json if name.endswith("json") else source.yaml)(name)
    assert "\n" not in str(error.value) and not (tmp_path / "executed").exists()


def test_paths_addresses_and_hosts_are_cut_and_counted(tmp_path):
    text = "/home/jane/models/a.gguf jane@example.org 192.168.1.7:8000 ~/llama.cpp/bin C:/ok 10.2.0"
    assert cut(text) == "…/a.gguf … … …/bin C:/ok 10.2.0"
    source = raw(tmp_path, a__txt=text)
    source.text("a.txt")
    assert dict(source.cuts) == {"path of a user": 2, "e-mail address": 1, "host": 1}


def test_tables_of_a_page_carry_their_own_line_numbers_and_headings(tmp_path):
    page = "L1: # Speed\nL7: ## H100\nL9: | a | b |\nL10: |---|:-:|\nL11: | 1 | **2** |\nL12: |   | 3 |\n"
    found = list(raw(tmp_path, page__md=page).tables("page.md"))
    assert [(at.line, dict(r), titles) for at, r, titles in found] == [
        ("L11", {"a": "1", "b": "**2**"}, ("Speed", "H100")),
        ("L12", {"a": "", "b": "3"}, ("Speed", "H100")),
    ]


def test_a_line_with_a_field_too_many_is_counted_and_kept_whole(tmp_path):
    source = raw(tmp_path, a__csv="x,y\n1,2\n1,2,3\n")
    records = [r for _, r in source.csv("a.csv")]
    assert source.ragged == {"a.csv": 1} and records[1][None] == ["1", "2", "3"] and None not in records[0]


def test_units_change_without_binary_rounding():
    assert scaled("0.0107", 1000) == 10.7 and scaled(None, 1000) is None and scaled("x", 1000) == "x"
    assert leading("**205** t/s") == "205" and leading("oom") is None and leading("~8.9 tok/s") == "8.9"
    assert scaled("1,234.5", 1) == 1234.5 and scaled("0,76", 1000) == "0,76"
    assert decimal_comma("1.234,5") == "1234.5" and decimal_comma(None) is None
    assert number("nan") is None and number("7.0") == 7


HOSTILE = [
    {"model": "Llama-2-7B", "rate": 41.5},
    {"model": '=HYPERLINK("http://evil","x")', "rate": 40},
    {"model": "<script>document.title='executed'</script>", "rate": 40},
    {"model": "Llama-2-7B", "rate": float("nan")},
    {"model": "Llama-2-7B", "rate": -40},
    {"model": "Llama-2-7B", "rate": 40, "tpot": 0.024},  # seconds where milliseconds should stand
    {"model": "Llama-2-7B", "rate": 40, "power": 222_122},  # milliwatts where watts should stand
    {"model": "Llama-2-7B", "rate": 90, "prompt": 30},  # columns exchanged
]


def test_a_hostile_file_ends_in_a_sentence_for_each_line_and_runs_nothing(tmp_path, capsys):
    from llm_measured.published import build, checks, names

    source = raw(tmp_path, a__jsonl="\n".join(map(json.dumps, HOSTILE)) + "\n")
    found = [
        at.row(
            accelerator_raw="A100-SXM4-80GB", accelerators=1, engine="vLLM", checkpoint_raw=r["model"],
            weights_format="fp16", workload="single", throughput_raw=r["rate"], throughput_counts="output",
            throughput_scope="all", tpot_mean_ms=r["tpot"], power_w=r["power"],
            power_scope="accelerator" if r["power"] else None, prompt_tokens_per_s=r["prompt"],
            measured_by="nobody", kind="community",
        )
        for at, r in source.jsonl("a.jsonl")
    ]  # fmt: skip
    refused = [one.reason for one in found if isinstance(one, LeftOut)]
    assert [reason.split(":")[0] for reason in refused] == [
        "checkpoint_raw",
        "checkpoint_raw",
        "throughput_raw",
        "throughput_raw",
    ]
    assert all("\n" not in reason and len(reason) < 120 for reason in refused)
    rows = names.looked_up(
        build.typed(pd.DataFrame([f.columns | {"source": "x"} for f in found if isinstance(f, Row)]))
    )
    notes = checks.judged(rows)["audit_notes"]
    assert "seconds?" in notes[1] and "milliwatts?" in notes[2] and "prompt" in notes[3] and notes[0] is None
    print(*refused, *notes.dropna(), sep="\n")
    assert "executed" not in build._text(rows, list(rows.columns))


@pytest.mark.parametrize(
    "column, text, vendor, name",
    [
        ("backend", "GPU", "NVIDIA", "CUDA"),
        ("backend", "cuda", "", "CUDA"),
        ("backend", "backend=Vulkan; driver=RADV", "AMD", "Vulkan"),
        ("backend", "GEMM kernels", "NVIDIA", None),
        ("kv_format", "q8_0 / q8_0", "", "Q8_0"),
        ("kv_format", "auto", "", None),
        ("kv_format", "K:turbo3_tcq / V:turbo2_tcq", "", "TurboQuant 3 and 2"),
        ("engine_version", "build=5922; commit=01612b74", "", "b5922"),
        ("engine_version", "b9775 / 7529fdaaf", "", "b9775"),
        ("engine_version", "v0.25.1-cu128", "", "0.25.1"),
        ("engine_version", "0.20.2rc1.dev93+g51f22dcfd", "", "0.20.2"),
        ("engine_version", "a fork", "", "a fork"),
    ],
)
def test_what_sources_write_in_many_ways_has_one_spelling(column, text, vendor, name):
    assert names.spelled(column, text, vendor) == name


def test_a_fork_of_an_engine_is_another_engine():
    assert [names.engine(name) for name in ("ik_llama.cpp", "llama-server", None)] == [
        "ik_llama.cpp",
        "llama.cpp",
        None,
    ]


def test_the_one_spelling_stands_beside_the_text_of_the_source():
    rows = build.table().head(0).reindex([0, 1])
    rows["weights_format"], rows["checkpoint_raw"] = ["Q4_K - Medium", "F16"], ["x-8B", "gpt-oss-20b"]
    rows["engine"] = "llama.cpp"
    told = names.beside(rows)
    assert told["format_name"].to_list() == ["Q4_K_M", "MXFP4"]  # the GGUF of gpt-oss keeps its experts
    assert told["weights_format"].to_list() == ["Q4_K - Medium", "F16"]


def test_kv_format_holds_formats_only():
    told = set(build.table()["kv_format_name"].dropna())
    assert len(told) > 12 and all(re.search(r"F16|FP\d|\dbit|bits|INT|Q\d|TurboQuant", name) for name in told)
