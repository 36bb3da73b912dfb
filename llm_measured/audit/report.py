"""The audit of benchmark files as text or JSON.

    llm-measured audit FILE... [--gpu h100_sxm --model llama-3-8b --tensor-parallel 2]
    [--map theirs=word] [--json OUT] [--all]

A folder stands for the files in it. What an option states overrules the files. Exit code 1 where something
is impossible, on one device or at all, or contradicts itself, 2 where a file could not be read, else 0.
"""

import argparse
import json
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import llm_measured.audit
from llm_measured.audit.checks import plausible, run
from llm_measured.audit.checks.finding import (
    ALARMS,
    CONTRADICTION,
    IMPOSSIBLE,
    KINDS,
    MISSING,
    UNCOUNTED,
    Finding,
    count,
)
from llm_measured.audit.frame import Placed
from llm_measured.audit.importers.units import GUESSED

FACTS = "model", "gpu", "weights", "engine", "engine_version"
COUNTS = "tensor_parallel", "batch_size", "concurrency", "prompt_tokens", "output_tokens"
TITLES = {
    "impossible": "Impossible",
    "impossible on one": "Impossible on one device",
    "contradicts itself": "Contradicts itself",
    "cannot be told": "Cannot be told",
}
WIDTH = 100


def plain(text: object) -> str:
    """`text` without anything that a terminal would take for a command: no control characters, no change of
    direction."""
    return "".join(c if c.isprintable() else " " for c in str(text))


def columns_read(placed: Sequence[Placed]) -> tuple[str, bool]:
    """(how many columns of tables were read and which not, whether all were); empty where no file is one."""
    unread = list(dict.fromkeys(name for one in placed for name in one.unread))
    total = sum(len(one.read) + len(one.metadata) + len(one.unread) for one in placed)
    if not total:
        return "", True
    noted = sum(len(one.metadata) for one in placed)
    said = f"read {sum(len(one.read) for one in placed)} of {total} columns"
    said += f" ({noted} {'notes' if noted == 1 else 'note'} what changes no figure)" if noted else ""
    if unread:
        names = ", ".join(name[:40] for name in unread[:UNREAD])
        said += f"; not read: {names}" + (f" and {len(unread) - UNREAD} more" if len(unread) > UNREAD else "")
    return said, not unread


def summary(findings: Sequence[Finding], files: int, unread: int = 0, placed: Sequence[Placed] = ()) -> str:
    """How many files and columns were read, and how many findings of each kind. What could not be read stands
    first, since nothing is known of it."""
    lost = f"{count(unread, 'file')} could not be read" if unread else ""
    if not files:
        return f"Nothing was audited: {lost or 'no file was named'}."
    n = {kind: sum(f.kind == kind and not f.consequence_of for f in findings) for kind in KINDS}
    parts = [
        count(n[IMPOSSIBLE], "impossible figure") if n[IMPOSSIBLE] else "",
        f"{count(n[UNCOUNTED], 'figure')} impossible on one device, where the file does not state enough"
        if n[UNCOUNTED]
        else "",
        count(n[CONTRADICTION], "contradiction") if n[CONTRADICTION] else "",
    ]
    columns, whole = columns_read(placed)
    nothing = "nothing impossible, no contradiction" if whole else "no contradiction in what was read"
    said = ", ".join(filter(None, parts)) or nothing
    begin = f"{lost}, {count(files, 'file')} audited" if lost else f"{count(files, 'file')} audited"
    if columns:
        return f"{begin}, {columns}. {said[0].upper()}{said[1:]}."
    return f"{begin}: {said}."


# What a file leaves unsaid, in the order in which stating it tells the most.
TO_STATE = (
    "overload",
    "device_missing",
    "model_missing",
    "dtype_missing",
    "lengths_missing",
    "requests_missing",
)
# What accuses nobody, and is said in any case.
SAID = "same_run_twice", "cold_first_request", "answers_end_early", "fewer_completed"
UNREAD = 12  # columns that were not read and are listed by name
SHOWN_NOTES, SHOWN_PLAUSIBLE = 5, 3  # sentences on the reading, and on what fits, without --all


