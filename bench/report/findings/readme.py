"""The findings in a file: sentences and the headline figure at a marked place, from the runs that git
keeps."""

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from bench.observations import store
from bench.paths import ROOT

PLACE = re.compile(r"(<!-- findings: .*?-->\n).*?(<!-- end of findings -->)", re.S)
HEADLINE = (
    "![Every engine and option on every machine: how many times the output tokens/s of the option in "
    "front of all machines, with 95 % intervals](figures/across_machines.svg)"
)


def committed_files() -> list[Path]:
    """Paths of the CSVs of all runs that git keeps."""
    listing = ["git", "ls-files", "_llama-inference/*.csv"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [ROOT / name for name in names if "/hardware/" not in name and "/clients/" not in name]


def committed() -> pd.DataFrame:
    """All requests of the runs that git keeps: what a repository may claim of itself, whatever else this
    checkout has measured."""
    return store.load(committed_files())


def fill(text: str, sentences: Iterable[str]) -> str:
    """`text` with the sentences and the headline figure between the two comments that mark their place.

    ValueError without such a place.
    """
    if not PLACE.search(text):
        raise ValueError(
            "There is no place marked <!-- findings: … --> … <!-- end of findings --> in this file."
        )
    lines = "\n".join(f"- {sentence}" for sentence in sentences)
    return PLACE.sub(lambda place: f"{place[1]}{lines}\n\n{HEADLINE}\n{place[2]}", text)
