"""Entries of faults.yaml: each stands once in its file, compiles, and names tests that exist (`make faults` runs them)."""

import ast

import faults
import pytest

from bench.paths import ROOT

ENTRIES = faults.read()
LEFT = [fault for fault in ENTRIES if "gone" not in fault]


def test_names_are_all_different():
    names = [fault["name"] for fault in ENTRIES]
    assert len(names) == len(set(names)) >= 60


@pytest.mark.parametrize("fault", LEFT, ids=lambda fault: fault["name"])
def test_a_fault_can_be_made(fault):
    """A fault whose text is no longer there would be one that nobody looks for: change the entry with the code,
    or say in `gone` why there is nothing left that could be wrong."""
    assert faults.places(fault) == 1, f"{fault['before']!r} does not stand once in {fault['file']}"
    ast.parse(faults.broken(fault), fault["file"])


@pytest.mark.parametrize("fault", LEFT, ids=lambda fault: fault["name"])
def test_a_fault_has_witnesses_that_exist(fault):
    assert fault["seen_by"]
    for test in fault["seen_by"]:
        file, _, function = test.partition("::")
        assert (ROOT / file).is_file(), test
        assert f"def {function.partition('[')[0]}(" in (ROOT / file).read_text(), test


def test_what_is_gone_says_why():
    assert all(fault["gone"] and faults.places(fault) == 0 for fault in ENTRIES if "gone" in fault)
