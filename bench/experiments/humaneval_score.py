"""Scores of kept answers for humaneval-score.ipynb: the code of each runs, contained, with its tests.

The code of an answer is what EvalPlus takes, as Qwen2.5-Coder's own evaluation does: up to the end of its
code block, or to where it begins to show its code, without the statements that only try it. The problem's
prompt stands before it, for its imports and helpers.
"""

import ast
import contextlib
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm import tqdm

from bench import backends, processes
from bench.experiments import humaneval, notebook, sandbox, target
from bench.instrument import in_process
from bench.machine import identity, neighbours
from bench.observations import provenance, schema, store
from llm_measured.core import naming
from llm_measured.core.definitions import Fields

EXPERIMENT = "humaneval-score"
STOPS = ("\n```", "\nif __name__", "\ndef main(", "\nprint(")  # of EvalPlus
# What the sidecar of the answers says of the engine that gave them, and a score's sidecar repeats.
OF_ENGINE = """
    weight_bytes kv_value_bytes kv_values_per_token arithmetic threads model_sha256 prompts_sha256 judge
    datasheet_bandwidth_bytes_per_s
""".split()


@dataclass(frozen=True)
class Answers:
    """The kept answers of one run of humaneval.ipynb: its id, its rows, its sidecar, its problems."""

    run_id: str
    rows: pd.DataFrame
    sidecar: Fields
    problems: list[Fields]


class Scoring:
    """One run of humaneval-score.ipynb: the answers, where the scores go, what contains the programs."""

    def __init__(self, values: Fields, answers: Answers, folder: Path) -> None:
        self.values, self.answers, self.folder = values, answers, folder
        self.python = processes.maker()
        first = answers.rows.iloc[0]
        of_answers = {name: first[name] for name in ("backend", "model", "option", "gpu", "host")}
        self.identity = {"experiment": EXPERIMENT} | of_answers
        number = values["run"] or store.next_number(self.identity, folder)
        self.run_id = naming.run_id(**self.identity, n=number)
        self.started, self.order = provenance.now(), provenance.order()
        self.checks = sandbox.demand(self.python)

    def score(self) -> list[Fields]:
        """The rows of all answers: whether each passed its problem's tests, else why not."""
        watch = in_process.Stopwatch()
        pairs = list(zip(self.answers.rows.to_dict("records"), self.answers.problems, strict=True))
        return [self._row(row, problem, watch) for row, problem in tqdm(pairs, desc=self.run_id)]

    def _row(self, row, problem, watch):
        sent_s = watch.seconds()
        outcome = sandbox.Outcome(False, f"no answer: {row['error']}", 1e-3)
        if not row["error"]:
            outcome = sandbox.run(program(problem, row["answer"]), self.values["deadline_s"], self.python)
        kept = {name: row[name] for name in schema.COLUMNS if name in _KEPT}
        return (
            kept
            | self.identity
            | {
                "run_id": self.run_id,
                "sent_s": sent_s,
                "e2e_s": outcome.seconds,
                "passed": int(outcome.passed),
                "failure": outcome.why,
                "error": "",
            }
        )

    def write(self, rows: list[Fields]) -> Path:
        """Write the run; returns the path of its CSV. Errors are those of `store.write`."""
        scratch = self.folder.resolve() != store.RESULTS.resolve()
        return store.write(rows, self._sidecar(), self.run_id, self.folder, scratch)

    def _sidecar(self):
        answers = self.answers
        nothing = dict.fromkeys(schema.SIDECAR)
        return (
            nothing
            | {name: answers.sidecar.get(name) for name in OF_ENGINE}
            | {
                "layout": schema.LAYOUT,
                "order": self.order,
                "packages": provenance.packages(),
                "git": provenance.git_state(),
                "machine": identity.describe("cpu", 1),
                "busy_cores": {},
                "bandwidth_probes_bytes_per_s": [],
                "parameters": self.values,
                "scored_run": answers.run_id,
                "scored_sha256": answers.sidecar["csv_sha256"],
                "settings": {
                    "problems": len(answers.problems),
                    "problems_of": answers.sidecar["settings"]["problems_of"],
                    "problems_sha256": answers.sidecar["settings"]["problems_sha256"],
                    "python": platform.python_version(),
                    "kernel": platform.release(),
                    "limits": sandbox.LIMITS | {"processes": sandbox.PROCESSES},
                    "self_test": [str(check) for check in self.checks],
                },
                "started": self.started,
                "ended": provenance.now(),
            }
        )


_KEPT = set(
    """
    backend_version weights tensor_parallel data_parallel request prompt prompt_tokens max_new_tokens
    batch_size temperature output_tokens finish_reason
""".split()
)


