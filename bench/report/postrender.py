"""What Quarto leaves to do after it has rendered (`post-render` in _quarto.yml).

    python -m bench.report.postrender [_site]

The pages that stand at former addresses (`aliases` of a page) lead on without JavaScript, and the fold *Code*
of a labelled cell also has the command that runs it and the link to Colab.
"""

import os
import re
import sys
from pathlib import Path
from urllib.parse import urlsplit

import jinja2
import pandas as pd

from bench.paths import ROOT, SITE
from bench.report import prerender
from bench.topics import commands

TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(ROOT / "assets"), autoescape=True, trim_blocks=True, lstrip_blocks=True
)


def write_aliases(out: Path) -> None:
    """Write into the site `out` a page that leads on at each former address of a page (`aliases`)."""
    moved = pd.read_csv(ROOT / "pages" / "moved.csv")
    moved_page = TEMPLATES.get_template("moved.jinja")
    for name in prerender.settings()["project"]["render"]:
        front, _ = prerender.read(ROOT / name)
        for alias in prerender.many(front.get("aliases")):
            former = out / alias.removeprefix("/")
            former.parent.mkdir(parents=True, exist_ok=True)
            address = os.path.relpath(out / name.replace(".qmd", ".html"), former.parent)
            places = moved[moved["before"] == former.stem].set_index("anchor")["now"]
            folder = os.path.relpath(out / "pages", former.parent)
            places = {place: os.path.normpath(f"{folder}/{now}") for place, now in places.items()}
            text = moved_page.render(address=address, title=front["title"], places=places)
            former.write_text(text, encoding="utf-8")


# The fold of a cell with its code, and the label that stands before it (a figure) or behind it (a table).
FOLD = re.compile(
    r'(?:id="cell-(?P<before>fig-[\w-]+)"[^>]*>\s*)?<details class="code-fold">(?:(?!</details>).)*'
    r'(?P<end></details>)(?:\s*<div id="(?P<behind>tbl-[\w-]+)")?',
    re.S,
)


def write_commands(out: Path) -> None:
    """Write the command of each labelled cell, and of a figure the link to Colab, into its fold *Code*."""
    for file in out.rglob("*.html"):
        text = file.read_text(encoding="utf-8")
        changed = FOLD.sub(_with_command, text)
        if changed != text:
            file.write_text(changed, encoding="utf-8")


def colab(root: Path = ROOT) -> str:
    """Return a link to notebooks/figure.ipynb in Colab, from the one setting of a fork, `repo-url` in
    _quarto.yml; empty where the repository is not on GitHub."""
    place = urlsplit(str(prerender.settings(root)["website"].get("repo-url") or ""))
    if place.netloc != "github.com":
        return ""
    path = place.path.rstrip("/")
    address = f"https://colab.research.google.com/github{path}/blob/main/notebooks/figure.ipynb"
    return f' <a class="colab" href="{address}">Open in Colab</a>'


def _with_command(found: re.Match) -> str:
    label = found["before"] or found["behind"]
    if not label or '<p class="command">' in found[0]:  # of a page that was rendered before
        return found[0]
    command, link = f".venv/bin/python -m bench.cells {label}", ""
    if found["before"]:
        figure = {"figure": label.removeprefix("fig-")}
        command, link = commands.papermill("figure", figure, out="figure.ipynb"), colab()
    end = found.start("end") - found.start()
    return f'{found[0][:end]}<p class="command"><code>{command}</code>{link}</p>{found[0][end:]}'


def main(out: Path) -> None:
    """Mend the site `out`, which Quarto has rendered."""
    write_aliases(out)
    write_commands(out)


if __name__ == "__main__":
    rendered = sys.argv[1] if sys.argv[1:] else os.environ.get("QUARTO_PROJECT_OUTPUT_DIR") or SITE
    main(Path(rendered).resolve())
