"""What a report on an adapter judges: tokens, calls of the callback, counts, bytes; one Finding per check."""

import json
import numbers
from dataclasses import dataclass
from pathlib import Path

from bench import backends
from bench.backends.common import checkpoints
from bench.machine import identity

PROMPT_TOKENS, TOKENS = 16, 24
AGREE = 2  # rounding parts an engine from the reference after a while, but not from the first tokens on
LEAST_BITS, MOST_BYTES = 1.5, 4.5  # per weight; with its scales
LUMP = 0.1  # share of a request's time in which all of its tokens arrive, if they come at once
PATIENCE_S = 5  # for the children of an engine that was closed


@dataclass(frozen=True)
class Finding:
    """One line of the report: the check, its fault (empty: none), or why it was not tried."""

    check: str
    fault: str = ""
    untried: str = ""

    def __str__(self):
        mark = "WRONG" if self.fault else "--" if self.untried else "ok"
        return f"{mark:5}  {self.check}" + (
            f": {self.fault or self.untried}" if self.fault or self.untried else ""
        )


def finding(check, faults):
    """The Finding of a check with these sentences on what is wrong."""
    return Finding(check, fault=" ".join(faults))


@dataclass
class Case:
    """What an engine is checked with: two prompts of token ids, and the reference's answers to them."""

    checkpoint: object
    prompts: list
    expected: list
    details: dict

    @property
    def batches(self):
        return self.details.get("batches", True)


class Calls:
    """The callback of the checks: keeps every call as it came."""

    def __init__(self):
        self.all = []

    def __call__(self, *arguments):
        self.all.append(arguments)

    def faults(self, answers):
        """Sentences on calls that do not match `answers`, the ids that `generate` returned for each
        request."""
        if not self.all:
            return [
                "on_token was never called; an engine that cannot tell when a token is there has streams = "
                "False."
            ]
        if not all(len(c) == 2 and all(isinstance(part, numbers.Integral) for part in c) for c in self.all):
            return [f"on_token takes two whole numbers, (request, token_id), but got {self.all[0]!r}."]
        known = range(len(answers))
        strays = [call for call in self.all if call[0] not in known]
        if strays and all(token in known for _, token in self.all):
            return [
                "on_token was called with swapped arguments: it takes (request, token_id), the prompt's "
                "index first."
            ]
        if strays:
            return [
                f"on_token was called for request {strays[0][0]}, but the prompts are numbered 0 to "
                f"{len(answers) - 1}."
            ]
        seen = [[token for number, token in self.all if number == request] for request in known]
        if seen == answers:
            return []
        if [sorted(ids) for ids in seen] == [sorted(ids) for ids in answers]:
            return ["on_token was called in another order than that of the tokens in the answer."]
        return ["on_token was called with other tokens than those that generate returned."]

    def one_after_the_other(self):
        """Whether the second request's first token came after the first one's last."""
        order = [request for request, _ in self.all]
        return order == sorted(order) and len(set(order)) > 1


def count_faults(answers, prompts):
    """Sentences on answers that are too few, too short or too long."""
    if len(answers) != len(prompts):
        return [f"generate returned {len(answers)} answers for {len(prompts)} prompts."]
    return [
        f"generate returned {len(ids)} tokens for prompt {k}, not exactly max_new_tokens = {TOKENS}."
        for k, ids in enumerate(answers)
        if len(ids) != TOKENS
    ][:1]


def token_faults(case, answers, exactly):
    """Sentences on answers that are not the reference's: from the first tokens on, or anywhere if
    `exactly`."""
    if ends := {token for ids in answers for token in ids} & set(case.checkpoint.end_token_ids):
        return [
            f"the end-of-sequence tokens {sorted(ends)} were generated; checkpoint.end_token_ids must be "
            "suppressed."
        ]
    faults = []
    for k, (ids, expected) in enumerate(zip(answers, case.expected)):
        same = next((i for i, (a, b) in enumerate(zip(ids, expected)) if a != b), len(ids))
        if same < (TOKENS if exactly else AGREE):
            faults.append(
                f"prompt {k} is answered with other tokens than transformers float32 from token {same + 1} "
                "on."
            )
    return faults


def unquantised(engine, checkpoint):
    """Whether an engine says of itself that it multiplies float32 weights in float32: then its tokens are the
    reference's."""
    full = checkpoints.linear_bytes(checkpoint, 4)
    return backends.arithmetic(engine) == "float32" and engine.weight_bytes > 0.95 * full


def byte_faults(engine, checkpoint):
    """Sentences on bytes per step that no format of this model's weights has."""
    least = checkpoints.linear_bytes(checkpoint, LEAST_BITS / 8, 0)
    most = checkpoints.linear_bytes(checkpoint, MOST_BYTES, MOST_BYTES)
    faults = []
    if not least <= engine.weight_bytes <= most:
        faults.append(
            f"weight_bytes is {engine.weight_bytes:.3g}, but one step of this model reads between "
            f"{least:.3g} and {most:.3g}: bench/backends/__init__.py lists what counts them."
        )
    if not 0.25 <= engine.kv_value_bytes <= 8:
        faults.append(
            f"kv_value_bytes is {engine.kv_value_bytes:g}, but a number in a KV cache takes 0.25 to 8."
        )
    return faults


def lump_faults(row):
    """Sentences on a measured request whose tokens all came at its end."""
    if row["error"]:
        return [f"the instrument could not measure a request: {row['error']}."]
    share = 1 - row["ttft_s"] / row["e2e_s"]
    if share >= LUMP:
        return []
    return [f"all {TOKENS} tokens came in the last {share:.0%} of the request, not as they were made."]


def write_reference(file, model, prompts):
    """Write the reference's answers to `file`: in a process of the default environment, gone before the
    engine loads."""
    checkpoint = checkpoints.checkpoint(model)
    engine = backends.get("transformers").load(checkpoint, "float32", "cpu", identity.cores())
    answers = [engine.generate([ids], TOKENS, None)[0] for ids in prompts]
    Path(file).write_text(json.dumps(answers))
