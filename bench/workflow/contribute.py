"""Checks the runs that somebody wants to commit.

    python -m bench.workflow.contribute                       what this checkout adds (make contribute)
    python -m bench.workflow.contribute --base upstream/main  compared with another commit
    python -m bench.workflow.contribute --from folder         runs that somebody sent, as if copied here
    python -m bench.workflow.contribute --from folder --take  and copies those that pass

Exit code 1 with one sentence per fault. The workflow of a pull request calls the same.
"""

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

import nbformat
import pandas as pd

from bench.observations import checks, provenance, schema, store
from bench.paths import COMMITTED, ROOT
from bench.workflow import leaks, run_notebook
from llm_measured.core import naming
from llm_measured.core.definitions import Fields

OBSERVATIONS = COMMITTED.name
TABLES = "data/tables"
SQUASHED = "data/squashed_revisions.csv"
SUFFIXES = ".csv", ".json", ".ipynb"
PART = re.compile(r"(?P<run>[\w.-]+/[\w.-]+)(?P<suffix>\.csv|\.json|\.ipynb)")
# Where a fork knows the repository that it came from, that one is compared with.
BASES = "upstream/main", "origin/HEAD", "origin/main", "HEAD"
FILE_BYTES = 2_000_000  # of one file; the largest of a hundred runs has a fifth of that
ALL_BYTES = 50_000_000  # of everything in one contribution
ROUNDING = 0.51e-4  # notebooks show four decimals
# Folder of what is no run but measured of a machine or a load client -> its columns, and how it is named.
APART = {
    "hardware": ({*schema.PEAKS, "gpu", "host"}, store.peaks_id),
    "clients": ({*schema.ACCURACY, "gpu", "host"}, store.accuracy_id),
}


@dataclass
class Candidate:
    """One run that is new: its id, and the file of each suffix."""

    run: str
    files: dict[str, Path] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        return self.run.partition("/")[0]

    @cached_property
    def sidecar(self) -> Fields:
        return json.loads(self.files[".json"].read_text(encoding="utf-8"))

    @cached_property
    def rows(self) -> pd.DataFrame:
        """Rows of the CSV; the sidecar must lie beside it for `store.read`."""
        return schema.frame(store.read(self.files[".csv"])[0])


class Repository:
    """Holds what runs are compared with: the history of `root`, the commit `base`, and the runs there."""

    def __init__(self, root: Path, base: str, new: Sequence[Candidate]) -> None:
        self.root, self.base, self._new = root, base, {candidate.run for candidate in new}
        self.history = set(git(root, "rev-list", "HEAD").split())
        self.shallow = git(root, "rev-parse", "--is-shallow-repository").strip() == "true"
        # Revisions that the history lost when their branch went in as one commit.
        self.squashed = set(pd.read_csv(root / SQUASHED)["revision"])

    @cached_property
    def models(self) -> dict[str, set[str]]:
        """Model -> the digests of its weights in the runs that are there.

        One checkpoint has two: sidecars hashed sizes before November 2026, contents since then.
        """
        digests: dict[str, set[str]] = {}
        for file in sorted((self.root / OBSERVATIONS).glob("*/*.json")):
            if f"{file.parent.name}/{file.stem}" not in self._new:
                sidecar = json.loads(file.read_text(encoding="utf-8"))
                model = sidecar["parameters"].get("model")
                digests.setdefault(model, set()).add(sidecar.get("model_sha256"))
        return digests

    @cache
    def file(self, revision: str, path: str) -> str:
        """Return the text of a file at a revision; empty where it is not there."""
        return git(self.root, "show", f"{revision}:{path}", check=False)

    @cache
    def changed_instrument(self, revision: str) -> list[str]:
        """Return files of the instrument that differ at `revision` from the history of the base."""
        before = git(self.root, "merge-base", self.base, revision).strip()
        changed = git(self.root, "diff", "--name-only", before, revision, "--", *provenance.INSTRUMENT)
        files = [file for file in changed.split("\n") if provenance.is_code(file)]
        return [file for file in files if not checks.is_adapter(file)]


