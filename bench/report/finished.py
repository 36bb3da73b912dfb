"""What the cells of pages show, made once before Quarto renders (`pre-render` in _quarto.yml), so that the
kernel of a page only reads it and imports neither the analysis nor Matplotlib.

    python -m bench.report.prerender      makes them; Quarto calls it by itself

The first cell of each page calls `replay`. From then on each cell whose output is here shows that output; any
other cell runs as it stands, as all of them do in a notebook of one's own.
"""

import hashlib
import json
import os
from pathlib import Path

from bench.paths import FINISHED

LIVE = "BENCH_CELLS_RUN"  # set while outputs are made: cells run then


def file(page: str, source: str) -> Path:
    """Where the output of the cell `source` of the page `page` (pages/latency.qmd) stands."""
    lines = [line.rstrip() for line in source.strip().splitlines() if not line.startswith("#|")]
    digest = hashlib.sha256("\n".join(lines).strip().encode()).hexdigest()[:16]
    return FINISHED / page.replace("/", "-") / f"{digest}.json"


def store(page: str, source: str, shown: list[dict[str, str]]) -> None:
    """Keep what a cell shows: a list of displays, each a dict of MIME types, or {"stream": text} of what it
    printed."""
    place = file(page, source)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(shown, ensure_ascii=False), encoding="utf-8")


def show(place: str) -> None:
    """Show again what a cell has shown."""
    from IPython.display import display

    for each in json.loads(Path(place).read_text(encoding="utf-8")):
        if "stream" in each:
            print(each["stream"], end="")
        else:
            display(each, raw=True)


def replay(page: str) -> None:
    """In a kernel that renders `page`, let every later cell show its finished output where there is one."""
    from IPython import get_ipython

    shell = get_ipython()
    if shell is None or not os.environ.get("SHOWN_ON_A_PAGE") or os.environ.get(LIVE):
        return

    def finished(lines: list[str]) -> list[str]:
        place = file(page, "".join(lines))
        if not place.exists():
            return lines
        return ["from bench.report import finished\n", f"finished.show({str(place)!r})\n"]

    shell.input_transformers_cleanup.append(finished)
