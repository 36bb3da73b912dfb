"""How many files one opens to follow a number, and how many run: from the cell that asks for it to the CSV, and from
a table's CSV to the picture.

To be opened on the way to the CSV a file counts if it runs on the way and handles the number: it names it, or one of its functions takes it (or its
name) as an argument. Each of them is one subject (CONTRIBUTING, "Layers").
"""

import re
import sys
import threading
from pathlib import Path

import pytest

from bench import cells as page_cells
from bench import plots
from bench.backends.common import checkpoints
from bench.paths import ROOT

TOKENS = 37  # a number that nothing else has by chance
OURS = str(ROOT / "bench"), str(ROOT / "llm_measured")
# The ceilings only fall: of files that run from the cell to the CSV, of those that handle a number on this way,
# of files that run from a table to its picture.
RUN_TO_CSV, TO_CSV, TO_PICTURE = 34, 15, 8
FEWEST = 4


def executed(walk):
    """(files of the repository of which a function runs while `walk()` does, what it returns): imports apart."""
    ran = set()

    def seen(frame, event, _):
        file = frame.f_code.co_filename
        if event != "call" or file in ran or not file.startswith(OURS):
            return
        while frame is not None:
            if "importlib" in frame.f_code.co_filename:
                return
            frame = frame.f_back
        ran.add(file)

    sys.setprofile(seen)
    threading.setprofile(seen)
    try:
        found = walk()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return {Path(file).relative_to(ROOT).as_posix() for file in ran}, found


def opened(walk, name, value=None):
    """(files of the repository that handle `name` while `walk()` runs, what it returns)."""
    ran, took = set(), set()

    def seen(frame, event, _):
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(OURS):
            ran.add(file)
            if value is not None and file not in took:
                arguments = list(frame.f_locals.values())
                took.update({file} if any(type(a) is type(value) and a == value for a in arguments) else ())

    sys.setprofile(seen)
    threading.setprofile(seen)
    try:
        found = walk()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    paths = set(map(Path, ran))
    named = {path for path in paths if re.search(rf"\b{name}\b", path.read_text())}
    return {path.relative_to(ROOT).as_posix() for path in named | {p for p in paths if str(p) in took}}, found


@pytest.mark.check
def test_following_max_new_tokens_from_the_notebook_to_the_csv(cells):
    walk, names = opened(
        lambda: cells("latency", backend="fake", max_new_tokens=TOKENS), "max_new_tokens", TOKENS
    )
    assert set(names["observed"]["max_new_tokens"]) == {TOKENS}
    here = {
        "notebooks/latency.ipynb",
        "bench/backends/<engine>.py",
        "bench/observations/store.py",  # which writes the rows
        *(file for file in walk if "report" not in file),
    }
    assert {"bench/experiments/session.py", "bench/instrument/in_process.py"} < here
    assert FEWEST <= len(here) <= TO_CSV, sorted(here)


def test_a_rate_runs_through_few_files_from_the_cell_to_the_csv(cells, monkeypatch):
    checkpoints.checkpoint("smollm2-135m")  # made once for a checkout
    monkeypatch.setattr(plots, "run", lambda requests: None)  # the last cell, which draws what the CSV holds
    ran, names = executed(lambda: cells("latency", backend="fake", max_new_tokens=TOKENS))
    assert (names["observed"]["output_tokens_per_s"] > 0).all()
    assert {"bench/experiments/session.py", "bench/experiments/running.py"} < ran
    assert FEWEST <= len(ran) <= RUN_TO_CSV, sorted(ran)


@pytest.mark.check
def test_a_figure_is_drawn_from_its_table_by_few_files():
    code = compile(page_cells.source("fig-latency"), "cell", "exec")
    exec(code, {})  # what is imported runs once
    ran, _ = executed(lambda: exec(code, {}))
    assert "bench/plots.py" in ran and FEWEST <= len(ran) <= TO_PICTURE, sorted(ran)


@pytest.mark.check
def test_a_row_says_what_its_cell_asked_for(cells):
    """Whoever edits the number in the cell gets rows that say so, whatever the parameter was."""
    names = cells("latency", backend="fake", max_new_tokens=TOKENS)
    run = names["setup"]
    row = run.row(1, 1, [5, 6], {"output_ids": [7, 8, 9]}, max_new_tokens=3)
    assert row["max_new_tokens"] == 3 and run.parameters["max_new_tokens"] == TOKENS
