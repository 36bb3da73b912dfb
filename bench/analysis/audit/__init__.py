"""Audit of a benchmark file: what cannot be true, what contradicts itself, and what cannot be told.

from bench.analysis import audit
for finding in audit.audit(["result.json"]):
    print(finding.kind, finding.sentence)
"""

from bench.analysis.audit import checks, frame, importers
from bench.analysis.audit.checks.finding import Finding

__all__ = ["Finding", "audit", "read"]


def read(files, mapping=None, **facts):
    """Everything that `files` hold, in the frame of `bench.analysis.audit.frame`.

    `mapping` renames columns of a CSV to the study's words; `facts` (model, gpu, weights, ...) fill what no
    file states.
    ValueError with one sentence for a file that cannot be read.
    """
    return frame.join([importers.read(file, mapping) for file in files]).stated(**facts)


def audit(files, mapping=None, **facts):
    """List of `Finding`s of all `files` together, what explains the most first; see `read` for the
    parameters and errors."""
    return checks.run(read(files, mapping, **facts))
