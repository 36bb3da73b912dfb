"""What is read of files as people publish them (readings.yaml), and of headings in any order and of any
synonym."""

import math
import random
import re
from pathlib import Path

import pytest
import yaml

from llm_measured.audit import importers, quantities, report

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


LEVEL = {
    "model": "Llama-3.1-8B",
    "gpu": "H100 SXM",
    "tensor_parallel": 2,
    "concurrency": 8,
    "requests": 120,
    "failed": 3,
    "prompt_tokens": 512,
    "output_tokens": 200,
    "requests_per_s": 1.9,
    "output_tokens_per_s": 380,
    "total_tokens_per_s": 1353,
}


@pytest.mark.parametrize("seed", range(40))
def test_headings_in_any_order_and_of_any_synonym_are_one_table(tmp_path, seed):
    draw = random.Random(seed)
    known = quantities.table()
    names = {
        word: draw.choice([name for name in known[word].names if re.fullmatch(r"\w+", name)])
        for word in LEVEL
    }
    order = draw.sample(list(LEVEL), len(LEVEL))
    mark = draw.choice(["_", " ", "-"])
    heads = [draw.choice([str.title, str.upper, str.lower])(names[word].replace("_", mark)) for word in order]
    file = tmp_path / "table.csv"
    file.write_text(",".join(heads) + "\n" + ",".join(str(LEVEL[word]) for word in order) + "\n")
    read = importers.read(file)
    assert {word: read.levels[word][0] for word in LEVEL} == LEVEL, heads
    assert not read.placed[0].unread
