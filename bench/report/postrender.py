"""What Quarto leaves to do after it has rendered (`post-render` in _quarto.yml).

    python -m bench.report.postrender [_site]

The pages that stand at former addresses (`aliases` of a page) lead on without JavaScript, the fold *Code* of
a labelled cell also has the command that runs it and the link to Colab, and the pages for language models
(llms.txt) have no packed data.
"""

import os
import re
import sys
from pathlib import Path

import jinja2
import pandas as pd

from bench.paths import ROOT, SITE
from bench.report import links, prerender
from bench.topics import commands

# A picture as an address of its own, and packed data: nothing that a language model reads.
EMBEDDED = re.compile(r"data:[\w/+.-]+;base64,[A-Za-z0-9+/=]+|[A-Za-z0-9+/]{400,}={0,2}")
# What stands at a former address. A script keeps the place within the page, or leads to where it is now
# (pages/moved.csv); without it a reader finds a link to it at that very place, and the refresh leads on.
MOVED = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Moved: {{ title }}</title>
<link rel="canonical" href="{{ address }}">
<style>li:target { font-weight: bold; } li:target::before { content: "→ "; }</style>
<script>
const places = {{ places | tojson }}, place = location.hash.slice(1);
location.replace(places[place] ?? "{{ address }}" + location.search + location.hash);
</script>
<meta http-equiv="refresh" content="{{ 5 if places else 0 }}; url={{ address }}">
</head>
<body>
<p>This page has moved to <a href="{{ address }}">{{ title }}</a>.</p>
{% if places %}
<ul>
{% for place, now in places.items() %}
<li id="{{ place }}"><a href="{{ now }}">{{ place }}</a></li>
{% endfor %}
</ul>
{% endif %}
</body>
</html>
""")


def page(source: str) -> str:
    """Return the address of the page that `source` becomes: latency.qmd -> latency.html."""
    return re.sub(r"\.qmd$", ".html", source)


def write_aliases(out: Path, root: Path = ROOT) -> None:
    """Write into the site `out` a page that leads on at each former address of a page (`aliases`)."""
    moved = pd.read_csv(root / "pages" / "moved.csv")
    for name in prerender.settings(root)["project"]["render"]:
        front, _ = prerender.read(root / name)
        for alias in prerender.many(front.get("aliases")):
            former = out / alias.removeprefix("/")
            former.parent.mkdir(parents=True, exist_ok=True)
            address = os.path.relpath(out / page(name), former.parent)
            places = moved[moved["before"] == former.stem].set_index("anchor")["now"]
            folder = os.path.relpath(out / "pages", former.parent)
            places = {place: os.path.normpath(f"{folder}/{now}") for place, now in places.items()}
            text = MOVED.render(address=address, title=front["title"], places=places)
            former.write_text(text, encoding="utf-8")


def llms_txt(site: dict, root: Path = ROOT, ending: str = ".llms.md") -> str:
    """Return the list of pages with their descriptions as https://llmstxt.org has it; `ending` is that of a
    page's Markdown under Quarto."""
    website = site["website"]
    lines = [f"# {website['title']}", "", f"> {website['description']}", "", "## Pages", ""]
    for name in site["project"]["render"]:
        front, _ = prerender.read(root / name)
        address = page(name).replace(".html", ending)
        lines.append(f"- [{front.get('title', name)}]({address}): {front.get('description', '')}")
    return "\n".join(lines) + "\n"


def mend_llms(out: Path, root: Path = ROOT) -> None:
    """Take the embedded files out of the pages for language models in the site `out`, and give their list
    the order and the descriptions of `llms_txt`."""
    for page_file in out.rglob("*.llms.md"):
        text = page_file.read_text(encoding="utf-8")
        page_file.write_text(EMBEDDED.sub("", text), encoding="utf-8")
    (out / "llms.txt").write_text(llms_txt(prerender.settings(root), root), encoding="utf-8")


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


def _with_command(found: re.Match) -> str:
    label = found["before"] or found["behind"]
    if not label or '<p class="command">' in found[0]:  # of a page that was rendered before
        return found[0]
    command, colab = f".venv/bin/python -m bench.cells {label}", ""
    if found["before"]:
        name = label.removeprefix("fig-")
        command, colab = (
            commands.papermill("figure", {"figure": name}, out="figure.ipynb"),
            links.under_figure(name),
        )
    end = found.start("end") - found.start()
    return f'{found[0][:end]}<p class="command"><code>{command}</code>{colab}</p>{found[0][end:]}'


def main(out: Path) -> None:
    """Mend the site `out`, which Quarto has rendered."""
    write_aliases(out)
    write_commands(out)
    mend_llms(out)


if __name__ == "__main__":
    rendered = sys.argv[1] if sys.argv[1:] else os.environ.get("QUARTO_PROJECT_OUTPUT_DIR") or SITE
    main(Path(rendered).resolve())
