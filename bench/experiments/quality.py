"""Scores for quality.ipynb: what the answers of an option are worth to the float32 reference, and how well
it predicts a fixed text.

Log-likelihoods are natural logarithms: nats per token.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd

from bench import backends, inputs
from bench.backends.common.contract import Engine
from bench.experiments import notebook, session
from bench.experiments.session import Setup
from bench.instrument import in_process
from bench.observations import schema, store
from bench.topics import commands
from bench.topics import quality as quality_analysis
from llm_measured.core import naming
from llm_measured.core.definitions import Fields

CHUNK_TOKENS = inputs.CHUNK_TOKENS
# Experiment whose answers are scored -> the experiment that scores them.
SCORED_BY = {answers: scores for scores, answers in schema.SCORES.items()}
# A float32 logarithm of a probability of 1 may come out a little above 0.
ROUNDING_NATS = 1e-3


@dataclass(frozen=True)
class Request:
    """One stored request: the prompt's number and token ids, the answer's, and why there is none."""

    prompt: int
    prompt_ids: list[int]
    answer_ids: list[int]
    error: str


@dataclass(frozen=True)
class Answers:
    """The stored answers of one latency run: its id, its sidecar, its Requests."""

    run_id: str
    sidecar: Fields
    requests: list[Request]


def start(namespace: Fields) -> Setup:
    """`session.start` of quality.ipynb; ValueError for a model of which quality cannot be measured."""
    values = notebook.begin(namespace, "quality")
    demand_real(values["model"])
    return session.start(
        SCORED_BY[naming.choose("scored experiment", values["answers"], SCORED_BY)],
        namespace,
        notebook_name="quality",
    )


def demand_real(model: str) -> None:
    """ValueError if `model` has random weights, before anything is made of it."""
    known = inputs.table("models").set_index("model")["weights"]
    if model.startswith("shape:") or known.get(model) == "synthetic":
        raise ValueError(
            f"{model} has random weights, and what they answer is noise: quality is measured on real ones, "
            "such as -p model smollm2-135m."
        )


def stored(setup: Setup) -> Answers:
    """Answers of the newest run (of the experiment `answers`, latency or sizes) on one device of the engine,
    option and model of `setup`, with `max_new_tokens` tokens each; it may have been any repeat.

    FileNotFoundError with the command that measures it if there is none; ValueError if it had other prompts
    or another checkpoint.
    """
    experiment = setup.parameters["answers"]
    name = naming.run_id(**setup.identity | {"experiment": experiment}, n="")
    tokens, refused = setup.parameters["max_new_tokens"], []
    numbers = {path: naming.split_number(path.stem)[1] for path in Path(setup.folder).glob(f"{name}*.csv")}
    for path in sorted((p for p, n in numbers.items() if n.isdigit()), key=lambda p: -int(numbers[p])):
        requests = store.load([path])
        if requests.empty:
            refused.append(path.stem)
        elif (requests["max_new_tokens"] == tokens).all() and (requests["tensor_parallel"] == 1).all():
            return _answers(setup, requests, store.read(path)[1])
    rejected_by = f"; validity checks reject {', '.join(refused)}" if refused else ""
    raise FileNotFoundError(
        f"There is no {experiment} run {name}… whose answers could be scored{rejected_by}. Measure it with: "
        f"{_command(setup)}"
    )


def _command(setup: Setup) -> str:
    """The command that measures the latency run which `setup` would score."""
    values = {
        "backend": setup.identity["backend"],
        "option": setup.option,
        "model": setup.identity["model"],
        "device": setup.device,
        "max_new_tokens": setup.parameters["max_new_tokens"],
    }
    values |= inputs.study()["experiments"][setup.parameters["answers"]]["parameters"] | values
    if setup.parameters.get("results"):
        values["results"] = setup.parameters["results"]
    return commands.papermill("latency", values)


def _answers(setup: Setup, requests: pd.DataFrame, sidecar: Fields) -> Answers:
    """The Answers of one run; ValueError if it had other prompts or another checkpoint."""
    run_id = requests["run_id"].iloc[0]
    same = {
        "prompts": sidecar["prompts_sha256"] == inputs.digest("prompts"),
        "model": setup.checkpoint.same_model(sidecar["model_sha256"]),
    }
    for what in (what for what, agrees in same.items() if not agrees):
        raise ValueError(
            f"The {what} of {run_id} (SHA-256 {sidecar[f'{what}_sha256']}) is not what is here. "
            "Measure the latency again."
        )
    prompts = setup.prompts("latency")
    kept = zip(
        requests["prompt"].astype(int),
        requests["output_ids"].map(quality_analysis.token_ids),
        requests["error"],
    )
    found = [Request(prompt, prompts[prompt], ids, error) for prompt, ids, error in kept]
    return Answers(run_id, sidecar, found)


def reference(setup: Setup) -> Engine:
    """The reference engine, loaded; it is the engine of `setup` where that is the reference itself."""
    name, option = quality_analysis.REFERENCE
    if (setup.identity["backend"], setup.option) == quality_analysis.REFERENCE:
        return cast(Engine, setup.load())  # a run of quality has no server
    backend = backends.get(name)
    if absent := backend.module.available():
        raise RuntimeError(f"The answers are scored by {name} {option}. {absent}")
    return backend.load(setup.checkpoint, option, setup.device, setup.threads)


class Unloaded:
    """Stands for an engine that gives no log-probabilities and is not loaded: its latency run describes
    it."""

    def __init__(self, sidecar: Fields) -> None:
        self.weight_bytes, self.kv_value_bytes, self.settings = (
            sidecar[name] for name in ("weight_bytes", "kv_value_bytes", "settings")
        )
        self.arithmetic = sidecar.get("arithmetic", "float32")

    def close(self) -> None:
        """Nothing was opened."""


def engine(setup: Setup, scorer: Engine, answers: Answers) -> Engine | Unloaded:
    """The engine of `setup`, loaded where it may give log-probabilities.

    The reference `scorer` has gone before, if it is another one.
    """
    if scorer is getattr(setup, "engine", None):
        return scorer
    scorer.close()
    if setup.device == "cuda" and (torch := sys.modules.get("torch")):
        torch.cuda.empty_cache()  # some engines take what is free
    if setup.backend.scores():
        return cast(Engine, setup.load())  # a run of quality has no server
    return setup.use(Unloaded(answers.sidecar))


def chunks(engine: Engine | Unloaded, ids: list[int], tokens: int = CHUNK_TOKENS) -> list[list[int]]:
    """`ids` in consecutive pieces of 2 to `tokens` that can be scored; none if `engine` gives no
    log-probabilities."""
    pieces = [ids[start : start + tokens] for start in range(0, len(ids), tokens)]
    return [piece for piece in pieces if len(piece) > 1] if hasattr(engine, "log_probabilities") else []


def nll_nats(engine: Engine, context: Sequence[int], ids: list[int]) -> float:
    """Mean negative log-likelihood per token of `ids` after `context` under `engine`, in nats.

    ValueError where the engine gives what cannot be one.
    """
    logarithms = np.array(engine.log_probabilities([*context, *ids]), dtype=np.float64)
    if len(logarithms) != len(context) + len(ids) - 1:
        raise ValueError(
            f"the engine gave {len(logarithms)} log-probabilities for {len(context) + len(ids)} tokens, "
            "the first of which has none"
        )
    if not np.isfinite(logarithms).all() or (logarithms > ROUNDING_NATS).any():
        raise ValueError("the engine gave logarithms of probabilities that are not finite or above 0")
    return -logarithms[-len(ids) :].mean()


def score(
    watch: in_process.Stopwatch,
    column: str,
    engine: Engine,
    context: Sequence[int],
    ids: list[int],
    error: str = "",
) -> Fields:
    """Measured columns of one row: `nll_nats` in `column`, when (on `watch`) and how long it was computed;
    `error` where it was not."""
    sent = watch.seconds()
    try:
        if error:
            raise LookupError(f"the latency run has no answer: {error}")
        nll, seconds = in_process.timed(nll_nats, engine, context, ids)
    except Exception as failure:
        return in_process.failed([ids], f"{type(failure).__name__}: {failure}", sent)[0]
    return {
        "sent_s": sent,
        "e2e_s": seconds,
        "output_tokens": len(ids),
        "output_ids": ids,
        "error": "",
        column: nll,
    }
