"""Rows are written once, the same bytes for the same rows; what is not here stays as committed."""

import gzip
import os
import re
import time
from fnmatch import fnmatch

import pandas as pd
import pytest

from bench.paths import ROOT
from llm_measured.published import __main__ as door
from llm_measured.published import build, schema, sources
from llm_measured.published.reading import SourceError

TABLE = """L1: # ExLlamaV2
L63: | Model | Mode | Size | grpsz | act | 3090Ti | 4090 |
L64: |---|---|---|---|---|---|---|
L65: | Llama2 | EXL2 4.0 bpw | 7B | - | - | 185 t/s | **211** t/s |
"""


@pytest.fixture
def data(tmp_path, monkeypatch, tables):
    monkeypatch.setattr(build, "DATA", tmp_path / "observatory")
    monkeypatch.delenv("OBSERVATORY_RAW", raising=False)
    folder = tmp_path / "observatory" / "raw" / "exllamav2"
    folder.mkdir(parents=True)
    (folder / "README_tables.md").write_text(TABLE)
    return tmp_path / "observatory"


def test_every_source_says_where_it_comes_from():
    for name, about in sources.listed().items():
        assert about.repository.startswith("https://") and about.commit and about.citation and about.files, (
            name
        )
        assert about.kind in schema.BY_NAME["kind"].choices, name
    assert all(module.__doc__ for _, module in sources.modules())
    committed = {path.name.removesuffix(".csv.gz") for path in (build.DATA / "rows").glob("*.csv.gz")}
    assert committed == set(sources.listed())


def test_a_missing_module_is_an_error_and_not_rows_that_are_lost(tmp_path, monkeypatch, capsys):
    file = tmp_path / "sources.csv"
    file.write_text(sources.LIST.read_text().replace(",gpt_fast,", ",gpt_fasts,"))
    monkeypatch.setattr(sources, "LIST", file)
    sources.listed.cache_clear()
    try:
        for words in (["build"], ["build", "gpt-fast"], ["report", "gpt-fast"]):
            assert door.main(words) == 1
            assert "gpt_fast" in capsys.readouterr().err
    finally:
        monkeypatch.undo()
        sources.listed.cache_clear()


def test_a_source_without_a_module_keeps_its_rows(data, tmp_path, monkeypatch, capsys):
    (data / "raw" / "rknn-llm").mkdir()
    assert door.main(["build", "rknn-llm"]) == 1
    assert "rknn-llm has no importer: its rows stay as they were built at commit" in capsys.readouterr().err
    assert door.main(["report", "rknn-llm"]) == 0


@pytest.mark.check
def test_the_build_writes_rows_and_parquet_of_the_same_bytes_each_time(data, capsys):
    assert door.main(["build", "exllamav2"]) == 0
    assert "2 rows of 1 sources: 2 ok, 0 flagged, 0 excluded" in capsys.readouterr().out
    rows, whole = data / "rows" / "exllamav2.csv.gz", data / "observatory.parquet"
    before = rows.read_bytes(), whole.read_bytes()
    os.utime(data / "raw" / "exllamav2" / "README_tables.md", (time.time() + 5, time.time() + 5))
    rows.unlink()
    assert door.main(["build", "exllamav2"]) == 0
    assert (rows.read_bytes(), whole.read_bytes()) == before
    table = pd.read_parquet(whole)
    assert (
        table["throughput_raw"].to_list() == [185.0, 211.0] and table["model"].to_list() == ["llama-2-7b"] * 2
    )
    assert table["source_row"].to_list() == ["L65#3090Ti", "L65#4090"] and set(table["licence"]) == {"MIT"}
    assert list(table.columns) == list(schema.BY_NAME)


def test_every_count_of_what_was_left_out_is_of_a_file_that_is_read():
    counted = {path.name.removesuffix(".csv.gz") for path in (build.DATA / "left_out").glob("*")}
    for source in counted:
        about, counts = sources.about(source), build.left_out(source)
        assert about.module and len(counts), source
        assert all(any(fnmatch(f, p) for p in about.files) for f in counts["source_file"]), source
    assert set(build.read_table("left_out")["source"]) == counted


