"""How many files of this repository run on the way of a number: from the cell that asks for it to the CSV, and from a
table's CSV to the picture. A file counts if one of its functions runs, whatever imports it.
"""

import sys

import pytest
from commands import TESTS, run
from walking import executed

from bench import cells as page_cells
from bench import plots
from bench.backends.common import checkpoints

TOKENS = 37  # a number that nothing else has by chance
TO_CSV, TO_PICTURE = 34, 5  # ceilings, which only fall
MODULES = 80  # of ours that a kernel has imported after the last cell of a run
FEWEST = 4
KERNEL = """
import sys
from commands import run_cells
run_cells("latency", {"backend": "fake", "max_new_tokens": 5, "results": sys.argv[1]})
print("\\n".join(name for name in sys.modules if name.split(".")[0] in ("bench", "llm_measured")))
"""


def test_a_rate_runs_through_few_files_from_the_cell_to_the_csv(cells, monkeypatch):
    checkpoints.checkpoint("smollm2-135m")  # made once for a checkout
    monkeypatch.setattr(plots, "run", lambda requests: None)  # the last cell, which draws what the CSV holds
    ran, names = executed(lambda: cells("latency", backend="fake", max_new_tokens=TOKENS))
    assert set(names["observed"]["max_new_tokens"]) == {TOKENS}
    assert (names["observed"]["output_tokens_per_s"] > 0).all()
    assert {"bench/experiments/session.py", "bench/experiments/running.py"} < ran
    ran.discard("bench/machine/sampler.py")  # samples where a run outlasts its interval, as on a busy machine
    assert FEWEST <= len(ran) <= TO_CSV, "\n".join(sorted(ran))


@pytest.mark.check
def test_a_figure_is_drawn_from_its_table_by_few_files():
    code = compile(page_cells.source("fig-latency"), "cell", "exec")
    exec(code, {})  # what is imported runs once
    ran, _ = executed(lambda: exec(code, {}))
    assert "bench/plots.py" in ran and FEWEST <= len(ran) <= TO_PICTURE, sorted(ran)


@pytest.mark.check
def test_a_run_imports_what_it_needs_to_measure(tmp_path):
    here = {
        "PYTHONPATH": f"{TESTS}:{TESTS.parent}",
        "FAKE_NEIGHBOURS": "minded by nobody",
        "TMPDIR": tmp_path,
    }
    names = run(sys.executable, "-c", KERNEL, tmp_path / "out", **here).stdout.splitlines()
    names = [name for name in names if name.split(".")[0] in ("bench", "llm_measured")]
    assert "bench.plots" in names and len(names) <= MODULES, names


@pytest.mark.check
def test_a_row_says_what_its_cell_asked_for(cells):
    """Whoever edits the number in the cell gets rows that say so, whatever the parameter was."""
    names = cells("latency", backend="fake", max_new_tokens=TOKENS)
    run = names["setup"]
    row = run.row(1, 1, [5, 6], {"output_ids": [7, 8, 9]}, max_new_tokens=3)
    assert row["max_new_tokens"] == 3 and run.parameters["max_new_tokens"] == TOKENS
