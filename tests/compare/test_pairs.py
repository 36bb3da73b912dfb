"""Pairs of results as people paste them (pairs.yaml): the verdict, and what has to be said."""

from pathlib import Path

import pytest
import yaml

from llm_measured.compare import compare, render

PAIRS = yaml.safe_load(Path(__file__).with_name("pairs.yaml").read_text(encoding="utf-8"))


def changed(text, changes):
    """The text of B: that of A with each change in it."""
    for old, new, *every in changes:
        assert old in text, f"{old!r} is not in A"
        text = text.replace(old, new, -1 if every else 1)
    return text


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair['kind']}-{pair['name']}")
def test_a_pair_gets_its_verdict_and_its_words(tmp_path, pair):
    sides = []
    for side, text in (("a", pair["a"]), ("b", changed(pair["a"], pair["change"]))):
        file = tmp_path / side / pair["name"]
        file.parent.mkdir()
        file.write_text(text, encoding="utf-8")
        sides.append([file])
    report = compare(*sides)
    said = " ".join(render.text(report).split())
    if "verdict" in pair:
        assert report["verdict"] == pair["verdict"], said
    if "levels" in pair:
        assert len(report["levels"]) == pair["levels"], said
    for words in pair.get("says", []):
        assert words.lower() in said.lower(), said
    for words in pair.get("never", []):
        assert words not in said, said
