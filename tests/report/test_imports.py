"""What every page waits for before its first cell shows anything."""

import sys

from commands import run

from bench.paths import ROOT

# nbformat brings jsonschema, and that, as Jupyter installs it, a grammar of addresses that is built at import.
SLOW = "nbformat jsonschema nbclient papermill torch transformers".split()


def test_no_page_waits_for_what_it_does_not_use():
    code = f"import sys, bench.report.pages; print([name for name in {SLOW} if name in sys.modules])"
    assert run(sys.executable, "-c", code, PYTHONPATH=ROOT, BENCH_BACKENDS="").stdout.strip() == "[]"
