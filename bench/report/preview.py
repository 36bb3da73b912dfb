"""The pages as Quarto would show them, where Quarto is not installed.

    python -m bench.report.preview                 the pages that _quarto.yml lists, in _site/
    python -m bench.report.preview --out mysite    somewhere else
    python -m bench.report.preview --cells         only what cells show, before Quarto renders (`finished`)
    python -m bench.report.preview --llms          only mend Quarto's pages for language models, after it

Reads the same _quarto.yml, _environment, pages and assets as Quarto. jupytext reads the pages, IPython runs
their cells, `outputs` writes what they show as Markdown just as Quarto does, and pandoc, Quarto's own parser,
makes HTML of the whole. So what breaks a page there breaks it here: two displays of an `output: asis` cell
without an empty line between them are one paragraph. Search and themes are Quarto's alone.

Under Quarto each page is a kernel of its own. Here the processes that make pages are forked from one that has
imported what the pages import, which takes longer than most pages themselves.
"""

import argparse
import importlib.util
import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import nbformat
import yaml

from bench.machine import identity
from bench.paths import ROOT, SITE
from bench.report import finished
from bench.report import links as repository
from llm_measured.core.definitions import Value

CELL_S = 300
# A picture as an address of its own, and packed data: nothing that a language model reads.
EMBEDDED = re.compile(r"data:[\w/+.-]+;base64,[A-Za-z0-9+/=]+|[A-Za-z0-9+/]{400,}={0,2}")
SKELETON = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>$title$ – $site$</title>
$if(description)$
<meta name="description" content="$description$">
$endif$
<meta property="og:title" content="$title$ – $site$">
<meta property="og:description" content="$description$">
<meta property="og:type" content="website">
$if(image)$
<meta property="og:image" content="$root$$image$">
<meta property="og:image:alt" content="$image-alt$">
<meta name="twitter:card" content="summary_large_image">
$endif$
<link rel="icon" href="data:,">
<link rel="stylesheet" href="$root$assets/preview.css">
$for(css)$
<link rel="stylesheet" href="$root$$css$">
$endfor$
</head>
<body>
<a class="skip" href="#content">Skip to the text</a>
<header><nav aria-label="Pages">
<a class="brand" href="$root$index.html">$site$</a>
$for(links)$
$if(links.menu)$
<details name="menu"><summary>$links.text$</summary><div>
$for(links.menu)$
<a href="$root$$links.menu.href$"$if(links.menu.current)$ aria-current="page"$endif$>$links.menu.text$</a>
$endfor$
</div></details>
$else$
<a href="$root$$links.href$"$if(links.current)$ aria-current="page"$endif$>$links.text$</a>
$endif$
$endfor$
</nav></header>
<main id="content">
<h1>$title$</h1>
$if(description)$
<p class="subtitle">$description$</p>
$endif$
$if(toc)$
<nav id="TOC" aria-labelledby="toc-title">
<h2 id="toc-title">On this page</h2>
$table-of-contents$
</nav>
$endif$
$body$
<p class="source"><a href="$source$">Source of this page</a>
$if(issue)$
· <a href="$issue$">Report an issue</a>
$endif$
</p>
</main>
<script>
// Menus close with Escape, or when something else is clicked, as Bootstrap's do under Quarto.
const menus = document.querySelectorAll("header nav details");
const close = menu => { menu.open = false; };
document.addEventListener("keydown", event => {
  const menu = event.key === "Escape" && document.querySelector("header nav details[open]");
  if (menu) { close(menu); menu.querySelector("summary").focus(); }
});
document.addEventListener("click", event =>
  menus.forEach(menu => menu.contains(event.target) || close(menu)));
</script>
$for(include-after)$
$include-after$
$endfor$
</body>
</html>
"""


# What stands at an old address; as with Quarto the place within the page is kept.
MOVED = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Moved</title>
<link rel="canonical" href="{address}">
<script>location.replace("{address}" + location.search + location.hash);</script>
<noscript><meta http-equiv="refresh" content="0; url={address}"></noscript>
</head>
<body><p>This page is now at <a href="{address}">{address}</a>.</p></body>
</html>
"""


def settings(root: Path = ROOT) -> dict:
    """_quarto.yml as a dict."""
    return yaml.safe_load((root / "_quarto.yml").read_text(encoding="utf-8"))


def variables(root: Path = ROOT) -> dict[str, str]:
    """What the file _environment sets for every page, as Quarto reads it."""
    file = root / "_environment"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def many(value: Value) -> list:
    """A YAML value that may be absent, one thing or a list of things, as a list."""
    return value if isinstance(value, list) else [] if value is None else [value]


