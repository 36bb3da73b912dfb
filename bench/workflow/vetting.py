"""Whether one new run may join the observations: it is whole, passes the checks, comes from where it says."""

import hashlib
import json
import re
from collections.abc import Iterable
from functools import cache, cached_property
from pathlib import Path

import nbformat
import pandas as pd

from bench.observations import checks, provenance, schema, store
from bench.workflow import leaks, run_notebook
from bench.workflow.candidates import OBSERVATIONS, Candidate, git

SQUASHED = "data/squashed_revisions.csv"
FILE_BYTES = 2_000_000  # of one file; the largest of a hundred runs has a fifth of that
ALL_BYTES = 50_000_000  # of everything in one contribution
ROUNDING = 0.51e-4  # notebooks show four decimals
APART = {"hardware": [*schema.PEAKS, "gpu", "host"], "clients": [*schema.ACCURACY, "gpu", "host"]}


class Fault(ValueError):
    """Why a run may not be committed, in a sentence or several, each in a list."""


class Repository:
    """What runs are held against: the history of `root`, the commit `base`, and the runs that are there."""

    def __init__(self, root: Path, base: str, new: Iterable[Candidate]) -> None:
        self.root, self.base, self._new = root, base, {candidate.run for candidate in new}

    @cached_property
    def models(self) -> dict[str, set[str]]:
        """Model -> the digests of its weights in the runs that are there.

        One checkpoint has two: sidecars hashed sizes before November 2026, contents since then.
        """
        found = {}
        for file in sorted((self.root / OBSERVATIONS).glob("*/*.json")):
            if f"{file.parent.name}/{file.stem}" not in self._new:
                sidecar = json.loads(file.read_text(encoding="utf-8"))
                found.setdefault(sidecar["parameters"].get("model"), set()).add(sidecar.get("model_sha256"))
        return found

    @cached_property
    def _history(self):
        return set(git(self.root, "rev-list", "HEAD").split())

    @cache
    def file(self, revision: str, path: str) -> str:
        """Text of a file at a revision; empty where it is not there."""
        return git(self.root, "show", f"{revision}:{path}", check=False)

    def knows(self, revision: str) -> bool:
        """Whether `revision` is part of the history of HEAD."""
        return revision in self._history

    @cached_property
    def squashed(self) -> set[str]:
        """Revisions that the history lost when their branch went in as one commit; the file says which."""
        return set(pd.read_csv(self.root / SQUASHED)["revision"])

    @cache
    def instrument(self, revision: str) -> list[str]:
        """Files of the instrument that `revision` has otherwise than the history of the base."""
        before = git(self.root, "merge-base", self.base, revision).strip()
        changed = git(self.root, "diff", "--name-only", before, revision, "--", *provenance.INSTRUMENT)
        return [file for file in changed.split("\n") if provenance.is_code(file)]

    @cached_property
    def shallow(self) -> bool:
        return git(self.root, "rev-parse", "--is-shallow-repository").strip() == "true"


def faults(candidate: Candidate, repository: Repository) -> list[str]:
    """All sentences that say why the run `candidate` may not be committed; none where it may."""
    if candidate.missing:
        return [f"It lacks {', '.join(candidate.missing)}: a run is its .csv, .json and .ipynb together."]
    sentences = []
    for check in (_size, _leaks, _checks, _hashes, _revision, _notebook):
        try:
            check(candidate, repository)
        except Fault as fault:
            sentences += fault.args[0]
        except checks.Rejected as refusal:
            sentences.append(str(refusal))
        except (ValueError, KeyError, TypeError, AttributeError, OSError, IndexError) as error:
            sentences.append(f"It cannot be read as a run ({type(error).__name__}: {error}).")
    return list(dict.fromkeys(sentences))


def _refuse(sentence, *if_any):
    if not if_any or any(if_any):
        raise Fault([sentence])


