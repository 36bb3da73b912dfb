"""Alarms on published files are counted by folder; what no importer reads is counted apart."""

import json
import shutil

import pandas as pd

from bench import inputs
from bench.paths import DATA
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
    drawn = collected.drawn(pd.concat([every[every["follows"] == ""]] * 30))
    assert drawn["check"].tolist() == ["plain_sums"] * collected.DRAWN and set(drawn["file"]) == {"b.json"}


def test_the_committed_table_names_checks_that_there_are():
    table = inputs.table(collected.TABLE)
    assert list(table) == [*collected.COLUMNS, "files"] and (table["files"] > 0).all()
    known = set(checks.table()["name"])
    assert set(table["check"].dropna()) <= known and not table.duplicated(collected.COLUMNS).any()
