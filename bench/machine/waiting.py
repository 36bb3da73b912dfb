"""What a run waits for or is disturbed by, said on the screen: by the run itself, and by the study that has
started it.

A study's runs execute in kernels whose output goes into notebooks, so the sentence also lies in a file;
`bench.workflow.progress` shows it. A killed run leaves its file behind, so a sentence is known by when it was
written, not by its words.
"""

import time
from types import TracebackType
from typing import Self

from bench.paths import LOGS, ROOT
from llm_measured.core import files

FILE = ROOT / LOGS / "waiting.txt"
WARNING = "Warning: "  # how a sentence begins on what disturbs a run that goes on


class Waiting:
    """Context in which something may be waited for: `say` prints it once, and the end removes the file."""

    def __init__(self) -> None:
        self.since, self.said = time.monotonic(), ""

    def __enter__(self) -> Self:
        return self

    def say(self, what: str) -> None:
        """Say `Waiting <what>`, the first time that it is called."""
        if not self.said:
            self.said = f"Waiting {what}."
            print(self.said, flush=True)
            tell(self.said)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.said:
            FILE.unlink(missing_ok=True)
            print(f"Waited {time.monotonic() - self.since:.0f} s.", flush=True)


def tell(sentence: str) -> None:
    """Hand `sentence` to the study that has started this run, if one has."""
    files.write_whole(FILE, sentence)


def told() -> tuple[int, str]:
    """(when it was written, the last sentence of a run of this checkout); (0, "") where there is none."""
    try:
        return FILE.stat().st_mtime_ns, FILE.read_text(encoding="utf-8")
    except OSError:
        return 0, ""
