"""Addresses that follow from the one setting of a fork: `repo-url` under `website` in _quarto.yml.

Quarto makes its own links to source and issues from the same setting.

    python -m bench.report.links https://github.com/owner/name      warns where the setting names another one
"""

import html
import sys
from functools import cache
from pathlib import Path
from urllib.parse import quote, urlsplit

import yaml

from bench.paths import ROOT

# The branch to which the workflow `publish` pushes a notebook for each figure (bench/report/notebooks.py).
NOTEBOOKS = "notebooks"


@cache
def _website(root):
    return yaml.safe_load((root / "_quarto.yml").read_text(encoding="utf-8")).get("website", {})


def repository(root: Path = ROOT) -> str:
    """Address of the repository without a slash at its end; empty where none is set."""
    return str(_website(root).get("repo-url") or "").rstrip("/")


def colab(figure: str, root: Path = ROOT) -> str:
    """Address that opens the notebook of `figure` in Colab; empty for a repository that is not on GitHub."""
    place = urlsplit(repository(root))
    if place.netloc != "github.com":
        return ""
    return f"https://colab.research.google.com/github{place.path}/blob/{NOTEBOOKS}/{quote(figure)}.ipynb"


def under_figure(figure: str, root: Path = ROOT) -> str:
    """HTML of the links under `figure`; empty where there is no repository."""
    if not colab(figure, root):
        return ""
    address = html.escape(colab(figure, root))
    return f' <a class="colab" href="{address}">Open in Colab</a>'


def main(address: str) -> None:
    """Warn, in the form that GitHub shows beside a workflow, where `repo-url` is not `address`."""
    if repository() != address.rstrip("/"):
        print(
            f"::warning file=_quarto.yml::repo-url is {repository() or 'not set'}, and this repository is "
            f"{address}: links to source, issues and Colab lead there. Set repo-url to {address}."
        )


if __name__ == "__main__":
    main(*sys.argv[1:2])