def test_rows_of_a_file_that_is_not_here_stay_as_committed(data):
    build.refresh("exllamav2", data / "raw" / "exllamav2")
    second = data / "raw" / "exllamav2" / "README_2_tables.md"
    second.write_text(TABLE.replace("185", "186"))
    build.refresh("exllamav2", data / "raw" / "exllamav2")
    second.unlink()
    build.refresh("exllamav2", data / "raw" / "exllamav2")
    assert sorted(build.committed("exllamav2")["throughput_raw"]) == [185, 186, 211, 211]


def test_a_folder_named_by_the_environment_comes_first(data, tmp_path, monkeypatch):
    (tmp_path / "more" / "exllamav2").mkdir(parents=True)
    monkeypatch.setenv("OBSERVATORY_RAW", str(tmp_path / "more"))
    assert build.folder_of("exllamav2") == tmp_path / "more" / "exllamav2"
    assert build.folder_of("autoawq") is None


def test_a_hostile_cell_is_left_out_with_a_sentence_and_the_rest_is_kept(data, capsys):
    page = data / "raw" / "exllamav2" / "README_tables.md"
    page.write_text(TABLE + "L66: | =cmd()!A1 | EXL2 <script> | 7B | - | - | -5 t/s | NaN |\n")
    assert door.main(["build", "exllamav2"]) == 0
    told = capsys.readouterr()
    assert "2 rows of 1 sources" in told.out and told.err.count("left out") == 2
    assert "README_tables.md L66#3090Ti left out" in told.err


def test_a_file_that_cannot_be_read_is_one_sentence_and_status_1_and_loses_nothing(data, capsys):
    build.refresh("exllamav2", data / "raw" / "exllamav2")
    (data / "raw" / "exllamav2" / "README_tables.md").write_bytes(b"\xff\xfe\x00")
    assert door.main(["build", "exllamav2"]) == 1
    assert capsys.readouterr().err == "exllamav2: README_tables.md is not UTF-8 text.\n"
    assert len(build.committed("exllamav2")) == 2


def test_a_table_of_another_form_names_the_file(data):
    (data / "raw" / "exllamav2" / "README_tables.md").write_text("L1: nothing\n")
    with pytest.raises(SourceError, match="no row could be read from 1 file: its importer knows no record"):
        build.refresh("exllamav2", data / "raw" / "exllamav2")
    with pytest.raises(SourceError, match="There is no source 'exlama'; there are 4x3090, aiconfigurator"):
        build.importer("exlama")


def test_a_source_of_which_no_record_is_kept_says_why(data, capsys):
    page = data / "raw" / "exllamav2" / "README_tables.md"
    page.write_text(re.sub(r"(\d+)(\W+)t/s", r"-\1\2t/s", TABLE))
    assert door.main(["build", "exllamav2"]) == 1
    wrong = "2 records were left out, 1 of them because throughput_raw: -185.0 is negative"
    assert wrong in capsys.readouterr().err
    assert door.main(["report", "exllamav2"]) == 0 and wrong in capsys.readouterr().out


def test_the_report_says_rows_empty_columns_and_findings(data, capsys):
    assert door.main(["report", "exllamav2"]) == 0
    told = capsys.readouterr().out
    assert "exllamav2: 2 rows" in told and "columns stayed empty" in told and "no finding" in told


def test_committed_rows_hold_no_path_of_a_user_and_only_known_columns():
    for path in sorted((ROOT / "data" / "observatory" / "rows").glob("*.csv.gz")):
        text = gzip.decompress(path.read_bytes()).decode()
        assert not ("/home/" in text or "/Users/" in text), path.name
        assert set(text.split("\n", 1)[0].split(",")) <= set(schema.STORED), path.name
