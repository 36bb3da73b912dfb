"""Alarms on published files are counted by folder; what no importer reads is counted apart."""

import json
import shutil

import pandas as pd

from bench import inputs
from bench.paths import DATA
from bench.report.audit import page
from llm_measured.audit import checks, collected

SAMPLE = DATA / "audits" / "samples" / "vllm-bench-serve.json"


def test_files_read_and_alarms_are_counted(tmp_path):
    for name in ("clean", "wrong", "other"):
        (tmp_path / name).mkdir()
    shutil.copy(SAMPLE, tmp_path / "clean" / "a.json")
    figures = json.loads(SAMPLE.read_text())
    wrong = figures | {"output_throughput": 3 * figures["output_throughput"]}
    (tmp_path / "wrong" / "b.json").write_text(json.dumps(wrong))
    (tmp_path / "other" / "c.md").write_text("Nothing of use.\n")
    (tmp_path / "other" / "d.txt").write_text("Of no layout that is looked at.\n")
    shutil.copy(SAMPLE, tmp_path / "wrong" / "a.json")
    every = collected.raised(tmp_path)
    assert collected.counted(every).to_numpy().tolist() == [
        ["clean", "no alarm", "", 1],
        ["other", "not read", "", 2],
        ["wrong", "contradicts itself", "plain_sums", 1],
        ["wrong", "no alarm", "", 1],
    ]
    drawn = collected.drawn(pd.concat([every] * 30))
    assert drawn["check"].tolist() == ["plain_sums"] * collected.DRAWN and set(drawn["file"]) == {"b.json"}


def test_the_page_counts_each_file_of_the_committed_table_once(monkeypatch):
    rows = [
        ("a", "no alarm", "", 5),
        ("a", "impossible", "bandwidth_beyond_device", 2),
        ("b", "contradicts itself", "plain_sums", 3),
        ("b", "impossible", "bandwidth_beyond_device", 1),
        ("c", "not read", "", 7),
    ]
    table = pd.DataFrame(rows, columns=[*collected.COLUMNS, "files"])
    monkeypatch.setattr(inputs, "table", lambda name: table.copy())
    assert page.collected_numbers() == {
        "files": 18,
        "sources": 3,
        "read": 11,
        "readable": 2,
        "impossible": 3,
        "uncounted": 0,
        "contradictory": 3,
        "alarming": 2,
    }
    first, second = page.collected_alarms().to_numpy().tolist()
    assert first == ["impossible", "bandwidth_beyond_device", 3, "a (2), b (1)"]
    assert second == ["contradicts itself", "plain_sums", 3, "b (3)"]


def test_the_committed_table_names_checks_that_there_are():
    table = inputs.table(collected.TABLE)
    assert list(table) == [*collected.COLUMNS, "files"] and (table["files"] > 0).all()
    known = set(checks.table()["name"])
    assert set(table["check"].dropna()) <= known and not table.duplicated(collected.COLUMNS).any()
