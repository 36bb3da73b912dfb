"""Audit of a benchmark file: what cannot be true, what contradicts itself, and what cannot be told.

import llm_measured.audit
for finding in llm_measured.audit.audit(["result.json"]):
    print(finding.kind, finding.sentence)
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llm_measured.audit import checks, frame, importers
from llm_measured.audit.checks.finding import Finding

__all__ = ["Finding", "audit", "read"]


def read(files: Sequence[str | Path], mapping: dict[str, str] | None = None, **facts: Any) -> frame.Audited:
    """Everything that `files` hold, in the frame of `llm_measured.audit.frame`.

    `mapping` renames columns of a CSV to the study's words; `facts` (model, gpu, weights, ...) stand in
    place of what the files state, or fail to.
    ValueError with one sentence for a file that cannot be read.
    """
    return frame.join([importers.read(file, mapping) for file in files]).overruled(**facts)


def audit(
    files: Sequence[str | Path], mapping: dict[str, str] | None = None, **facts: Any
) -> list[checks.Finding]:
    """List of `Finding`s of all `files` together, what explains the most first; see `read` for the
    parameters and errors."""
    return checks.run(read(files, mapping, **facts))