def read(page: Path) -> tuple[dict, nbformat.NotebookNode]:
    """(front matter as a dict, notebook) of a .qmd file; cells in Python, all else as it stands."""
    import jupytext

    notebook = jupytext.reads(page.read_text(encoding="utf-8"), fmt="Rmd")
    front = {}
    if notebook.cells and notebook.cells[0].cell_type == "raw":
        front = yaml.safe_load(notebook.cells.pop(0).source.strip().strip("-")) or {}
    return front, notebook


def imported(notebooks: Iterable[nbformat.NotebookNode]) -> list[str]:
    """Names of the modules that cells of `notebooks` import: what is worth loading once for all of them."""
    lines = [line for notebook in notebooks for cell in notebook.cells for line in cell.source.splitlines()]
    found = {}
    for line in lines:
        words = re.match(r"(?:from ([\w.]+) )?import ([\w., ]+)$", line)
        if words:
            names = [each.split(" as ")[0].strip() for each in words[2].split(",")]
            found |= dict.fromkeys(f"{words[1]}.{name}" if words[1] else name for name in names)
            found |= {words[1]: None} if words[1] else {}
    return [name for name in found if _is_module(name)]


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:  # its parent is no package
        return False


def execute(notebook: nbformat.NotebookNode, name: str, root: Path = ROOT) -> None:
    """Run every cell of `notebook` in place, in a namespace of its own, as IPython does in a kernel that
    starts in `root`, for the page `name`, a path there.

    SystemExit with page and traceback if a cell fails.
    """
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    os.chdir(root)
    os.environ.update(variables(root), QUARTO_DOCUMENT_PATH=str((root / name).parent), **{finished.LIVE: "1"})
    main_module = sys.modules["__main__"]  # IPython puts the page's own there
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    try:
        for cell in notebook.cells:
            if cell.cell_type == "code":
                _run(shell, cell, name)
    finally:
        sys.modules["__main__"] = main_module


def _run(shell, cell, name):
    """Run one cell and give it its outputs."""
    from IPython.utils.capture import capture_output

    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(CELL_S)
    with capture_output() as captured:
        done = shell.run_cell(cell.source)
    signal.alarm(0)
    error = done.error_before_exec or done.error_in_exec
    if error:
        trace = "".join(traceback.format_exception(error))
        raise SystemExit(f"{name}: a cell failed, so no site was written.\n{cell.source}\n{trace}")
    stream = [nbformat.v4.new_output("stream", text=captured.stdout)] if captured.stdout else []
    shown = [nbformat.v4.new_output("display_data", each.data) for each in captured.outputs]
    cell.outputs = stream + shown


def _too_long(*_):
    raise TimeoutError(f"The cell took longer than {CELL_S} s.")


def markdown(notebook: nbformat.NotebookNode, name: str) -> str:
    """Markdown of an executed notebook as Quarto hands it to pandoc; code of cells with `echo: true` only."""
    cells = [
        cell.source if cell.cell_type == "markdown" else code(cell) + outputs(cell, name)
        for cell in notebook.cells
    ]
    return "\n\n".join(cells) + "\n"


def code(cell: nbformat.NotebookNode) -> str:
    """Markdown of a cell's code where it says `echo: true`, folded with `code-fold: true`; else nothing."""
    lines = cell.source.splitlines()
    options = yaml.safe_load("\n".join(line[2:] for line in lines if line.startswith("#|"))) or {}
    if not options.get("echo"):
        return ""
    text = "\n".join(line for line in lines if not line.startswith("#|")).strip()
    block = f"```python\n{text}\n```\n\n"
    if not options.get("code-fold"):
        return block
    summary = options.get("code-summary", "Code")
    return f'<details class="code-fold">\n<summary>{summary}</summary>\n\n{block}</details>\n\n'


def outputs(cell: nbformat.NotebookNode, name: str) -> str:
    """Markdown of what one cell shows.

    Quarto puts each output into a fenced div, but writes those of a cell with `output: asis` one after the
    other, each ending with one newline and no more. Standard error is left out (`warning: false`).
    """
    shown = [_output(output, name) for output in cell.outputs if output.get("name") != "stderr"]
    if re.search(r"^#\|\s*output:\s*asis\s*$", cell.source, flags=re.MULTILINE):
        return "".join(shown)
    return "".join(f"::: {{.cell-output}}\n{text}:::\n\n" for text in shown)


