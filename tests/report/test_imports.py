"""What every page waits for before its first cell shows anything, what the last cell of a run needs, and how
many files run from a table's CSV to the front page."""

import sys

import pytest
from commands import run
from walking import executed

from bench.paths import ROOT
from bench.report import prerender

# nbformat brings jsonschema, and that, as Jupyter installs it, a grammar of addresses that is built at import.
SLOW = "nbformat jsonschema nbclient papermill torch transformers".split()


def test_no_page_waits_for_what_it_does_not_use():
    code = f"import sys, bench.plots, bench.report.cards, bench.report.verdicts; print([name for name in {SLOW} if name in sys.modules])"
    assert run(sys.executable, "-c", code, PYTHONPATH=ROOT, BENCH_BACKENDS="").stdout.strip() == "[]"


def test_the_last_cell_of_a_run_does_without_statsmodels():
    """The engines' own environments have none; a run there is to end as whole as any other."""
    code = """
import json, sys
sys.modules["statsmodels"] = None
from bench.observations import store
for name in ("latency", "batching", "serving"):
    path = sorted(store.RESULTS.glob(f"vllm/{name}-*.csv"))[0]
    requests, input_tokens, display = store.load([path]), 512, lambda shown: None
    exec("".join(json.load(open(f"notebooks/{name}.ipynb"))["cells"][-1]["source"]))
    print(name)
"""
    done = run(sys.executable, "-c", code, PYTHONPATH=ROOT, BENCH_BACKENDS="", BENCH_RESULTS="")
    assert done.stdout.split() == ["latency", "batching", "serving"], done.stderr


TO_FRONT_PAGE, WITH_OUR_RUNS = 6, 8  # ceilings, which only fall


@pytest.mark.check
def test_a_published_number_runs_through_few_files_from_its_table_to_the_front_page(monkeypatch):
    monkeypatch.setenv("SHOWN_ON_A_PAGE", "1")
    monkeypatch.chdir(ROOT)
    theirs, all_files = set(), set()
    for cell in prerender.read(ROOT / "index.qmd")[1].cells:
        if cell.cell_type == "code":
            code = compile(cell.source, "cell", "exec")
            exec(code, {})  # what is imported, or made once for a checkout
            ran, _ = executed(lambda code=code: exec(code, {}))
            all_files |= ran
            theirs |= ran if "site.table(" not in cell.source else set()
    assert {"bench/plots.py", "bench/report/verdicts.py"} < theirs
    assert len(theirs) <= TO_FRONT_PAGE and len(all_files) <= WITH_OUR_RUNS, sorted(all_files)
