"""Quality: what the answers of an option are worth to the float32 reference, and how well it predicts a fixed text.

The first half scores, for quality.ipynb, and needs the engines. The second half is pure functions on loaded requests, for figures, tables
and findings. Log-likelihoods are natural logarithms: nats per token.
"""

import math
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench import backends, data, measure, metrics, results

REFERENCE = ("transformers", "float32")
CHUNK_TOKENS = 512
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
    known = data.table("models").set_index("model")["weights"]
    if model.startswith("shape:") or known.get(model) == "synthetic":
        raise ValueError(f"{model} has random weights, and what they answer is noise: quality is measured on real ones, such as -p model smollm2-135m.")


def stored(setup):
    """Answers of the newest latency run on one device of what `setup` is about, with `max_new_tokens` tokens each; it may have been any repeat.

    FileNotFoundError with the command that measures it if there is none; ValueError if it had other prompts or another checkpoint.
    """
    name = results.run_id(**setup.identity | {"experiment": "latency"}, n="")
    numbers = {path: path.stem.rpartition("-")[2] for path in Path(setup.folder).glob(f"{name}*.csv")}
    for path in sorted((p for p, n in numbers.items() if n.isdigit()), key=lambda p: -int(numbers[p])):
        requests = results.load([path])
        if (requests["max_new_tokens"] == setup.parameters["max_new_tokens"]).all() and (requests["tensor_parallel"] == 1).all():
            return _checked(setup, requests, results.read(path)[1])
    told = {"backend": setup.identity["backend"], "option": setup.option, "model": setup.identity["model"], "device": setup.device}
    told |= {"max_new_tokens": setup.parameters["max_new_tokens"]}
    command = " ".join(["papermill notebooks/latency.ipynb out.ipynb", *(f"-p {key} {value}" for key, value in told.items())])
    raise FileNotFoundError(f"There is no latency run {name}… whose answers could be scored. Measure it with: {command}")


def _checked(setup, requests, sidecar):
    run_id, here = requests["run_id"].iloc[0], {"prompts": data.digest("prompts"), "model": setup.checkpoint.digest()}
    for what, digest in here.items():
        if sidecar[f"{what}_sha256"] != digest:
            raise ValueError(f"The {what} of {run_id} (SHA-256 {sidecar[f'{what}_sha256']}) is not what is here ({digest}). Measure the latency again.")
    prompts = setup.prompts("latency")
    kept = zip(requests["prompt"].astype(int), requests["output_ids"].map(token_ids), requests["error"])
    return Answers(run_id, sidecar, [(prompt, prompts[prompt], ids, error) for prompt, ids, error in kept])


def reference(setup):
    """The reference engine, loaded; it is the engine of `setup` where that is the reference itself."""
    name, option = REFERENCE
    if (setup.identity["backend"], setup.option) == REFERENCE:
        return setup.load()
    absent = backends.get(name).available()
    if absent:
        raise RuntimeError(f"The answers are scored by {name} {option}. {absent}")
    return backends.get(name).load(setup.checkpoint, option, setup.device, setup.threads)


class Unloaded:
    """Stands for an engine that gives no log-probabilities, so that nothing is asked of it: what its latency run says of it."""

    def __init__(self, sidecar):
        self.weight_bytes, self.kv_value_bytes, self.settings = (sidecar[name] for name in ("weight_bytes", "kv_value_bytes", "settings"))
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
    if hasattr(getattr(setup.module, "Engine", setup.module), "log_probabilities") or not hasattr(setup.module, "Engine"):
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
        raise ValueError(f"the engine gave {len(logarithms)} log-probabilities for {len(context) + len(ids)} tokens, the first of which has none")
    if not np.isfinite(logarithms).all() or (logarithms > ROUNDING_NATS).any():
        raise ValueError("the engine gave logarithms of probabilities that are not finite or above 0")
    return -logarithms[-len(ids) :].mean()


def score(watch, column, engine, context, ids, error=""):
    """Measured columns of one row: `nll_nats` in `column`, when (on `watch`) and how long it was computed; `error` where it was not."""
    sent = watch.seconds()
    try:
        if error:
            raise LookupError(f"the latency run has no answer: {error}")
        nll, seconds = measure.timed(nll_nats, engine, context, ids)
    except Exception as failure:
        return measure.failed([ids], f"{type(failure).__name__}: {failure}", sent)[0]
    return {"sent_s": sent, "e2e_s": seconds, "output_tokens": len(ids), "output_ids": ids, "error": "", column: nll}


# What answers and texts must share to be compared.
KEYS = "model weights gpu host".split()


def token_ids(text):
    """The token ids of a stored answer."""
    return [int(word) for word in text.split()]


def departs_at(ids, reference):
    """Index of the first token of `ids` that is not the reference's, 0 for the first; NaN if all are the same."""
    different = np.flatnonzero(np.asarray(ids) != np.asarray(reference))
    return float(different[0]) if len(different) else np.nan


def agreement(ids, reference):
    """Share of positions at which both have the same token. After the first other token the texts differ, so later agreement is chance."""
    return float(np.mean(np.asarray(ids) == np.asarray(reference)))


