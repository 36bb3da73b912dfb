"""Headlines are short, are what ten lines of pandas give, and never name speed without its loss."""

import os

import pytest

from bench.paths import ROOT
from bench.report import headlines


@pytest.fixture(scope="module")
def committed():
    return headlines.committed()


@pytest.fixture(scope="module")
def found(committed):
    return headlines.headlines(committed)


def test_there_are_at_most_eight_of_at_most_thirty_words(found):
    assert len(found) == len(headlines.HEADLINES) <= headlines.MOST
    for headline in found:
        assert len(headline.text.split()) <= headlines.MOST_WORDS, headline.text
        assert not set("()[]") & set(headline.text) and "session" not in headline.text


@pytest.mark.parametrize("name", [headline.__name__ for headline in headlines.HEADLINES])
def test_a_snippet_gives_the_numbers_of_its_headline(found, name, monkeypatch):
    """The snippet reads the committed CSVs with pandas alone; the headline uses the study's own functions."""
    (headline,) = [each for each in found if each.snippet == name]
    monkeypatch.chdir(ROOT)
    variables = {}
    exec(compile(headlines.snippet(name), name, "exec"), variables)
    assert "bench" not in headlines.snippet(name)
    assert variables["answer"].keys() == headline.numbers.keys()
    for key, value in headline.numbers.items():
        expected = value if isinstance(value, str) else pytest.approx(value, rel=1e-9)
        assert variables["answer"][key] == expected, key


def test_an_option_that_answers_worse_is_named_with_its_loss(committed, found):
    runs = headlines.Runs(committed)
    worse = {config: runs.lost(config) for config in runs.costs if runs.lost(config)}
    assert ("llamacpp", "Q4_0") in worse and ("llamacpp", "F16") not in worse
    for headline in found:
        for (backend, option), lost in worse.items():
            named = f"**{backend} {option}**" in headline.text
            assert not named or lost in headline.text, headline.text


def test_every_snippet_belongs_to_a_headline():
    files = {file.removesuffix(".py") for file in os.listdir(headlines.SNIPPETS) if file.endswith(".py")}
    assert files == {headline.__name__ for headline in headlines.HEADLINES}


def test_without_runs_there_are_no_headlines(committed):
    nothing = committed.iloc[:0]
    assert headlines.sentences(nothing) == [] and headlines.shown(nothing) == ""


def test_servers_have_the_headlines_about_more_than_one_request(committed):
    said = headlines.of_servers(committed)
    assert said and set(said[:-1]) < set(headlines.sentences(committed))
    assert headlines.of_servers(committed.iloc[:0]) == []
