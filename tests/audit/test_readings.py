"""What is read of files as people publish them (readings.yaml), and of headings in any order and of any
synonym."""

import math
from pathlib import Path

import pytest
import yaml

from llm_measured.audit import importers, report

READINGS = yaml.safe_load(Path(__file__).with_name("readings.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("one", READINGS, ids=lambda one: f"{one['kind']}-{one['name']}")
def test_a_file_is_read_as_it_was_meant(tmp_path, one, capsys):
    file = tmp_path / one["name"]
    file.write_text(one["text"], encoding="utf-8")
    report.main([str(file)])
    said = " ".join(capsys.readouterr().out.split()).lower()
    for words in one.get("says", []):
        assert words.lower() in said, said
    for words in one.get("never", []):
        assert words.lower() not in said, said
    read = importers.read(file)
    for level, row in zip(one.get("levels", []), read.levels.to_dict("records"), strict=False):
        for column, value in level.items():
            alike = (
                row[column] == value or isinstance(value, (int, float)) and math.isclose(row[column], value)
            )
            assert alike, (column, row[column], said)
    if "rows" in one:
        assert len(read.levels) == one["rows"]
    if "requests" in one:
        assert len(read.requests) == one["requests"]