def text(
    findings: Sequence[Finding],
    notes: Sequence[tuple[str, str]] = (),
    unread: Sequence[tuple[str, str]] = (),
    files: int = 1,
    plausible: Sequence[tuple[str, str]] = (),
    everything: bool = False,
    placed: Sequence[Placed] = (),
) -> str:
    """The report as text: what cannot be, each once with its smallest change, then the one thing to state to
    know more, and how the files were read; `everything`: also what follows from another finding, and all
    that cannot be told."""
    lines = _wrapped(summary(findings, files, len(unread), placed), "  ")
    guessed = [sentence for _, sentence in notes if GUESSED in sentence]
    notes = [note for note in notes if note[1] not in guessed]
    lines += [line for sentence in dict.fromkeys(guessed) for line in _wrapped(sentence, "  ")]
    lines += [line for _, sentence in unread for line in _wrapped(f"Not read: {sentence}", "  ")]
    for kind in KINDS[:-1]:
        found = [f for f in findings if f.kind == kind and (everything or not f.consequence_of)]
        lines += ["", TITLES[kind].upper()] if found else []
        for names, f in _once(found):
            cause = f" [follows from {f.consequence_of}]" if f.consequence_of else ""
            lines += _wrapped(f"- {names}: {f.sentence}{cause}", "  ")
            lines += _wrapped(f"  -> {f.change}", "     ") if f.change and kind != UNCOUNTED else []
    missing = [f for f in findings if f.kind == MISSING]
    lines += _unsaid(missing) if everything else _to_know_more(missing, findings)
    shown = plausible if everything else plausible[:SHOWN_PLAUSIBLE]
    lines += _section("PLAUSIBLE", shown)
    # What says no more than that a row is a row waits behind the others.
    last = [note for note in notes if note[1].startswith("Each row was")]
    ordered = [note for note in notes if note not in last] + last
    lines += _section("HOW IT WAS READ", ordered if everything else ordered[:SHOWN_NOTES])
    follow = sum(bool(f.consequence_of) and f.kind != MISSING for f in findings)
    hidden = [
        f"{count(follow, 'finding')} that follow{'s' if follow == 1 else ''} from the above"
        if follow
        else "",
        count(len(missing), "check") + " that did not run, for want of figures" if missing else "",
        count(len(notes) - SHOWN_NOTES, "note") + " on the reading" if len(notes) > SHOWN_NOTES else "",
    ]
    if not everything and any(hidden):
        lines += ["", *_wrapped(f"--all lists {', '.join(filter(None, hidden))}.", "  ")]
    return "\n".join(lines) + "\n"


def _once(findings):
    """(names of files, finding) of each finding, those that several files share word by word once."""
    alike: dict[tuple, list[Finding]] = {}
    for one in findings:
        alike.setdefault((one.check, one.sentence, one.consequence_of), []).append(one)
    for same in alike.values():
        names = list(dict.fromkeys(one.file for one in same))
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        yield (f"{len(names)} files ({shown})" if len(names) > 1 else shown), same[0]


def _to_know_more(missing, findings):
    """The section TO KNOW MORE, without --all: the checks that broke off, those of SAID, and one finding of
    TO_STATE, the first that is missing, unless a file has no result. No lines where there is none."""
    chosen = [f for f in missing if "broke off" in f.sentence]
    chosen += [f for f in missing if f.check in SAID]
    if not any(f.check == "no_result" for f in findings):
        to_state = [f for f in missing if f.check in TO_STATE]
        # min keeps the first of those that tell as much
        chosen += [min(to_state, key=lambda f: TO_STATE.index(f.check))] if to_state else []
    lines = ["", "TO KNOW MORE"] if chosen else []
    for names, f in _once(chosen):
        lines += _wrapped(f"- {names}: {f.sentence}", "  ")
    return lines


def _unsaid(missing):
    """All that cannot be told: one paragraph for a file of what it does not state."""
    if not missing:
        return []
    lines, absent = ["", TITLES[MISSING].upper()], [f for f in missing if f.check.endswith("_missing")]
    for names, f in _once([f for f in missing if f not in absent]):
        lines += _wrapped(f"- {names}: {f.sentence}", "  ")
    for file in dict.fromkeys(f.file for f in absent):
        lines += _wrapped(f"- {file}: " + " ".join(f.sentence for f in absent if f.file == file), "  ")
    return lines


def _section(title, sentences):
    """A heading and a line for each (file, sentence), a sentence that several files share once."""
    alike: dict[str, list[str]] = {}
    for name, sentence in sentences:
        alike.setdefault(sentence, []).append(name)
    lines = ["", title] if alike else []
    for sentence, names in alike.items():
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        lines += _wrapped(f"- {shown}: {sentence}", "  ")
    return lines


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