def git(root: Path, *arguments: str, check: bool = True) -> str:
    """Return what git prints in the repository `root`; ValueError with its words where it fails."""
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
    if check and done.returncode:
        raise ValueError(f"git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout


def base_commit(root: Path, name: str = "") -> str:
    """Return the commit that a contribution is compared with: where HEAD left `name`, or the first of BASES
    that exists; ValueError for a name that git does not know."""
    for branch in [name] if name else BASES:
        if git(root, "rev-parse", "--verify", "--quiet", f"{branch}^{{commit}}", check=False):
            return git(root, "merge-base", branch, "HEAD").strip()
    raise ValueError(
        f"git knows no {name!r} here. Name a branch or a commit: make contribute BASE=origin/main."
    )


def changed_files(root: Path, base: str, under: str) -> list[tuple[str, str]]:
    """Return (path, git's status) of each file below `under` in which the checkout differs from `base`."""
    changed = git(root, "diff", "--name-status", "--no-renames", "-z", base, "--", under).split("\0")
    new = git(root, "ls-files", "--others", "--exclude-standard", "-z", "--", under).split("\0")
    return [*zip(changed[1::2], changed[0::2]), *((path, "A") for path in new if path)]


def candidates(
    root: Path, base: str, folder: Path | None = None
) -> tuple[list[Candidate], list[tuple[str, str]]]:
    """Return (runs, faults) of all that differs from `base` in the checkout `root`, or of the files in
    `folder` as if they were copied there.

    Faults are (file, sentence) of files that were committed already, or are no part of a run.
    """
    files: list[tuple[str, Path, str]] = []
    if folder is None:
        for path, status in changed_files(root, base, OBSERVATIONS):
            files.append((path.removeprefix(f"{OBSERVATIONS}/"), root / path, status))
    else:
        for file in sorted(path for path in folder.glob("*/*") if not path.is_dir()):
            name = file.relative_to(folder).as_posix()
            there = root / OBSERVATIONS / name
            if not there.exists():
                files.append((name, file, "A"))
            elif there.read_bytes() != file.read_bytes():
                files.append((name, file, "M"))
        if not any(folder.glob("*/*.csv")):
            raise ValueError(
                f"There is no run in {folder}: <backend>/<run>.csv, .json and .ipynb are looked for."
            )

    runs: dict[str, Candidate] = {}
    faults = []
    for name, file, status in files:
        part = PART.fullmatch(name)
        if status != "A":
            done = "was deleted" if status == "D" else "differs from what was committed"
            back = f"git checkout {base[:7]} -- {OBSERVATIONS}/{name}"
            sentence = f"It {done}; observations are never edited: {back}. A new measurement takes the next "
            faults.append((name, f"{sentence}number."))
        elif not part or file.is_symlink():
            whole = "<backend>/<run>.csv, .json or .ipynb, a plain file."
            faults.append((name, f"It is no part of a run: {whole}"))
        else:
            runs.setdefault(part["run"], Candidate(part["run"])).files[part["suffix"]] = file
    new = [runs[run] for run in sorted(runs)]

    size = sum(file.stat().st_size for candidate in new for file in candidate.files.values())
    if size > ALL_BYTES:
        limit = f"{ALL_BYTES / 1e6:.0f} MB are the limit: contribute in parts."
        faults.append(("all files", f"{size / 1e6:.0f} MB together, and {limit}"))
    if new and folder is None:
        for table, _ in changed_files(root, base, TABLES):
            sentence = (
                f"a contribution carries runs, and `make tables` follows the merge: git checkout {base[:7]}"
            )
            faults.append((table, f"It was changed along with runs; {sentence} -- {table}."))
    return new, faults


def run_faults(candidate: Candidate, repository: Repository) -> list[str]:
    """Return the sentences that say why the run `candidate` may not be committed; none where it may."""
    missing = [suffix for suffix in SUFFIXES if suffix not in candidate.files]
    if missing:
        return [f"It lacks {', '.join(missing)}: a run is its .csv, .json and .ipynb together."]
    sentences = []
    for check in (_files, _checks, _hashes, _revision, _notebook):
        try:
            for sentence in check(candidate, repository):
                sentences.append(sentence)
        except checks.Rejected as refusal:
            sentences.append(str(refusal))
        except (ValueError, KeyError, TypeError, AttributeError, OSError, IndexError) as error:
            sentences.append(f"It cannot be read as a run ({type(error).__name__}: {error}).")
    return list(dict.fromkeys(sentences))


def _files(candidate: Candidate, repository: Repository) -> Iterator[str]:
    """Yield what is too large, or names a person, a machine or a secret."""
    for suffix, file in candidate.files.items():
        size = file.stat().st_size
        if size > FILE_BYTES:
            limit = f"{FILE_BYTES / 1e6:.0f} MB are the limit: measure fewer requests."
            yield f"Its {suffix} has {size / 1e6:.1f} MB, and {limit}"
        for sentence in leaks.found(file):
            yield f"{suffix}: {sentence}"


def _checks(candidate: Candidate, repository: Repository) -> Iterator[str]:
    """Yield what the validity checks of a run, or of a machine's or a client's table, reject."""
    if candidate.folder not in APART:
        checks.check(candidate.rows, candidate.sidecar, candidate.run)
    else:
        columns, identifier = APART[candidate.folder]
        table = pd.read_csv(candidate.files[".csv"], dtype=schema.WORDS)
        if lacking := columns - set(table):
            yield f"Its CSV lacks {', '.join(sorted(lacking))}."
            return
        number = candidate.run.rpartition("-")[2]
        ids = {identifier(gpu, host, number) for gpu, host in table[["gpu", "host"]].itertuples(index=False)}
        if ids != {candidate.run}:
            yield f"The rows say they are {', '.join(sorted(ids))}, the path says {candidate.run}."
            return
    checks.committed(candidate.sidecar)


def _hashes(candidate: Candidate, repository: Repository) -> Iterator[str]:
    """Yield which of CSV, prompts and weights are not those that the sidecar names."""
    sidecar = candidate.sidecar
    stated = sidecar.get("csv_sha256")
    digest = hashlib.sha256(candidate.files[".csv"].read_bytes()).hexdigest()
    if stated and stated != digest:
        yield (
            f"Its CSV has the SHA-256 {digest[:12]}…, the sidecar was written beside {str(stated)[:12]}…: "
            "observations are never edited, measure again."
        )
    if candidate.folder in APART:
        return
    prompts = repository.file(sidecar["git"].get("revision"), "data/prompts.csv")
    if prompts and sidecar["prompts_sha256"] != hashlib.sha256(prompts.encode()).hexdigest():
        yield (
            "Its prompts (prompts_sha256) are not those of data/prompts.csv at its revision: "
            "measure with these."
        )
    model = sidecar["parameters"].get("model")
    weights = repository.models.get(model)
    if weights and sidecar["model_sha256"] not in weights:
        others = " or ".join(str(digest)[:12] + "…" for digest in sorted(weights))
        yield (
            f"Its {model} has the SHA-256 {str(sidecar['model_sha256'])[:12]}…, that of the runs here "
            f"{others}: other weights are another model and need another name."
        )


def _revision(candidate: Candidate, repository: Repository) -> Iterator[str]:
    """Yield why the instrument that measured is not this repository's."""
    state = candidate.sidecar["git"]
    revision = str(state.get("revision"))
    if revision in repository.squashed:
        return
    if revision not in repository.history and repository.shallow:
        yield f"Its revision {revision[:12]} may be missing from a shallow clone: git fetch --unshallow."
    elif revision not in repository.history:
        yield (
            f"Its revision {revision[:12]} is not in the history of this branch: push the commit that "
            f"it was measured at, or measure again at one that is here ({SQUASHED}: what a squash lost)."
        )
    elif state.get("dirty") and "uncommitted" not in state:
        yield (
            "The instrument had changes that were not committed, and the sidecar does not say in which "
            "files: measure again from a clean checkout."
        )
    elif other := repository.changed_instrument(revision):
        verb = "differ" if len(other) > 1 else "differs"
        yield (
            f"It was measured by an instrument that is not the repository's: {', '.join(other[:3])} "
            f"{verb} at {revision[:7]}. Have that change merged first."
        )


def _notebook(candidate: Candidate, repository: Repository) -> Iterator[str]:
    """Yield why the notebook is not the one that this run executed, or shows other times than the CSV."""
    notebook = nbformat.read(candidate.files[".ipynb"], as_version=4)
    nbformat.validate(notebook)
    made = notebook.metadata.get("papermill", {})
    if not run_notebook.executed_whole(notebook):
        yield "Its notebook was not executed to its end by papermill: commit the one that the run wrote."
        return
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    printed = "".join(output.get("text", "") for output in outputs)
    # A machine carries out one run at a time: whatever it is called, its notebook ran while the run did.
    times = [made["start_time"], candidate.sidecar["ended"], made["end_time"]]
    within = pd.to_datetime(times, utc=True, format="ISO8601").is_monotonic_increasing
    if candidate.run not in f"{made.get('output_path')} {printed}" and not within:
        yield f"Its notebook is that of {made.get('output_path')}: commit the one that this run wrote."
        return
    sources = _sources(notebook)
    if not sources:
        yield "Its notebook has no code cells: commit the one that the run wrote, as it is."
        return
    revision = candidate.sidecar["git"].get("revision")
    # By hand, papermill may have been given any path to it.
    name = f"notebooks/{Path(made.get('input_path', '')).name}"
    original = repository.file(revision, name)
    if original and _sources(nbformat.reads(original, as_version=4)) != sources:
        yield f"Its code is not that of {name} at its revision: measure with the notebook as it is."
        return
    if not original and revision in repository.history:
        yield f"Its notebook was made from {name}, which its revision has not: measure with one of them."
        return
    if candidate.folder not in APART:
        yield from _shown(outputs, candidate.rows)


def _sources(notebook: nbformat.NotebookNode) -> list[str]:
    """Return the sources of the code cells, without the parameters that papermill adds."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [cell.source for cell in code if "injected-parameters" not in cell.metadata.get("tags", [])]


def _shown(outputs: Sequence[Fields], rows: pd.DataFrame) -> Iterator[str]:
    """Yield that the `outputs` of a notebook show no rows, or other times than the `rows` of the CSV.

    pandas shows the first and the last rows of a long table as HTML. Where the rows of a table are no
    requests (batches, load levels), nothing is compared.
    """
    tables = []
    for output in outputs:
        lines = re.findall(r"<tr.*?</tr>", output.get("data", {}).get("text/html", ""), flags=re.S)
        cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line, flags=re.S) for line in lines]
        if len(cells) > 1 and len({len(line) for line in cells}) == 1:
            tables.append(pd.DataFrame(cells[1:], columns=cells[0]))
    if not tables:
        yield (
            "Its notebook shows no rows, so nothing can be compared with its CSV: commit the one that "
            "the run wrote, with its outputs."
        )
    for table in tables:
        if "prompt" not in table:
            continue
        shown = table[table[""].isin(rows.index.astype(str))]
        measured = rows.loc[shown[""].astype(int)]
        for column in ("ttft_s", "e2e_s", "output_tokens"):
            if column not in shown:
                continue
            differs = (
                measured[column] - pd.to_numeric(shown[column], errors="coerce").to_numpy()
            ).abs() > ROUNDING
            if differs.any():
                yield (
                    f"Its CSV says another {column} than its notebook showed, in row {differs.idxmax() + 1} "
                    "first: observations are never edited, measure again."
                )
                return


def take(candidate: Candidate, root: Path) -> None:
    """Copy the files of a run into the observations of the checkout `root`, the notebook without pictures."""
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, print everything as Markdown, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.workflow.contribute", description=__doc__.split("\n")[0]
    )
    parser.add_argument(
        "--base", default="", help="branch or commit to compare with (default: where main is)"
    )
    parser.add_argument(
        "--from", dest="folder", type=Path, help="folder with runs that are not in this checkout"
    )
    parser.add_argument("--take", action="store_true", help="with --from: copy the runs that pass")
    parser.add_argument("--root", type=Path, default=ROOT, help="checkout to look at (default: this one)")
    options = parser.parse_args(arguments)
    root = options.root.resolve()
    try:
        base = base_commit(root, options.base)
        new, others = candidates(root, base, options.folder)
        repository = Repository(root, base, new)
        sentences = {candidate.run: run_faults(candidate, repository) for candidate in new}
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    if not new and not others:
        print(f"Nothing under {OBSERVATIONS}/ differs from {base[:7]}: there is no run to check.")
        if shared := len(list((root / OBSERVATIONS / "shared").glob("*/*.csv"))):
            print(f"{shared} runs in {OBSERVATIONS}/shared/ shared their machine: none can be contributed.")
        return 0

    good = [candidate for candidate in new if not sentences[candidate.run]]
    print(f"# Contribution: {len(new)} runs beside {base[:7]}, {len(good)} may be committed\n")
    faults = [(run, sentence) for run, several in sentences.items() for sentence in several] + others
    if faults:
        print("## Faults\n")
        print("\n".join(f"- `{where}`: {sentence}" for where, sentence in faults) + "\n")
    notes = []
    for candidate in good:
        # What a reviewer should know: a repeat whose number leaves out others.
        stem, number = naming.split_number(candidate.run)
        before = [f"{stem}-{n}" for n in range(1, int(number) if number.isdigit() else 1)]
        gone = [
            run
            for run in before
            if run not in sentences and not (root / OBSERVATIONS / f"{run}.csv").exists()
        ]
        if gone:
            notes.append(f"`{candidate.run}`: {', '.join(gone)} are not here; say in the pull request why.")
    if notes:
        print("## Notes\n")
        print("\n".join(f"- {note}" for note in notes) + "\n")
    if options.take:
        for candidate in good:
            take(candidate, root)
        print(f"Copied into {OBSERVATIONS}/: {len(good)} runs.")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
