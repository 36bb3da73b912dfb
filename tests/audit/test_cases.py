"""What is read and said of files as people and tools write them: cases.yaml, identities.yaml (three inputs for
each identity and cause, written before the rules), readings.yaml, samples.yaml and tools.yaml."""

import math
import random
import re
from pathlib import Path

import pytest
import yaml

from bench.paths import ROOT
from llm_measured.audit import importers, quantities, report
from llm_measured.audit.checks.finding import ALARMS, MISSING

CASES = [
    case
    for name in ("cases", "identities", "readings", "samples", "tools")
    for case in yaml.safe_load(Path(__file__).with_name(f"{name}.yaml").read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("case", CASES, ids=lambda one: f"{one['kind']}-{one.get('name', one.get('file'))}")
def test_a_file_is_read_and_audited(tmp_path, case):
    file = ROOT / case["file"] if "file" in case else tmp_path / case["name"]
    if "text" in case:
        file.write_text(case["text"], encoding="utf-8")
    findings, notes, unread, good, number, placed = report.full(
        [file], case.get("mapping"), **case.get("facts", {})
    )
    whole = "alarms" in case
    shown = " ".join(report.text(findings, notes, unread, number, good, whole, placed).split())
    alarms = [f.check for f in findings if f.kind in ALARMS and not f.consequence_of]
    assert "broke off" not in shown
    if whole:
        said = [f.check for f in findings if f.kind == MISSING and not f.check.endswith("_missing")]
        assert (alarms, [name for name in said if name != "one_run"]) == (
            case["alarms"],
            case.get("besides", []),
        ), shown
    if "finds" in case:
        assert (alarms or ["none"])[0] == case["finds"], shown
    for words in case.get("says", []):
        assert str(words).lower() in shown.lower(), shown
    for words in case.get("never", []):
        assert str(words).lower() not in shown.lower(), shown
    if not {"levels", "rows", "requests"} & {*case}:
        return
    read = importers.read(file, case.get("mapping"))
    assert len(read.levels) == case.get("rows", len(read.levels))
    assert len(read.requests) == case.get("requests", len(read.requests))
    for expected, row in zip(case.get("levels", []), read.levels.to_dict("records"), strict=False):
        for column, value in expected.items():
            number = isinstance(value, (int, float))
            assert row[column] == value or number and math.isclose(row[column], value, rel_tol=1e-6), column


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
