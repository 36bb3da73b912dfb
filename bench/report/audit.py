"""The audit of benchmark files as text, JSON or a page.

    python -m bench.report.audit FILE... [--model M --gpu G --weights W] [--map theirs=word] [--json OUT]
    [--html OUT]

Exit code 1 where something is impossible, 2 where a file could not be read, else 0.
"""

import argparse
import json
import sys
import textwrap
from dataclasses import asdict
from pathlib import Path

from bench.analysis import audit
from bench.analysis.audit.checks import run
from bench.analysis.audit.checks.finding import IMPOSSIBLE, KINDS, MISSING

FACTS = "model", "gpu", "weights", "engine", "engine_version"
COUNTS = "tensor_parallel", "batch_size", "concurrency", "prompt_tokens", "output_tokens"
TITLES = {
    "impossible": "Impossible",
    "contradicts itself": "Contradicts itself",
    "cannot be told": "Cannot be told",
}
WIDTH = 100
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,
initial-scale=1">
<title>Audit of {{ files | join(", ") }}</title>
<style>
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 0 auto; padding: 1rem; overflow-wrap:
anywhere; }
article { border-left: .3rem solid; padding: .1rem 1rem; margin: 1rem 0; }
.impossible { border-color: #b3261e; } .contradicts { border-color: #b8860b; } .cannot { border-color:
#6b7280; }
.change, .cause, footer { opacity: .8; font-size: .93rem; } code { font-size: .9em; }
</style></head><body>
<h1>Audit</h1>
<p>{{ summary }}</p>
{% for name, sentence in unread %}<p><strong>{{ name }}</strong> was not read: {{ sentence }}</p>{% endfor %}
{% for kind, found in groups if found %}<h2>{{ titles[kind] }}</h2>
{% for f in found %}<article class="{{ kind.split()[0] }}"><p><strong>{{ f.file }}</strong>: {{ f.sentence
}}</p>
{% if f.change %}<p class="change">{{ f.change }}</p>{% endif %}
{% if f.consequence_of %}<p class="cause">Follows from <code>{{ f.consequence_of }}</code>.</p>{% endif
%}</article>
{% endfor %}{% endfor %}
{% if notes %}<h2>How it was read</h2><ul>{% for name, note in notes %}<li>{{ name }}: {{ note }}</li>{%
endfor %}</ul>{% endif %}
<footer>Checks, formulas and sources: <code>bench/analysis/audit/checks/</code>.</footer>
</body></html>
"""


def plain(text):
    """`text` without anything that a terminal would take for a command: no control characters, no change of
    direction."""
    return "".join(c if c.isprintable() else " " for c in str(text))


def summary(findings, files):
    """One sentence: how many files, and how many findings of each kind."""
    parts = [f"{sum(f.kind == kind for f in findings)} {TITLES[kind].lower()}" for kind in KINDS]
    return f"{files} file{'' if files == 1 else 's'} audited: {', '.join(parts)}."


def text(findings, notes=(), unread=(), files=1):
    """The report as text: per class the findings, each with its smallest change; what is missing in one
    line per file."""
    lines = [summary(findings, files)]
    lines += [f"Not read: {plain(sentence)}" for _, sentence in unread]
    for kind in KINDS:
        found = [f for f in findings if f.kind == kind]
        if found:
            lines += ["", TITLES[kind].upper()]
        absent = [f for f in found if f.check.endswith("_missing")]
        for f in (f for f in found if f not in absent):
            cause = f" [follows from {f.consequence_of}]" if f.consequence_of else ""
            lines += _wrapped(f"- {f.file}: {f.sentence}{cause}", "  ")
            lines += _wrapped(f"  -> {f.change}", "     ") if f.change and kind != MISSING else []
        for file in dict.fromkeys(f.file for f in absent):
            lines += _wrapped(f"- {file}: " + " ".join(f.sentence for f in absent if f.file == file), "  ")
    if notes:
        lines += [
            "",
            "HOW IT WAS READ",
            *(line for name, note in notes for line in _wrapped(f"- {name}: {note}", "  ")),
        ]
    return "\n".join(lines) + "\n"


def _wrapped(line, indent):
    return textwrap.wrap(plain(line), WIDTH, subsequent_indent=indent, break_on_hyphens=False)


def as_json(findings, notes=(), unread=()):
    """The report as JSON text: findings (every field of `Finding`), notes and unread files."""
    content = {
        "findings": [asdict(f) for f in findings],
        "notes": [{"file": name, "note": note} for name, note in notes],
        "unread": [{"file": name, "reason": reason} for name, reason in unread],
    }
    return json.dumps(content, indent=1, ensure_ascii=True, default=float) + "\n"


def as_html(findings, notes=(), unread=(), files=1):
    """The report as a page of its own: everything that a file holds is escaped, nothing is loaded from
    elsewhere."""
    import jinja2

    page = jinja2.Environment(autoescape=True).from_string(PAGE)
    names = list(dict.fromkeys(plain(f.file) for f in findings))
    groups = [(kind, [f for f in findings if f.kind == kind]) for kind in KINDS]
    return page.render(
        files=names,
        summary=summary(findings, files),
        groups=groups,
        titles=TITLES,
        notes=notes,
        unread=[(plain(name), plain(sentence)) for name, sentence in unread],
    )


def collect(files, mapping=None, **facts):
    """(findings, notes, unread) of `files`: what cannot be read is in `unread` (name, sentence), the rest
    is audited together."""
    parts, unread = [], []
    for file in files:
        try:
            parts.append(audit.importers.read(file, mapping))
        except ValueError as error:
            unread.append((Path(file).name, str(error)))
        except MemoryError:
            unread.append(
                (
                    Path(file).name,
                    f"{Path(file).name} holds more than this machine's memory; audit a part of it.",
                )
            )
    if not parts:
        return [], [], unread
    read = audit.frame.join(parts).stated(**facts)
    return run(read), read.notes, unread


def _pairs(texts):
    for one in texts:
        if "=" not in one:
            raise ValueError(f"--map needs theirs=word, not {one}.")
    return dict(one.split("=", 1) for one in texts)


def arguments(words):
    """The command line's options as a namespace."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.report.audit", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="a benchmark's result file, of any known tool"
    )
    parser.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="THEIRS=WORD",
        help="what a column of a CSV means, in the study's words",
    )
    parser.add_argument("--json", metavar="OUT", help="write the report as JSON, too")
    parser.add_argument("--html", metavar="OUT", help="write the report as a page, too")
    for name in FACTS:
        parser.add_argument(f"--{name.replace('_', '-')}", help=f"{name} where the files state none")
    for name in COUNTS:
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=float, help=f"{name} where the files state none"
        )
    return parser.parse_args(words)


def main(words=None):
    """Audit the files that the command line names; returns the exit code."""
    options = arguments(words)
    facts = {name: getattr(options, name) for name in (*FACTS, *COUNTS) if getattr(options, name) is not None}
    try:
        findings, notes, unread = collect(options.files, _pairs(options.map), **facts)
    except ValueError as error:
        print(plain(error), file=sys.stderr)
        return 2
    number = len(options.files) - len(unread)
    print(text(findings, notes, unread, number), end="")
    for out, content in ((options.json, as_json), (options.html, as_html)):
        if out:
            more = {"files": number} if content is as_html else {}
            Path(out).write_text(content(findings, notes, unread, **more), encoding="utf-8")
    return 1 if any(f.kind == IMPOSSIBLE for f in findings) else 2 if unread else 0


if __name__ == "__main__":
    sys.exit(main())