@contextlib.contextmanager
def start(namespace: dict[str, Any]) -> Iterator[Scoring]:
    """Context of the Scoring of humaneval-score.ipynb, in which no measurement runs on this machine's CPU.

    PermissionError unless `run_generated_code` is True; FileNotFoundError where there are no answers;
    `sandbox.Uncontained` where the code cannot be contained.
    """
    values = notebook.begin(namespace, EXPERIMENT)
    if values["run_generated_code"] is not True:
        raise PermissionError(
            "This runs programs that a model has written. They are contained (bench/experiments/sandbox.py, "
            "HOWTO.md), and still nobody has read them: say -p run_generated_code True, or "
            "run_generated_code: true at humaneval-score in study.yaml."
        )
    notebook.at_least(1, deadline_s=values["deadline_s"])
    folder = notebook.folder(values["results"], store.RESULTS)
    answers = stored(values, folder)
    lock = neighbours.take("cpu")
    try:
        yield Scoring(values, answers, folder)
    finally:
        lock.release()


def stored(values: Fields, folder: Path) -> Answers:
    """The answers of the run that `values` name in `answers`, or of the newest one of their engine, option
    and model on this device. FileNotFoundError with the command that gives them where there are none."""
    if values["answers"]:
        paths = [store.path(values["answers"], folder=folder)]
    else:
        paths = _candidates(values, folder)
    for path in paths:
        rows = store.load([path]) if path.exists() else pd.DataFrame()
        if not rows.empty:
            return _answers(path, rows.sort_values("prompt"))
    where = values["answers"] or f"of {values['backend']} {values['option']} {values['model']}"
    raise FileNotFoundError(
        f"There are no answers {where} in {folder}: measure them with notebooks/humaneval.ipynb."
    )


def _candidates(values, folder):
    """Paths of the runs of humaneval.ipynb that `values` mean, the newest first."""
    backend, place = backends.get(values["backend"]), target.place_of(values)
    option = backend.option(values["option"], place.device)
    parts = ("humaneval", backend.name, values["model"], option, place.gpu, identity.host())
    name = folder / naming.run_id(*parts, n="")
    numbered = {path: naming.split_number(path.stem)[1] for path in name.parent.glob(f"{name.name}*.csv")}
    return sorted((path for path, n in numbered.items() if n.isdigit()), key=lambda p: -int(numbered[p]))


def _answers(path, rows):
    """The Answers in `path`; ValueError where they were given to other problems."""
    sidecar = store.read(path)[1]
    settings = sidecar.get("settings") or {}
    if "problems_sha256" not in settings:
        raise ValueError(f"{path.stem} is no run of notebooks/humaneval.ipynb: name one that is.")
    problems = humaneval.problems()[: settings["problems"]]
    if humaneval.digest(problems) != settings["problems_sha256"]:
        raise ValueError(
            f"The problems or the prompt of {path.stem} are not what is here: answer them again."
        )
    return Answers(f"{path.parent.name}/{path.stem}", rows, sidecar, problems)


def code(answer: str) -> str:
    """The code of an answer, which begins within a code block: up to the first of STOPS, without asserts and
    bare expressions (calls) outside functions. An answer that is no Python stays as it is."""
    text = f"\n{answer}"
    end = min((text.find(stop) for stop in STOPS if stop in text), default=None)
    text = text[:end].replace("\t", "    ")
    try:
        statements = ast.parse(text).body
    except (SyntaxError, ValueError):  # the latter of null bytes
        return text
    kept = [each for each in statements if not isinstance(each, ast.Assert | ast.Expr)]
    return text if len(kept) == len(statements) else ast.unparse(ast.Module(kept, []))


def program(problem: Fields, answer: str) -> str:
    """The program that comes to its end where `answer` solves `problem`: prompt, code and tests.

    The function that the prompt leaves open is deleted again: an answer that does not define it fails.
    """
    name = problem["entry_point"]
    parts = [problem["prompt"].rstrip(), f"del {name}", code(answer), problem["test"], f"check({name})", ""]
    return "\n".join(parts)


def summary(rows: Sequence[Fields], answers: Answers) -> str:
    """What was scored, in one sentence."""
    passed, cut = sum(row["passed"] for row in rows), (answers.rows["finish_reason"] == "length").sum()
    whole = answers.sidecar["settings"]["problems_of"]
    part = "" if len(rows) == whole else f" A part of the {whole} problems enters no table."
    return f"{answers.run_id}: {passed} of {len(rows)} problems solved, {cut} answers cut.{part}"