def _sidecar(candidate):
    return json.loads(candidate.files[".json"].read_text(encoding="utf-8"))


def _rows(candidate):
    """Rows of the CSV as a frame; the sidecar must lie beside it for `store.read`."""
    rows, _ = store.read(candidate.files[".csv"])
    return schema.frame(rows)


def _is_apart(candidate):
    """The folder of what is no run but measured of a machine or a load client; empty for a run."""
    folder = candidate.run.partition("/")[0]
    return folder if folder in APART else ""


def _size(candidate: Candidate, repository: "Repository") -> None:
    for suffix, file in candidate.files.items():
        size = file.stat().st_size
        limit = f"{FILE_BYTES / 1e6:.0f} MB are the limit: measure fewer requests."
        _refuse(f"Its {suffix} has {size / 1e6:.1f} MB, and {limit}", size > FILE_BYTES)


def _leaks(candidate: Candidate, repository: "Repository") -> None:
    sentences = [
        f"{suffix}: {sentence}" for suffix, file in candidate.files.items() for sentence in leaks.found(file)
    ]
    if sentences:
        raise Fault(sentences)


def _checks(candidate: Candidate, repository: "Repository") -> None:
    sidecar, folder = _sidecar(candidate), _is_apart(candidate)
    if folder:
        table = pd.read_csv(candidate.files[".csv"], dtype=schema.WORDS)
        lacking = set(APART[folder]) - set(table)
        _refuse(f"Its CSV lacks {', '.join(sorted(lacking))}.", lacking)
        identifier = {"hardware": store.peaks_id, "clients": store.accuracy_id}[folder]
        number = candidate.run.rpartition("-")[2]
        ids = {identifier(gpu, host, number) for gpu, host in table[["gpu", "host"]].itertuples(index=False)}
        _refuse(
            f"The rows say they are {', '.join(sorted(ids))}, the path says {candidate.run}.",
            ids != {candidate.run},
        )
    else:
        checks.check(_rows(candidate), sidecar, candidate.run)
    checks.committed(sidecar)


def _hashes(candidate: Candidate, repository: "Repository") -> None:
    sidecar = _sidecar(candidate)
    stated = sidecar.get("csv_sha256")
    digest = hashlib.sha256(candidate.files[".csv"].read_bytes()).hexdigest()
    _refuse(
        f"Its CSV has the SHA-256 {digest[:12]}…, the sidecar was written beside {str(stated)[:12]}…: "
        "observations are never edited, measure again.",
        stated and stated != digest,
    )
    if _is_apart(candidate):
        return
    prompts = repository.file(sidecar["git"].get("revision"), "data/prompts.csv")
    _refuse(
        "Its prompts (prompts_sha256) are not those of data/prompts.csv at its revision: measure with these.",
        prompts and sidecar["prompts_sha256"] != hashlib.sha256(prompts.encode()).hexdigest(),
    )
    model = sidecar["parameters"].get("model")
    known = repository.models.get(model)
    _refuse(
        f"Its {model} has the SHA-256 {str(sidecar['model_sha256'])[:12]}…, that of the runs here "
        f"{' or '.join(str(digest)[:12] + '…' for digest in sorted(known or ()))}: "
        "other weights are another model and need another name.",
        known and sidecar["model_sha256"] not in known,
    )


def _revision(candidate: Candidate, repository: "Repository") -> None:
    state = _sidecar(candidate)["git"]
    revision = state.get("revision")
    if revision in repository.squashed:
        return
    if not repository.knows(revision):
        _refuse(
            f"Its revision {str(revision)[:12]} may be missing from a shallow clone: git fetch --unshallow.",
            repository.shallow,
        )
        _refuse(
            f"Its revision {str(revision)[:12]} is not in the history of this branch: push the commit that "
            f"it was measured at, or measure again at one that is here ({SQUASHED}: what a squash lost)."
        )
    _refuse(
        "The instrument had changes that were not committed, and the sidecar does not say in which files: "
        "measure again from a clean checkout.",
        state.get("dirty") and "uncommitted" not in state,
    )
    other = [file for file in repository.instrument(revision) if not checks.is_adapter(file)]
    _refuse(
        f"It was measured by an instrument that is not the repository's: {', '.join(other[:3])} "
        f"{'differ' if len(other) > 1 else 'differs'} at {str(revision)[:7]}. Have that change merged first.",
        other,
    )