SUFFIXES = {".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".md", ".txt", ".log", ".yaml", ".yml"}
MOST_FILES = 2_000  # of a folder


def result_files(folder: Path) -> list[Path]:
    """The files of `folder`, however deep, that may be a benchmark's by their names, but sidecars."""
    named = [f for f in folder.rglob("*") if f.suffix.lower() in SUFFIXES and f.is_file()]
    return sorted(f for f in named if not _is_sidecar(f))


def _is_sidecar(file: Path) -> bool:
    """Whether `file` describes the CSV beside it, by that one's hash, and has no results of its own."""
    beside = file.with_suffix(".csv")
    return file.suffix == ".json" and beside.is_file() and b'"csv_sha256"' in file.read_bytes()


def expand(files: Sequence[str | Path]) -> tuple[list[Path], set[Path]]:
    """`files` with each folder replaced by the benchmark files in it, and which ones came from a folder."""
    out, inside = [], set()
    for file in map(Path, files):
        if file.is_dir():
            found = result_files(file)[:MOST_FILES]
            inside |= set(found)
            out += found
        else:
            out.append(file)
    return out, inside


def collect(files: Sequence[str | Path], mapping: dict[str, str] | None = None, **facts: Any) -> tuple:
    """(findings, notes, unread) of `files` and folders: what cannot be read is in `unread` (name,
    sentence), the
    rest is audited together. Of a folder, what is no benchmark's file is in the notes."""
    findings, notes, unread, *_ = full(files, mapping, **facts)
    return findings, notes, unread


def full(files: Sequence[str | Path], mapping: dict[str, str] | None = None, **facts: Any) -> tuple:
    """(findings, notes, unread, what was found plausible as (file, sentence), number of files read, what
    became of the columns of tables)."""
    parts, unread, others = [], [], []
    paths, inside = expand(files)
    for file in paths:
        try:
            parts.append(llm_measured.audit.importers.read(file, mapping))
        except ValueError as error:
            (others if file in inside else unread).append((file.name, str(error)))
        except MemoryError:
            sentence = f"{file.name} holds more than this machine's memory; audit a part of it."
            unread.append((file.name, sentence))
    if not parts:
        if inside or not paths:
            unread.append(("folder", "No file in the folder is a benchmark's result; name one that is."))
        return [], [], unread, [], 0, []
    read = llm_measured.audit.frame.join(parts).overruled(**facts)
    notes = list(read.notes)
    if others:
        names = ", ".join(name for name, _ in others[:6])
        notes.append(
            ("the folder", f"{count(len(others), 'file')} not read, as of no known format: {names}.")
        )
    findings = run(read)
    return findings, notes, unread, plausible.sentences(read, findings), len(parts), read.placed


def _pairs(texts):
    for one in texts:
        if "=" not in one:
            raise ValueError(f"--map needs theirs=word, not {one}.")
    return dict(one.split("=", 1) for one in texts)


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line's options as a namespace."""
    parser = argparse.ArgumentParser(
        prog="llm-measured audit",
        description=__doc__.split("\n\n")[0],
        epilog="llm-measured audit FILE... --place: also the expected range and the nearest published rows.",
    )
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
    parser.add_argument("--all", action="store_true", help="also what follows, and all that cannot be told")
    parser.add_argument("--json", metavar="OUT", help="write the report as JSON, too")
    for name in FACTS:
        parser.add_argument(f"--{name.replace('_', '-')}", help=f"{name}, in place of what the files state")
    for name in COUNTS:
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=float, help=f"{name}, in place of what the files state"
        )
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Audit the files that the command line names; returns the exit code."""
    options = arguments(words)
    facts = {name: getattr(options, name) for name in (*FACTS, *COUNTS) if getattr(options, name) is not None}
    try:
        findings, notes, unread, good, number, placed = full(options.files, _pairs(options.map), **facts)
    except ValueError as error:
        print(plain(error), file=sys.stderr)
        return 2
    print(text(findings, notes, unread, number, good, options.all, placed), end="")
    if options.json:
        Path(options.json).write_text(as_json(findings, notes, unread, good), encoding="utf-8")
    if any(f.kind in ALARMS for f in findings):
        return 1
    return 2 if unread else 0


if __name__ == "__main__":
    sys.exit(main())
