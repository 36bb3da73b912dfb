"""The audit of benchmark files as text, JSON or a page.

    llm-audit FILE... [--gpu h100_sxm --model llama-3-8b --tensor-parallel 2] [--map theirs=word] [--json OUT]
    [--html OUT]

A folder stands for the files in it. Exit code 1 where something is impossible or contradicts itself,
2 where a file could not be read, else 0.
"""

import argparse
import json
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import llm_audit
from llm_audit.checks import plausible, run
from llm_audit.checks.finding import CONTRADICTION, IMPOSSIBLE, KINDS, MISSING, Finding, count

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
{% if plausible %}<h2>Plausible</h2><ul>{% for name, found in plausible %}<li>{{ name }}: {{ found }}</li>{%
endfor %}</ul>{% endif %}
{% if notes %}<h2>How it was read</h2><ul>{% for name, note in notes %}<li>{{ name }}: {{ note }}</li>{%
endfor %}</ul>{% endif %}
<footer>Checks, formulas and sources: <code>llm_audit/checks/</code>.</footer>
</body></html>
"""


def plain(text: object) -> str:
    """`text` without anything that a terminal would take for a command: no control characters, no change of
    direction."""
    return "".join(c if c.isprintable() else " " for c in str(text))


def summary(findings: Sequence[Finding], files: int) -> str:
    """One sentence: how many files, and how many findings of each kind."""
    n = {kind: sum(f.kind == kind for f in findings) for kind in KINDS}
    parts = [
        count(n[IMPOSSIBLE], "impossible figure") if n[IMPOSSIBLE] else "nothing impossible",
        count(n[CONTRADICTION], "contradiction") if n[CONTRADICTION] else "no contradiction",
        f"{count(n[MISSING], 'point')} that cannot be told" if n[MISSING] else "nothing missing",
    ]
    return f"{count(files, 'file')} audited: {', '.join(parts)}."


def text(
    findings: Sequence[Finding],
    notes: Sequence[tuple[str, str]] = (),
    unread: Sequence[tuple[str, str]] = (),
    files: int = 1,
    plausible: Sequence[tuple[str, str]] = (),
) -> str:
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
    if plausible:
        lines += ["", "PLAUSIBLE"]
        lines += [line for name, found in plausible for line in _wrapped(f"- {name}: {found}", "  ")]
    if notes:
        lines += [
            "",
            "HOW IT WAS READ",
            *(line for name, note in notes for line in _wrapped(f"- {name}: {note}", "  ")),
        ]
    return "\n".join(lines) + "\n"


def _wrapped(line, indent):
    return textwrap.wrap(plain(line), WIDTH, subsequent_indent=indent, break_on_hyphens=False)


def as_json(
    findings: Sequence[Finding],
    notes: Sequence[tuple[str, str]] = (),
    unread: Sequence[tuple[str, str]] = (),
    plausible: Sequence[tuple[str, str]] = (),
) -> str:
    """The report as JSON text: findings (every field of `Finding`), what is plausible, notes, unread
    files."""
    content = {
        "findings": [asdict(f) for f in findings],
        "plausible": [{"file": name, "sentence": sentence} for name, sentence in plausible],
        "notes": [{"file": name, "note": note} for name, note in notes],
        "unread": [{"file": name, "reason": reason} for name, reason in unread],
    }
    return json.dumps(content, indent=1, ensure_ascii=True, default=float) + "\n"


def as_html(
    findings: Sequence[Finding],
    notes: Sequence[tuple[str, str]] = (),
    unread: Sequence[tuple[str, str]] = (),
    files: int = 1,
    plausible: Sequence[tuple[str, str]] = (),
) -> str:
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
        plausible=plausible,
        notes=notes,
        unread=[(plain(name), plain(sentence)) for name, sentence in unread],
    )


SUFFIXES = {".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".md"}
MOST_FILES = 2_000  # of a folder


def expand(files: Sequence[str | Path]) -> tuple[list[Path], set[Path]]:
    """`files` with each folder replaced by the benchmark files in it, and which ones came from a folder."""
    out, inside = [], set()
    for file in map(Path, files):
        if file.is_dir():
            found = sorted(f for f in file.rglob("*") if f.suffix.lower() in SUFFIXES and f.is_file())[
                :MOST_FILES
            ]
            inside |= set(found)
            out += found
        else:
            out.append(file)
    return out, inside


def collect(files: Sequence[str | Path], mapping: dict[str, str] | None = None, **facts: Any) -> tuple:
    """(findings, notes, unread) of `files` and folders: what cannot be read is in `unread` (name,
    sentence), the
    rest is audited together. Of a folder, what is no benchmark's file is in the notes."""
    findings, notes, unread, _, _ = full(files, mapping, **facts)
    return findings, notes, unread


def full(files: Sequence[str | Path], mapping: dict[str, str] | None = None, **facts: Any) -> tuple:
    """(findings, notes, unread, what was found plausible as (file, sentence), number of files read)."""
    parts, unread, others = [], [], []
    paths, inside = expand(files)
    for file in paths:
        try:
            parts.append(llm_audit.importers.read(file, mapping))
        except ValueError as error:
            (others if file in inside else unread).append((file.name, str(error)))
        except MemoryError:
            sentence = f"{file.name} holds more than this machine's memory; audit a part of it."
            unread.append((file.name, sentence))
    if not parts:
        if inside or not paths:
            unread.append(("folder", "No file in the folder is a benchmark's result; name one that is."))
        return [], [], unread, [], 0
    read = llm_audit.frame.join(parts).stated(**facts)
    notes = list(read.notes)
    if others:
        names = ", ".join(name for name, _ in others[:6])
        notes.append(
            ("the folder", f"{count(len(others), 'file')} not read, as of no known format: {names}.")
        )
    findings = run(read)
    return findings, notes, unread, plausible.sentences(read, findings), len(parts)


def _pairs(texts):
    for one in texts:
        if "=" not in one:
            raise ValueError(f"--map needs theirs=word, not {one}.")
    return dict(one.split("=", 1) for one in texts)


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line's options as a namespace."""
    parser = argparse.ArgumentParser(prog="llm-audit", description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="a benchmark's result file, of any known tool, or a folder"
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


def main(words: Sequence[str] | None = None) -> int:
    """Audit the files that the command line names; returns the exit code."""
    options = arguments(words)
    facts = {name: getattr(options, name) for name in (*FACTS, *COUNTS) if getattr(options, name) is not None}
    try:
        findings, notes, unread, good, number = full(options.files, _pairs(options.map), **facts)
    except ValueError as error:
        print(plain(error), file=sys.stderr)
        return 2
    print(text(findings, notes, unread, number, good), end="")
    for out, content in ((options.json, as_json), (options.html, as_html)):
        if out:
            more = {"files": number} if content is as_html else {}
            page = content(findings, notes, unread, plausible=good, **more)
            Path(out).write_text(page, encoding="utf-8")
    if any(f.kind in (IMPOSSIBLE, CONTRADICTION) for f in findings):
        return 1
    return 2 if unread else 0


if __name__ == "__main__":
    sys.exit(main())
