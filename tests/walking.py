"""Which files of the repository run while something does."""

import gc
import sys
import threading
from pathlib import Path

from bench.paths import ROOT

OURS = str(ROOT / "bench"), str(ROOT / "llm_measured")


def executed(walk):
    """(files of the repository of which a function runs while `walk()` does, what it returns): imports apart."""
    ran = set()

    def seen(frame, event, _):
        file = frame.f_code.co_filename
        if event != "call" or file in ran or not file.startswith(OURS):
            return
        while frame is not None:
            if "importlib" in frame.f_code.co_filename:
                return
            frame = frame.f_back
        ran.add(file)

    gc.collect()  # what earlier tests have left is closed before, and is not of this walk
    sys.setprofile(seen)
    threading.setprofile(seen)
    try:
        found = walk()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return {Path(file).relative_to(ROOT).as_posix() for file in ran}, found