def _output(output, name):
    """Markdown of one output; SystemExit for HTML, with which Quarto loads scripts from elsewhere."""
    if output.output_type == "stream":
        return f"```\n{output.text.rstrip()}\n```\n"
    if "text/html" in output.data:
        raise SystemExit(
            f"{name}: a cell shows text/html, for which Quarto loads jQuery and RequireJS from a CDN. "
            "Display Markdown with a raw block instead (`pages.show_html`)."
        )
    if "text/markdown" in output.data:
        return output.data["text/markdown"] + "\n"
    return f"```\n{output.data['text/plain'].rstrip()}\n```\n"


def links(website: dict, current: str) -> list[dict]:
    """The navbar as dicts of text, href and whether it is that of the page `current`; of a menu, `menu`: such
    dicts, instead of href."""
    navbar = website.get("navbar", {})
    return _entries(many(navbar.get("left")) + many(navbar.get("right")), current)


def _entries(entries: list, current: str) -> list[dict]:
    return [
        {"text": e["text"], "menu": _entries(e["menu"], current)}
        if "menu" in e
        else {
            "text": e.get("text", e["href"]),
            "href": page(e["href"]),
            "current": page(e["href"]) == current,
        }
        for e in entries
        if isinstance(e, dict) and ("href" in e or "menu" in e)
    ]


def page(source: str) -> str:
    """Address of the page that `source` becomes: latency.qmd -> latency.html."""
    return re.sub(r"\.qmd$", ".html", source)


def convert(text: str, variables: dict, options: dict, root: Path = ROOT) -> str:
    """A whole page of HTML from Markdown, through pandoc; `options` are those of the format html in
    _quarto.yml."""
    import pypandoc

    defaults = {
        "standalone": True,
        "wrap": "none",
        "section-divs": True,
        "syntax-highlighting": "none",
        "toc": bool(options.get("toc")),
        "toc-depth": options.get("toc-depth", 3),
        "variables": {**variables, "css": many(options.get("css"))},
        "metadata": {"title": variables["title"]},
        "include-after-body": [str(root / file) for file in many(options.get("include-after-body"))],
    }
    with tempfile.TemporaryDirectory() as scratch:
        template, settings = Path(scratch) / "template.html", Path(scratch) / "defaults.yaml"
        template.write_text(SKELETON, encoding="utf-8")
        settings.write_text(
            yaml.safe_dump(defaults | {"template": str(template)}, allow_unicode=True), encoding="utf-8"
        )
        html = pypandoc.convert_text(text, "html5", "markdown", extra_args=["--defaults", str(settings)])
    return re.sub(r'(href="[\w./-]+)\.qmd(?=["#])', r"\1.html", html)


def write(source: Path, site: dict, to: Path, root: Path = ROOT) -> None:
    """Execute the page `source` and write its HTML into the folder `to`, where the page has it in `root`, its
    source beside it, and a page that leads there at each address that it had before (`aliases`)."""
    front, notebook = read(source)
    name = source.relative_to(root).as_posix()
    execute(notebook, name, root)
    html, website = page(name), site["website"]
    variables = {
        "title": source.stem,
        **front,
        "root": "../" * name.count("/"),
        "site": website["title"],
        "links": links(website, html),
        "source": repository.source(name, root),
        "issue": repository.issue(root),
        **{name: website[name] for name in ("image", "image-alt") if name in website},
    }
    options = site["format"]["html"] | {key: front[key] for key in ("toc",) if key in front}
    text = convert(markdown(notebook, name), variables, options, root)
    (to / html).parent.mkdir(parents=True, exist_ok=True)
    (to / html).write_text(text, encoding="utf-8")
    shutil.copy(source, (to / html).parent)
    for alias in many(front.get("aliases")):
        old = to / alias.removeprefix("/")
        old.parent.mkdir(parents=True, exist_ok=True)
        old.write_text(MOVED.format(address=os.path.relpath(to / html, old.parent)), encoding="utf-8")


def make_cells(names: list[str], root: Path = ROOT) -> None:
    """Execute the pages `names` and keep what their cells show (`finished`), for Quarto, which reads it."""
    with _pool(names, root) as pool:
        for done in as_completed([pool.submit(_make_cells, name, root) for name in names]):
            done.result()


def _make_cells(name: str, root: Path) -> None:
    _, notebook = read(root / name)
    execute(notebook, name, root)
    for cell in notebook.cells:
        if cell.cell_type == "code" and "finished.replay" not in cell.source:
            finished.store(name, cell.source, [_kept(output, name) for output in cell.outputs])


