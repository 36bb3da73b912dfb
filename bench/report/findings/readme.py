"""Sentences of the topic readme."""

import re
import subprocess

from bench.observations import store
from bench.paths import ROOT


def committed_files():
    """Paths of the CSVs of all runs that git keeps."""
    listed = subprocess.run(
        ["git", "ls-files", "_llama-inference/*.csv"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    return [ROOT / name for name in listed if "/hardware/" not in name and "/clients/" not in name]


def committed():
    """All requests of the runs that git keeps: what a repository may claim of itself, whatever else this checkout has measured."""
    return store.load(committed_files())


def fill(text, sentences):
    """`text` with the sentences and the headline figure between the two comments that mark their place; ValueError without them."""
    place = re.compile(r"(<!-- findings: .*?-->\n).*?(<!-- end of findings -->)", re.S)
    if not place.search(text):
        raise ValueError(
            "There is no place marked <!-- findings: … --> … <!-- end of findings --> in this file."
        )
    said = (
        "\n".join(f"- {sentence}" for sentence in sentences)
        + "\n\n![Output tokens per second of every engine](figures/latency.svg)\n"
    )
    return place.sub(lambda found: found[1] + said + found[2], text)
