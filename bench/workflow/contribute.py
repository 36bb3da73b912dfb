"""Checks the runs that somebody wants to commit.

    python -m bench.workflow.contribute                       what this checkout adds (make contribute)
    python -m bench.workflow.contribute --base upstream/main  compared with another commit
    python -m bench.workflow.contribute --from folder         runs that somebody sent, as if copied here
    python -m bench.workflow.contribute --from folder --take  and copies those that pass

Exit code 1 with one sentence per fault. The workflow of a pull request calls the same.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat

from bench.paths import ROOT
from bench.workflow import candidates, run_notebook, vetting
from bench.workflow.candidates import OBSERVATIONS, Candidate
from llm_measured.core import naming


def check(
    root: Path, base: str, folder: Path | None = None
) -> tuple[dict[str, list[str]], list[tuple[str, str]], list[Candidate]]:
    """({run: sentences} of every new run, [(file, sentence)] of other files, all new runs) of a checkout.

    `base`: the commit that is compared with; `folder`: where runs lie that are not in the checkout.
    """
    new, others = candidates.of_folder(folder, root, base) if folder else candidates.of_checkout(root, base)
    repository = vetting.Repository(root, base, new)
    sentences = {candidate.run: vetting.faults(candidate, repository) for candidate in new}
    size = sum(file.stat().st_size for candidate in new for file in candidate.files.values())
    if size > vetting.ALL_BYTES:
        limit = f"{vetting.ALL_BYTES / 1e6:.0f} MB are the limit: contribute in parts."
        others.append(("all files", f"{size / 1e6:.0f} MB together, and {limit}"))
    return sentences, others, new


def notes(new: Sequence[Candidate], root: Path) -> list[str]:
    """What a reviewer should know of runs that pass: one sentence each."""
    sentences, runs = [], {candidate.run for candidate in new}
    for candidate in new:
        stem, number = naming.split_number(candidate.run)
        before = [f"{stem}-{n}" for n in range(1, int(number) if number.isdigit() else 1)]
        gone = [
            run for run in before if run not in runs and not (root / OBSERVATIONS / f"{run}.csv").exists()
        ]
        if gone:
            sentences.append(
                f"`{candidate.run}`: {', '.join(gone)} are not here; say in the pull request why."
            )
    return sentences


def take(new: Sequence[Candidate], root: Path) -> None:
    """Copy the files of the runs `new` into the observations of the checkout `root`, notebooks without their
    pictures."""
    for candidate in new:
        for suffix, file in candidate.files.items():
            target = root / OBSERVATIONS / f"{candidate.run}{suffix}"
            target.parent.mkdir(parents=True, exist_ok=True)
            if file == target:
                continue
            if suffix == ".ipynb":
                notebook = nbformat.read(file, as_version=4)
                run_notebook.drop_pictures(notebook)
                nbformat.write(notebook, target)
            else:
                shutil.copyfile(file, target)


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m bench.workflow.contribute", description=__doc__.split("\n")[0]
    )
    parser.add_argument(
        "--base", default="", help="branch or commit to compare with (default: where main is)"
    )
    parser.add_argument("--from", dest="folder", help="folder with runs that are not in this checkout")
    parser.add_argument("--take", action="store_true", help="with --from: copy the runs that pass")
    parser.add_argument("--root", type=Path, help="checkout to look at (default: this one)")
    return parser


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """The command line; returns the exit code."""
    options = _parser().parse_args(arguments)
    root = (options.root or root).resolve()
    try:
        base = candidates.base(root, options.base)
        sentences, others, new = check(root, base, options.folder)
        return _report(options, root, base, sentences, others, new)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1


def _report(options, root, base, sentences, others, new):
    """Print everything as Markdown; returns the exit code."""
    if not new and not others:
        print(f"Nothing under {OBSERVATIONS}/ differs from {base[:7]}: there is no run to check.")
        return 0
    good = [candidate for candidate in new if not sentences[candidate.run]]
    print(f"# Contribution: {len(new)} runs beside {base[:7]}, {len(good)} may be committed\n")
    faults = [(run, sentence) for run, several in sentences.items() for sentence in several] + others
    _section("Faults", [f"- `{where}`: {sentence}" for where, sentence in faults])
    _section("Notes", [f"- {sentence}" for sentence in notes(good, root)])
    if options.take:
        take(good, root)
        print(f"Copied into {OBSERVATIONS}/: {len(good)} runs.")
    return 1 if faults else 0


def _section(title, lines):
    if lines:
        print(f"## {title}\n\n" + "\n".join(lines) + "\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
