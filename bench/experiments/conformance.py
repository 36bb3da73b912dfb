"""What a report on an adapter judges: tokens, calls of the callback, counts, bytes; one Finding per check."""

import numbers
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bench import backends
from bench.backends.common import checkpoints
from bench.backends.common.checkpoints import Checkpoint
from bench.backends.common.contract import Engine
from bench.backends.common.servers import RunningServer
from bench.experiments import judge
from bench.observations.checks import measurements
from llm_measured.core import naming
from llm_measured.core.definitions import Fields

PROMPT_TOKENS, TOKENS = 16, 24
NAMED_BITS = 2  # times the bits that a quantised option is named by: some matrices keep more
LEAST_BITS = 1.5  # per weight
SCALES = 1.125  # bytes of weights with the scales of their blocks, to those without
LUMP = 0.1  # share of a request's time in which all of its tokens arrive, if they come at once
PATIENCE_S = 5  # for the children of an engine that was closed


@dataclass(frozen=True)
class Finding:
    """One line of the report: the check, its fault (empty: none), or why it was not tried."""

    check: str
    fault: str = ""
    untried: str = ""

    def __str__(self) -> str:
        mark = "WRONG" if self.fault else "--" if self.untried else "ok"
        why = self.fault or self.untried
        return f"{mark:5}  {self.check}{f': {why}' if why else ''}"


def finding(check: str, faults: Iterable[str]) -> Finding:
    """The Finding of a check with these sentences on what is wrong."""
    return Finding(check, fault=" ".join(faults))


@dataclass
class Case:
    """What an option of an engine is checked with: two prompts of token ids, and that of the judge."""

    checkpoint: Checkpoint
    prompts: list[list[int]]
    judged: list[int]
    option: str
    batches: bool


class Calls:
    """The callback of the checks: keeps every call as it came."""

    def __init__(self) -> None:
        self.all = []

    def __call__(self, *arguments: Any) -> None:
        self.all.append(arguments)

    def faults(self, answers: list[list[int]], prompts: list[list[int]]) -> list[str]:
        """Sentences on calls that do not match `answers`, the ids that `generate` returned for each of
        `prompts`."""
        if not self.all:
            return [
                "on_token was never called; an engine that cannot tell when a token is there has streams = "
                "False."
            ]
        if not all(len(c) == 2 and all(isinstance(part, numbers.Integral) for part in c) for c in self.all):
            return [f"on_token takes two whole numbers, (request, token_id), but got {self.all[0]!r}."]
        tokens = [token for _, token in self.all]
        if tokens[: len(prompts[0])] == list(prompts[0]):
            return [
                f"on_token was called with the prompt's {len(prompts[0])} tokens first: it takes new ones."
            ]
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

    def one_after_the_other(self) -> bool:
        """Whether the second request's first token came after the first one's last."""
        order = [request for request, _ in self.all]
        return order == sorted(order) and len(set(order)) > 1


def count_faults(answers: list[list[int]], prompts: list[list[int]]) -> list[str]:
    """Sentences on answers that are too few, too short or too long."""
    if len(answers) != len(prompts):
        return [f"generate returned {len(answers)} answers for {len(prompts)} prompts."]
    for prompt, ids in zip(prompts, answers):
        if list(ids[: len(prompt)]) == list(prompt):
            return [
                f"generate returned the prompt's {len(prompt)} tokens before the answer's: new ones only."
            ]
    return [
        f"generate returned {len(ids)} tokens for prompt {k}, not exactly max_new_tokens = {TOKENS}."
        for k, ids in enumerate(answers)
        if len(ids) != TOKENS
    ][:1]


def judged(
    case: Case, engine: Engine | RunningServer, prompts: list[list[int]], answers: list[list[int]]
) -> Finding:
    """The Finding on greedy `answers` to `prompts`: no token that ends a sequence, and for the judge the
    model's own."""
    check = "greedy tokens beside those of transformers float32"
    if ends := {token for ids in answers for token in ids} & set(case.checkpoint.end_token_ids):
        return Finding(
            check,
            f"the end-of-sequence tokens {sorted(ends)} were generated; checkpoint.end_token_ids must be "
            "suppressed.",
        )
    rounded_as = judge.number_format(case.option, backends.arithmetic(engine))
    entries = [judge.of_answer(case.checkpoint, *pair, rounded_as) for pair in zip(prompts, answers)]
    for entry in entries:
        if entry["verdict"] == "refused":
            return Finding(check, entry["why"])
    if why := next((entry["why"] for entry in entries if entry["verdict"] == "not judged"), ""):
        return Finding(check, untried=why)
    verdicts = dict.fromkeys(f"{entry['verdict']} {entry['why']}".strip() for entry in entries)
    return Finding(f"{check}: {'; '.join(verdicts)}")


def byte_faults(engine: Engine, checkpoint: Checkpoint, option: str) -> list[str]:
    """Sentences on bytes per step that no format of this model's weights has."""
    least = checkpoints.linear_bytes(checkpoint, LEAST_BITS / 8, 0)
    arithmetic = backends.arithmetic(engine)
    head = measurements.WEIGHT_BYTES.get(arithmetic, 4)
    bits = naming.bits(option)
    block = min(head, NAMED_BITS * bits / 8) if bits and bits <= 8 else head
    most = SCALES * checkpoints.linear_bytes(checkpoint, block, head, head_bytes=head)
    faults = []
    if not least <= engine.weight_bytes <= most:
        faults.append(
            f"weight_bytes is {engine.weight_bytes:.3g}, but one step of this model as {option} in "
            f"{arithmetic} reads between {least:.3g} and {most:.3g}: are its weights in that "
            "format? bench/backends/common/contract.py lists what counts them."
        )
    if not 0.25 <= engine.kv_value_bytes <= 8:
        faults.append(
            f"kv_value_bytes is {engine.kv_value_bytes:g}, but a number in a KV cache takes 0.25 to 8."
        )
    return faults


def lump_faults(row: Fields) -> list[str]:
    """Sentences on a measured request whose tokens all came at its end."""
    if row["error"]:
        return [f"the instrument could not measure a request: {row['error']}."]
    share = 1 - row["ttft_s"] / row["e2e_s"]
    if share >= LUMP:
        return []
    return [f"all {TOKENS} tokens came in the last {share:.0%} of the request, not as they were made."]
