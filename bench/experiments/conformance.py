"""Checks of an adapter and its engine: what a Case is, and one Finding per check. `check_backend` prints them."""

import json
import math
import numbers
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench import backends
from bench.backends.common import checkpoints, contract
from bench.instrument import in_process
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
            f"{least:.3g} and "
            f"{most:.3g}: bench/backends/__init__.py lists what counts them."
        )
    if not 0.25 <= engine.kv_value_bytes <= 8:
        faults.append(
            f"kv_value_bytes is {engine.kv_value_bytes:g}, but a number in a KV cache takes 0.25 to 8."
        )
    return faults


def _single(engine, case):
    """Findings on one request: its tokens, the callback, the loop without one, streaming."""
    calls, prompts = Calls(), case.prompts[:1]
    streams = getattr(engine, "streams", True)
    answers = _ids(engine.generate(prompts, TOKENS, calls if streams else None))
    yield finding("exactly as many tokens as requested", count_faults(answers, prompts))
    if streams:
        yield finding("callback: (request, token_id), each token once, in order", calls.faults(answers))
    else:
        yield Finding("callback", untried="the engine says that it does not stream; its TTFT stays empty")
    exactly = unquantised(engine, case.checkpoint)
    title = f"greedy, {'all' if exactly else f'the first {AGREE}'} tokens as transformers float32 gives them"
    yield finding(title, token_faults(case, answers, exactly))
    plain = _ids(engine.generate(prompts, TOKENS, None))
    faults = (
        [] if plain == answers else ["generate gives other tokens with on_token=None than with a callback."]
    )
    yield finding("the same tokens without a callback", faults)
    if streams:
        yield finding(
            "tokens arrive one after the other", _lump(in_process.generate(engine, prompts, TOKENS)[0])
        )


def _lump(row):
    """Sentences on a measured request whose tokens all came at its end."""
    if row["error"]:
        return [f"the instrument could not measure a request: {row['error']}."]
    share = 1 - row["ttft_s"] / row["e2e_s"]
    if share >= LUMP:
        return []
    return [
        f"all {TOKENS} tokens came in the last {share:.0%} of the request: on_token must be called as they "
        "are made."
    ]


def _batch(engine, case):
    """Findings on two prompts at a time, or on the refusal of an option that takes one."""
    title, calls = "two prompts at a time", Calls()
    if not case.batches:
        try:
            engine.generate(case.prompts, TOKENS, calls)
        except Exception:
            yield Finding("a batch is refused, as the option says")
        else:
            yield Finding(title, fault='the option says "batches": False, but two prompts were answered.')
        return
    if hasattr(engine, "reserve"):
        engine.reserve(len(case.prompts), PROMPT_TOKENS + TOKENS)
    streams = getattr(engine, "streams", True)
    answers = _ids(engine.generate(case.prompts, TOKENS, calls if streams else None))
    faults = [*count_faults(answers, case.prompts), *(calls.faults(answers) if streams else [])]
    faults = faults or token_faults(case, answers, exactly=False)
    if not faults and calls.one_after_the_other():
        faults = ["the second prompt was answered after the first: a batch shares its steps."]
    yield finding(title, faults)


def _log_probabilities(engine, case):
    """The finding on log-probabilities of a text."""
    title = "log-probabilities"
    if not hasattr(engine, "log_probabilities"):
        return Finding(title, untried="the engine gives none; the perplexity of its answers is left out")
    found = list(engine.log_probabilities(case.prompts[0]))
    if len(found) != PROMPT_TOKENS - 1:
        return Finding(title, fault=f"{len(found)} for {PROMPT_TOKENS} tokens, of which the first has none.")
    bad = not all(math.isfinite(value) and value <= 0.01 for value in found)
    return Finding(
        title, fault="some are above 0 or not finite; natural logarithms are expected." if bad else ""
    )


def _closing(engine, before):
    """The finding on the end: nothing raised, no process left."""
    title = "closes, and leaves no process behind"
    try:
        engine.close()
    except Exception as failure:
        return Finding(title, fault=reason(failure))
    return orphans(title, before)


def orphans(title, before):
    """The finding on processes that were not there `before` (their numbers) and do not end."""
    left = [child for child in children() if child.pid not in before]
    _, alive = psutil.wait_procs(left, timeout=PATIENCE_S)
    names = ", ".join(f"{child.name()} ({child.pid})" for child in alive if child.is_running())
    return Finding(title, fault=f"still running after {PATIENCE_S} s: {names}." if names else "")


def children():
    """Processes below this one, but for Python's own that watches shared memory."""
    found = psutil.Process().children(recursive=True)
    return [child for child in found if "resource_tracker" not in " ".join(child.cmdline())]


def finding(check, faults):
    """The Finding of a check with these sentences on what is wrong."""
    return Finding(check, fault=" ".join(faults))


def _ids(answers):
    return [[int(token) for token in ids] for ids in answers]


def reason(failure):
    """Kind and text of an exception."""
    return f"{type(failure).__name__}: {failure}"


def adapter(module):
    """Findings on an adapter's file, without loading its engine."""
    yield finding("the module keeps the contract", contract.module_faults(module))
    clocks = contract.clocks(module)
    faults = (
        [f"it imports {', '.join(clocks)}; the instrument takes the times, in the callback."]
        if clocks
        else []
    )
    yield finding("the module imports no clock", faults)


def loaded(module, option, device, threads, case):
    """Findings on an engine that runs in this process; ends early where it cannot go on."""
    before = {child.pid for child in children()}
    try:
        engine = module.load(case.checkpoint, option, device, threads)
    except Exception as failure:
        yield Finding("loads", fault=reason(failure))
        return
    faults = contract.engine_faults(engine)
    yield finding("the engine keeps the contract", faults)
    if not faults:
        yield finding("bytes per step are plausible", byte_faults(engine, case.checkpoint))
    if callable(getattr(engine, "generate", None)):
        yield from _guarded("one request", lambda: _single(engine, case), bool(faults))
        yield from _guarded("two prompts at a time", lambda: _batch(engine, case), bool(faults))
        yield from _guarded("log-probabilities", lambda: [_log_probabilities(engine, case)], bool(faults))
    if hasattr(engine, "close"):
        yield _closing(engine, before)


def _guarded(title, findings, skip):
    """`findings()`, and a fault where they end with an exception; nothing is tried of an engine that lacks a
    part."""
    if skip:
        yield Finding(title, untried="the engine lacks a part of the contract")
        return
    try:
        yield from findings()
    except Exception as failure:
        yield Finding(title, fault=f"the engine raised {reason(failure)}.")


def write_reference(file, model, prompts, tokens):
    """Write the reference's answers to `file`: in a process of the default environment, gone before the
    engine loads."""
    checkpoint = checkpoints.checkpoint(model)
    engine = backends.get("transformers").load(checkpoint, "float32", "cpu", identity.cores())
    answers = [engine.generate([ids], tokens, None)[0] for ids in prompts]
    Path(file).write_text(json.dumps(answers))