def newest(requests):
    """Of each configuration the requests of the run that began last."""
    ordered = requests.sort_values(["started", "run_id"], kind="stable")
    return requests[requests["run_id"] == ordered.groupby(results.CONFIGURATION)["run_id"].transform("last").reindex(requests.index)]


def scored(requests):
    """The rows of the newest quality run of each configuration on real weights that succeeded."""
    rows = requests[(requests["experiment"] == "quality") & (requests["weights"] == "real")]
    rows = newest(rows)
    return rows[rows["error"] == ""]


def _references(rows):
    return rows[(rows["backend"] == REFERENCE[0]) & (rows["option"] == REFERENCE[1])]


def answers(requests):
    """One row per scored answer: configuration, prompt, reference_nll_nats, and against the reference's own answer to the same prompt
    departs_at, agreement and excess_nll_nats (its NLL above that of the reference's answer); these are NaN without a scored reference."""
    rows = scored(requests).dropna(subset="reference_nll_nats")
    shown = [*results.CONFIGURATION, "started", "prompt", "output_tokens"]
    keys = [*KEYS, "prompt", "output_tokens"]
    values = ["output_ids", "reference_nll_nats"]
    both = rows[shown + values].merge(_references(rows)[keys + values], "left", keys, suffixes=("", "_own"))
    pairs = [(token_ids(a), token_ids(b)) if isinstance(b, str) else None for a, b in zip(both["output_ids"], both["output_ids_own"])]
    return both.assign(
        departs_at=[departs_at(*pair) if pair else np.nan for pair in pairs],
        agreement=[agreement(*pair) if pair else np.nan for pair in pairs],
        excess_nll_nats=both["reference_nll_nats"] - both["reference_nll_nats_own"],
    ).drop(columns=["output_ids", "output_ids_own", "reference_nll_nats_own"])


def perplexities(requests):
    """One row per configuration that gives log-probabilities: configuration, text_tokens, perplexity of the whole fixed text, and
    perplexity_ratio to the reference's on the same tokens. NaN where a piece of the text failed."""
    rows = requests[(requests["experiment"] == "quality") & (requests["weights"] == "real")]
    rows = newest(rows)
    rows = rows[rows["prompt"] == 0]
    weighted = rows["own_nll_nats"] * rows["output_tokens"]
    rows = rows.assign(nats=weighted.where(rows["error"] == ""))
    how = {"nats": ("nats", lambda n: n.sum(skipna=False)), "text_tokens": ("output_tokens", "sum"), "text": ("output_ids", " ".join)}
    table = rows.groupby(results.CONFIGURATION, as_index=False).agg(**how)
    table = table.assign(perplexity=metrics.perplexity(table["nats"] / table["text_tokens"]))
    table = table.merge(_references(table)[[*KEYS, "text", "perplexity"]], "left", [*KEYS, "text"], suffixes=("", "_own"))
    return table.assign(perplexity_ratio=table["perplexity"] / table["perplexity_own"]).drop(columns=["nats", "text", "perplexity_own"])


def summary(requests):
    """One row per scored configuration on real weights, fastest first; empty without one. Speed and weights are those of its latency runs.

    answers, same_answers (token for token the reference's), agreement (share of tokens), departs_first and departs_median (index of the first
    other token: earliest, and median over answers; NaN for never), reference_nll_nats, excess_nll_nats and its 95 % t-interval over
    prompts, text_tokens, perplexity, perplexity_ratio, output_tokens_per_s, weight_bytes, started (of the run that scored it).
    """
    each = answers(requests).assign(place=lambda t: t["departs_at"].fillna(np.inf).where(t["agreement"].notna()))
    table = each.groupby(results.CONFIGURATION, as_index=False).agg(
        answers=("prompt", "count"), same_answers=("agreement", lambda a: (a == 1).sum() if a.notna().all() else np.nan),
        agreement=("agreement", "mean"), departs_first=("place", "min"), departs_median=("place", "median"),
        reference_nll_nats=("reference_nll_nats", "mean"), excess_nll_nats=("excess_nll_nats", "mean"),
        excess_interval=("excess_nll_nats", metrics.t_interval), started=("started", "max"),
    ).replace(np.inf, np.nan)  # fmt: skip
    speed = results.summary(requests[requests["experiment"] == "latency"])
    table = table.merge(perplexities(requests), "left", results.CONFIGURATION)
    table = table.merge(speed[[*results.CONFIGURATION, "output_tokens_per_s", "weight_bytes"]], "left", results.CONFIGURATION)
    return table.sort_values("output_tokens_per_s", ascending=False, ignore_index=True)


def frontier(table, loss):
    """Which rows of `summary` no other row beats, as booleans: none is at least as fast and loses as little, and better in one of the two.

    `loss` is a column of which less is better. Rows without a speed or a loss are not on it.
    """
    speed, cost = table["output_tokens_per_s"].to_numpy(dtype=float), table[loss].to_numpy(dtype=float)
    faster, cheaper = speed[None, :] >= speed[:, None], cost[None, :] <= cost[:, None]
    better = (speed[None, :] > speed[:, None]) | (cost[None, :] < cost[:, None])
    return ~(faster & cheaper & better).any(axis=1) & ~np.isnan(speed) & ~np.isnan(cost)
