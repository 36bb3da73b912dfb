"""What every page waits for before its first cell shows anything, and what the last cell of a run needs."""

import sys

from commands import run

from bench.paths import ROOT

# nbformat brings jsonschema, and that, as Jupyter installs it, a grammar of addresses that is built at import.
SLOW = "nbformat jsonschema nbclient papermill torch transformers".split()


def test_no_page_waits_for_what_it_does_not_use():
    code = f"import sys, bench.report.ask, bench.report.verdicts; print([name for name in {SLOW} if name in sys.modules])"
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