def _notebook(candidate: Candidate, repository: "Repository") -> None:
    notebook = nbformat.read(candidate.files[".ipynb"], as_version=4)
    nbformat.validate(notebook)
    made = notebook.metadata.get("papermill", {})
    printed = "".join(output.get("text", "") for output in _outputs(notebook))
    _refuse(
        "Its notebook was not executed to its end by papermill: commit the one that the run wrote.",
        not run_notebook.executed_whole(notebook),
    )
    _refuse(
        f"Its notebook is that of {made.get('output_path')}: commit the one that this run wrote.",
        candidate.run not in f"{made.get('output_path')} {printed}"
        and not _ended_within(_sidecar(candidate), made),
    )
    _refuse(
        "Its notebook has no code cells: commit the one that the run wrote, as it is.",
        not _sources(notebook),
    )
    revision = _sidecar(candidate)["git"].get("revision")
    # By hand, papermill may have been given any path to it.
    name = f"notebooks/{Path(made.get('input_path', '')).name}"
    original = repository.file(revision, name)
    if original:
        there = _sources(nbformat.reads(original, as_version=4))
        _refuse(
            f"Its code is not that of {name} at its revision: measure with the notebook as it is.",
            there != _sources(notebook),
        )
    elif repository.knows(revision):
        raise Fault(
            [f"Its notebook was made from {name}, which its revision has not: measure with one of them."]
        )
    if not _is_apart(candidate):
        _same_numbers(notebook, _rows(candidate))


def _ended_within(sidecar, made):
    """Whether the run ended while papermill executed this notebook: a machine carries out one at a time."""
    times = [made["start_time"], sidecar["ended"], made["end_time"]]
    return pd.to_datetime(times, utc=True, format="ISO8601").is_monotonic_increasing


def _sources(notebook):
    """Sources of the code cells, without the parameters that papermill adds."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [cell.source for cell in code if "injected-parameters" not in cell.metadata.get("tags", [])]


def _outputs(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def _same_numbers(notebook, rows):
    """Refuse a notebook that shows no rows, and a CSV whose times are not those that the notebook showed.

    pandas shows the first and the last rows of a long table. Where the rows of a table are no requests
    (batches, load levels), nothing is compared.
    """
    tables = [_table(output.get("data", {}).get("text/html", "")) for output in _outputs(notebook)]
    _refuse(
        "Its notebook shows no rows, so nothing can be compared with its CSV: commit the one that "
        "the run wrote, with its outputs.",
        all(table.empty for table in tables),
    )
    for table in tables:
        if "prompt" not in table:
            continue
        shown = table[table[""].isin(rows.index.astype(str))]
        there = rows.loc[shown[""].astype(int)]
        for column in ("ttft_s", "e2e_s", "output_tokens"):
            if column not in shown:
                continue
            said = pd.to_numeric(shown[column], errors="coerce").to_numpy()
            off = (there[column] - said).abs() > ROUNDING
            _refuse(
                f"Its CSV says another {column} than its notebook showed, in row {off.idxmax() + 1} first: "
                "observations are never edited, measure again.",
                off.any(),
            )


def _table(html):
    """The table that pandas had written as HTML, as text; empty where there is none."""
    body = re.findall(r"<tr.*?</tr>", html, flags=re.S)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, flags=re.S) for row in body]
    if len(cells) < 2 or len({len(row) for row in cells}) > 1:
        return pd.DataFrame()
    return pd.DataFrame(cells[1:], columns=cells[0])
