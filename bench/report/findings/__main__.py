"""python -m bench.report.findings [README.md]: the sentences on the terminal, or into the marked place of a
file."""

import sys

from bench import html
from bench.observations import store
from bench.paths import ROOT
from bench.report import findings
from bench.report.findings import readme

try:
    if sys.argv[1:]:
        page = ROOT / sys.argv[1]
        sentences = findings.headlines(readme.committed())
        page.write_text(readme.fill(page.read_text(encoding="utf-8"), sentences), encoding="utf-8")
    else:
        print("\n".join(findings.headlines(store.load())) or html.EMPTY)
except ValueError as error:  # no marked place, or a BENCH_FRONT that has not measured
    sys.exit(str(error))
