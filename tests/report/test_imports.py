"""What every page waits for before its first cell shows anything, and what the last cell of a run needs."""

import sys

from commands import run

from bench.paths import ROOT

# nbformat brings jsonschema, and that, as Jupyter installs it, a grammar of addresses that is built at import.
SLOW = "nbformat jsonschema nbclient papermill torch transformers".split()


def test_no_page_waits_for_what_it_does_not_use():
    code = f"import sys, bench.report.pages; print([name for name in {SLOW} if name in sys.modules])"
    assert run(sys.executable, "-c", code, PYTHONPATH=ROOT, BENCH_BACKENDS="").stdout.strip() == "[]"


def test_the_last_cell_of_a_run_does_without_statsmodels():
    """The engines' own environments have none; a run there is to end as whole as any other."""
    code = """
import sys
sys.modules["statsmodels"] = None
from bench.observations import store
from bench.report.figures import batching, latency, serving
for experiment, draw in (("latency", latency.run), ("batching", batching.sweep), ("serving", serving.load_levels)):
    draw(store.load([sorted(store.RESULTS.glob(f"vllm/{experiment}-*.csv"))[0]]))
    print(experiment)
"""
    done = run(sys.executable, "-c", code, PYTHONPATH=ROOT, BENCH_BACKENDS="", BENCH_RESULTS="")
    assert done.stdout.split() == ["latency", "batching", "serving"], done.stderr
