"""What a run waits for, said on the screen: by the run itself, and by the study that has started it.

A study's runs execute in kernels whose output goes into notebooks, so the sentence also lies in a file while
the run waits; `bench.workflow.progress` shows it.
"""

import time
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.paths import LOGS, ROOT
from llm_measured.core import files

FILE = ROOT / LOGS / "waiting.txt"


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
            files.write_whole(FILE, self.said)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.said:
            FILE.unlink(missing_ok=True)
            print(f"Waited {time.monotonic() - self.since:.0f} s.", flush=True)


def now(file: Path | None = None) -> str:
    """What a run of this checkout waits for at the moment, in a sentence; empty where none waits."""
    try:
        return (file or FILE).read_text(encoding="utf-8")
    except OSError:
        return ""