def _kept(output, name):
    _output(output, name)  # refuses what a page may not show
    return {"stream": output.text} if output.output_type == "stream" else dict(output.data)


def _pool(names: list[str], root: Path) -> ProcessPoolExecutor:
    """Processes that make pages, forked from one that has imported what these import."""
    # Teams of threads on the same cores wait for each other, busily: pages are made beside each other.
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    beginning = multiprocessing.get_context("forkserver")
    beginning.set_forkserver_preload(imported(read(root / name)[1] for name in names))
    return ProcessPoolExecutor(identity.cores(), mp_context=beginning)


def asked(site: dict) -> list[str]:
    """The pages that Quarto is about to render, of those that `site` lists; all, where it does not say."""
    named = os.environ.get("QUARTO_PROJECT_INPUT_FILES", "").splitlines()
    wanted = [os.path.relpath(name, ROOT) if os.path.isabs(name) else name for name in named]
    every = site["project"]["render"]
    return [name for name in every if name in wanted] or every


def llms_txt(site: dict, root: Path = ROOT, ending: str = ".html") -> str:
    """The pages with their descriptions as https://llmstxt.org has it; under Quarto they are Markdown, with
    the `ending` .llms.md."""
    website = site["website"]
    lines = [f"# {website['title']}", "", f"> {website['description']}", "", "## Pages", ""]
    for name in site["project"]["render"]:
        front, _ = read(root / name)
        address = page(name).replace(".html", ending)
        lines.append(f"- [{front.get('title', name)}]({address}): {front.get('description', '')}")
    return "\n".join(lines) + "\n"


def mend_llms(out: Path, root: Path = ROOT) -> None:
    """Take the embedded files out of the pages that Quarto writes for language models into the folder `out`,
    and give its list of them the order and the descriptions of `llms_txt`."""
    for page_file in out.rglob("*.llms.md"):
        text = page_file.read_text(encoding="utf-8")
        page_file.write_text(EMBEDDED.sub("", text), encoding="utf-8")
    (out / "llms.txt").write_text(llms_txt(settings(root), root, ".llms.md"), encoding="utf-8")


def replace(out: Path, new: Path) -> None:
    """Put the folder `new` in the place of `out`; what was there goes only after `new` is complete."""
    if out.exists():
        out.rename(new.with_name("old"))
    new.rename(out)


def build(out: Path, root: Path = ROOT) -> Path:
    """Write the site into the folder `out`, in the place of an earlier one; return the path of its first
    page."""
    from tqdm import tqdm

    # Snakemake takes its target, index.html, away before it calls: any other page shows an earlier site as
    # well.
    if out.exists() and any(out.iterdir()) and not any(out.glob("*.html")):
        raise SystemExit(
            f"{out} is neither empty nor an earlier site, so it is left alone. "
            "Choose another folder with --out."
        )
    site = settings(root)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".site-") as scratch:
        new = Path(scratch) / "new"
        new.mkdir()
        # Files that cells of pages write, and figures that pages link, go straight into the site.
        os.environ |= {f"BENCH_{folder.upper()}": str(new / folder) for folder in ("downloads", "figures")}
        for folder in ("assets", "figures"):
            if (root / folder).is_dir():
                shutil.copytree(root / folder, new / folder, ignore=shutil.ignore_patterns("pages"))
        pages = site["project"]["render"]
        with _pool(pages, root) as pool:
            done = [pool.submit(write, root / name, site, new, root) for name in pages]
            try:
                for page_done in tqdm(as_completed(done), total=len(done), unit="page", leave=False):
                    page_done.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        if site["website"].get("llms-txt"):
            (new / "llms.txt").write_text(llms_txt(site, root), encoding="utf-8")
        replace(out, new)
    return out / page(pages[0])


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.report.preview", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--cells", action="store_true", help="only make what cells show, for Quarto")
    parser.add_argument("--llms", action="store_true", help="only mend what Quarto wrote for language models")
    parser.add_argument("--out", type=Path, default=SITE, help="folder of the site (default: _site)")
    given = parser.parse_args(arguments)
    if given.cells:
        make_cells(asked(settings()))
        return 0
    if given.llms:
        mend_llms(given.out.resolve())
        return 0
    print(f"Preview of the site: {build(given.out.resolve())}")
    return 0


if __name__ == "__main__":
    from bench.report import preview  # its own processes know it by this name

    sys.exit(preview.main())
