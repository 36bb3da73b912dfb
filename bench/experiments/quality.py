"""Quality: what the answers of an option are worth to the float32 reference, and how well it predicts a fixed text.

The first half scores, for quality.ipynb, and needs the engines. The second half is pure functions on loaded requests, for figures, tables
and findings. Log-likelihoods are natural logarithms: nats per token.
"""

import math
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench import backends, inputs, naming
from bench.analysis import quality as quality_analysis
from bench.instrument import in_process
from bench.observations import store

CHUNK_TOKENS = inputs.CHUNK_TOKENS
# A float32 logarithm of a probability of 1 may come out a little above 0.
ROUNDING_NATS = 1e-3


@dataclass(frozen=True)
class Answers:
    """The stored answers of one latency run: its id, its sidecar, and (prompt number, prompt ids, answer ids, error) of each request."""

    run_id: str
    sidecar: dict
    requests: list


def demand_real(model):
    """ValueError if `model` has random weights, before anything is made of it."""
    known = inputs.table("models").set_index("model")["weights"]
    if model.startswith("shape:") or known.get(model) == "synthetic":
        raise ValueError(
            f"{model} has random weights, and what they answer is noise: quality is measured on real ones, such as -p model smollm2-135m."
        )


def stored(setup):
    """Answers of the newest latency run on one device of what `setup` is about, with `max_new_tokens` tokens each; it may have been any repeat.

    FileNotFoundError with the command that measures it if there is none; ValueError if it had other prompts or another checkpoint.
    """
    name = naming.run_id(**setup.identity | {"experiment": "latency"}, n="")
    numbers = {path: path.stem.rpartition("-")[2] for path in Path(setup.folder).glob(f"{name}*.csv")}
    for path in sorted((p for p, n in numbers.items() if n.isdigit()), key=lambda p: -int(numbers[p])):
        requests = store.load([path])
        if (requests["max_new_tokens"] == setup.parameters["max_new_tokens"]).all() and (
            requests["tensor_parallel"] == 1
        ).all():
            return _checked(setup, requests, store.read(path)[1])
    told = {
        "backend": setup.identity["backend"],
        "option": setup.option,
        "model": setup.identity["model"],
        "device": setup.device,
    }
    told |= {"max_new_tokens": setup.parameters["max_new_tokens"]}
    command = " ".join(
        ["papermill notebooks/latency.ipynb out.ipynb", *(f"-p {key} {value}" for key, value in told.items())]
    )
    raise FileNotFoundError(
        f"There is no latency run {name}… whose answers could be scored. Measure it with: {command}"
    )


def _checked(setup, requests, sidecar):
    run_id, here = (
        requests["run_id"].iloc[0],
        {"prompts": inputs.digest("prompts"), "model": setup.checkpoint.digest()},
    )
    for what, digest in here.items():
        if sidecar[f"{what}_sha256"] != digest:
            raise ValueError(
                f"The {what} of {run_id} (SHA-256 {sidecar[f'{what}_sha256']}) is not what is here ({digest}). Measure the latency again."
            )
    prompts = setup.prompts("latency")
    kept = zip(
        requests["prompt"].astype(int),
        requests["output_ids"].map(quality_analysis.token_ids),
        requests["error"],
    )
    return Answers(run_id, sidecar, [(prompt, prompts[prompt], ids, error) for prompt, ids, error in kept])


def reference(setup):
    """The reference engine, loaded; it is the engine of `setup` where that is the reference itself."""
    name, option = quality_analysis.REFERENCE
    if (setup.identity["backend"], setup.option) == quality_analysis.REFERENCE:
        return setup.load()
    absent = backends.get(name).available()
    if absent:
        raise RuntimeError(f"The answers are scored by {name} {option}. {absent}")
    return backends.get(name).load(setup.checkpoint, option, setup.device, setup.threads)


class Unloaded:
    """Stands for an engine that gives no log-probabilities, so that nothing is asked of it: what its latency run says of it."""

    def __init__(self, sidecar):
        self.weight_bytes, self.kv_value_bytes, self.settings = (
            sidecar[name] for name in ("weight_bytes", "kv_value_bytes", "settings")
        )
        self.arithmetic = sidecar.get("arithmetic", "float32")

    def close(self):
        """Nothing was opened."""


def engine(setup, scorer, answers):
    """The engine of `setup`, loaded where it may give log-probabilities; the reference `scorer`, if it is another one, has gone before."""
    if scorer is getattr(setup, "engine", None):
        return scorer
    scorer.close()
    if setup.device == "cuda" and (torch := sys.modules.get("torch")):
        torch.cuda.empty_cache()  # some engines take what is free
    if hasattr(getattr(setup.module, "Engine", setup.module), "log_probabilities") or not hasattr(
        setup.module, "Engine"
    ):
        return setup.load()
    setup.engine, setup.load_s = Unloaded(answers.sidecar), math.nan
    return setup.engine


def chunks(engine, ids, tokens=CHUNK_TOKENS):
    """`ids` in consecutive pieces of at most `tokens` that can be scored (two or more); none if `engine` gives no log-probabilities."""
    pieces = [ids[start : start + tokens] for start in range(0, len(ids), tokens)]
    return [piece for piece in pieces if len(piece) > 1] if hasattr(engine, "log_probabilities") else []


def nll_nats(engine, context, ids):
    """Mean negative log-likelihood per token of `ids` after `context` under `engine`; ValueError where it gives what cannot be one."""
    logarithms = np.asarray(engine.log_probabilities([*context, *ids]), dtype=float)
    if len(logarithms) != len(context) + len(ids) - 1:
        raise ValueError(
            f"the engine gave {len(logarithms)} log-probabilities for {len(context) + len(ids)} tokens, the first of which has none"
        )
    if not np.isfinite(logarithms).all() or (logarithms > ROUNDING_NATS).any():
        raise ValueError("the engine gave logarithms of probabilities that are not finite or above 0")
    return -logarithms[-len(ids) :].mean()


def score(watch, column, engine, context, ids, error=""):
    """Measured columns of one row: `nll_nats` in `column`, when (on `watch`) and how long it was computed; `error` where it was not."""
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
