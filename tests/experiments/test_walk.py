"""How many files of this repository run on the way of a number: from the cell that asks for it to the CSV, and from a
table's CSV to the picture. A file counts if one of its functions runs, whatever imports it.
"""

import gc
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
TO_CSV, TO_PICTURE = 34, 8  # ceilings, which only fall
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

    gc.collect()  # what earlier tests have left is closed before, and is not of this walk
    sys.setprofile(seen)
    threading.setprofile(seen)
    try:
        found = walk()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return {Path(file).relative_to(ROOT).as_posix() for file in ran}, found


def test_a_rate_runs_through_few_files_from_the_cell_to_the_csv(cells, monkeypatch):
    checkpoints.checkpoint("smollm2-135m")  # made once for a checkout
    monkeypatch.setattr(plots, "run", lambda requests: None)  # the last cell, which draws what the CSV holds
    ran, names = executed(lambda: cells("latency", backend="fake", max_new_tokens=TOKENS))
    assert set(names["observed"]["max_new_tokens"]) == {TOKENS}
    assert (names["observed"]["output_tokens_per_s"] > 0).all()
    assert {"bench/experiments/session.py", "bench/experiments/running.py"} < ran
    assert FEWEST <= len(ran) <= TO_CSV, "\n".join(sorted(ran))


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
