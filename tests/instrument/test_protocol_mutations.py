"""The counting, broken on purpose: each way of miscounting is put into a copy of the code, and the cases of
`tests/test_protocol.py` must see it.

A mutation (`mutants.py`) is a text of the source and what stands in its place; one whose text is no longer
there fails, so none is ever skipped unseen.
"""

import importlib
import sys
import types
from pathlib import Path

import protocol_cases
import pytest
import speakers
import token_quotes
from mutants import LEAKS, MUTATIONS

pytest_plugins = ["speakers", "token_quotes"]
pytestmark = [pytest.mark.check, pytest.mark.timing]


def broken(mutation):
    """(module, copy of it with the mutation under the same name).

    AssertionError where the text to be replaced does not stand there exactly once.
    """
    module = importlib.import_module(f"bench.instrument.load.{mutation.module}")
    source = Path(module.__file__).read_text()
    count = source.count(mutation.old)
    assert count == 1, f"{module.__name__} has this {count} times: {mutation.old}"
    copy = types.ModuleType(module.__name__)
    code = source.replace(mutation.old, mutation.new)
    exec(compile(code, f"{module.__file__} (broken)", "exec"), copy.__dict__)
    return module, copy


def put(monkeypatch, mutation):
    """Let every module that imported the mutation's module use the broken copy instead."""
    module, copy = broken(mutation)
    users = [
        (user, name)
        for user in list(sys.modules.values())
        if user is speakers or getattr(user, "__name__", "").startswith("bench.")
        for name, value in list(vars(user).items())
        if value is module and not hasattr(user, "__path__")  # a package has its modules as attributes
    ]
    assert users, f"nothing uses {module.__name__}"
    for user, name in users:
        monkeypatch.setattr(user, name, copy)


@pytest.mark.parametrize("name", MUTATIONS)
def test_miscounting_is_seen(speaker, monkeypatch, name):
    put(monkeypatch, MUTATIONS[name])
    for case in MUTATIONS[name].cases:
        with pytest.raises(AssertionError):
            speakers.check(speaker, case)


@pytest.mark.parametrize("name", LEAKS)
def test_a_leak_is_seen(quoting, monkeypatch, name):
    put(monkeypatch, LEAKS[name])
    for answer in LEAKS[name].cases:
        with pytest.raises(AssertionError):
            token_quotes.keeps_quiet(quoting(token_quotes.QUOTES[answer]))


def test_every_case_fails_where_the_counting_is_broken():
    """No case that nothing can fail, and none that does not exist."""
    assert {case for mutation in MUTATIONS.values() for case in mutation.cases} == set(protocol_cases.CASES)
