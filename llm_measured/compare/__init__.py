"""Compare two benchmark results: is B faster than A, by how much, and can it be told at all.

import llm_measured.compare
report = llm_measured.compare.compare(["a.json"], ["b.json"])
print(report["sentence"])

`reading` makes levels of files, `conditions` matches them and lists what differs, `ratios` estimates and
tests, `borrowed` has the scatter between runs of kinds of machines, `report` joins them, `render` prints
them.
"""

from llm_measured.compare.report import compare

__all__ = ["compare"]
