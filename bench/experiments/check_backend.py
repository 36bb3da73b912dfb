"""A report for the author of an adapter: what it lacks of the contract, and what it does wrong.

    python -m bench.experiments.check_backend NAME [OPTION] [--device cuda]
    make check-backend NAME=mine

One line per check: `ok`, `WRONG` with what was found, or `--` with why it was not tried. The exit status is 1
where something is wrong. The model is smollm2-135m; its tokens are judged as before every run (`judge`), of
the engine's own server and of the engine in this process, where it has both. It takes less than a minute on
an idle machine, where the model has been made already and the CPU has the option's number format.
"""

import argparse
import contextlib
import math
import os
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from types import ModuleType

import psutil

from bench import backends, inputs, paths
from bench.backends import Backend
from bench.backends.common import checkpoints, contract, servers
from bench.experiments import conformance, judge, running
from bench.experiments.conformance import PATIENCE_S, PROMPT_TOKENS, TOKENS, Calls, Case, Finding, finding
from bench.instrument import in_process
from bench.instrument.load import protocols
from bench.machine import identity

MODEL = "smollm2-135m"


def _single(engine, case):
    """Findings on one request: its tokens, the callback, the loop without one, streaming."""
    calls, prompts = Calls(), case.prompts[:1]
    streams = getattr(engine, "streams", True)
    answers = _ids(engine.generate(prompts, TOKENS, calls if streams else None))
    yield finding("exactly as many tokens as requested", conformance.count_faults(answers, prompts))
    if streams:
        yield finding(
            "callback: (request, token_id), each token once, in order", calls.faults(answers, prompts)
        )
    else:
        yield Finding("callback", untried="the engine says that it does not stream; its TTFT stays empty")
    longer = _ids(engine.generate([case.judged], judge.TOKENS, (lambda *_: None) if streams else None))
    yield conformance.judged(case, engine, [case.judged], longer)
    plain = _ids(engine.generate(prompts, TOKENS, None))
    other = "generate gives other tokens with on_token=None than with a callback."
    yield Finding("the same tokens without a callback", "" if plain == answers else other)
    if streams:
        faults = conformance.lump_faults(in_process.generate(engine, prompts, TOKENS)[0])
        yield finding("tokens arrive one after the other", faults)


def _batch(engine, case):
    """Findings on two prompts at a time, or on the refusal of an option that takes one."""
    title, calls = "two prompts at a time", Calls()
    if not case.batches:
        try:
            engine.generate(case.prompts, TOKENS, calls)
        except Exception:
            yield Finding("a batch is refused, as the option says")
        else:
            fault = 'the option says "batches": False, but two prompts were answered: raise ValueError.'
            yield Finding(title, fault)
        return
    if hasattr(engine, "reserve"):
        engine.reserve(len(case.prompts), PROMPT_TOKENS + TOKENS)
    streams = getattr(engine, "streams", True)
    answers = _ids(engine.generate(case.prompts, TOKENS, calls if streams else None))
    faults = [
        *conformance.count_faults(answers, case.prompts),
        *(calls.faults(answers, case.prompts) if streams else []),
    ]
    fault = " ".join(faults) or conformance.judged(case, engine, case.prompts, answers).fault
    if not fault and calls.one_after_the_other():
        fault = (
            "the second prompt was answered after the first: a batch shares its steps. An engine that takes "
            'one prompt at a time says "batches": False in its option, and raises ValueError for more.'
        )
    yield Finding(title, fault)


def _log_probabilities(engine, case):
    """The finding on log-probabilities of a text."""
    title = "log-probabilities"
    if not hasattr(engine, "log_probabilities"):
        return Finding(title, untried="the engine gives none; the perplexity of its answers is left out")
    found = list(engine.log_probabilities(case.prompts[0]))
    if len(found) != PROMPT_TOKENS - 1:
        return Finding(title, fault=f"{len(found)} for {PROMPT_TOKENS} tokens, of which the first has none.")
    good = all(math.isfinite(value) and value <= 0.01 for value in found)
    wrong = "some are above 0 or not finite; natural logarithms are expected."
    return Finding(title, "" if good else wrong)


def _answers(engine, case):
    """The finding on answers that may end: up to its end one has the tokens of a request of fixed length."""
    title = "answers that end by themselves"
    if not hasattr(engine, "answer"):
        return Finding(title, untried="the engine ends none; HumanEval is left out")
    (whole,) = _ids(engine.generate([case.judged], judge.TOKENS, None))
    (ended,) = _ids(engine.answer([case.judged], judge.TOKENS))
    other = "answer gives other tokens before its end than generate, which suppresses the end."
    return Finding(title, "" if ended == whole[: len(ended)] else other)


def _closing(engine, before):
    """The finding on the end: nothing raised, no process left."""
    title = "closes, and leaves no process behind"
    try:
        engine.close()
    except Exception as failure:
        return Finding(title, fault=reason(failure))
    return orphans(title, before)


def orphans(title: str, before: Collection[int]) -> Finding:
    """The finding on processes that were not there `before` (their numbers) and do not end."""
    left = [child for child in children() if child.pid not in before]
    _, alive = psutil.wait_procs(left, timeout=PATIENCE_S)
    names = ", ".join(f"{child.name()} ({child.pid})" for child in alive if child.is_running())
    return Finding(title, fault=f"still running after {PATIENCE_S} s: {names}." if names else "")


def children() -> list[psutil.Process]:
    """Processes below this one that run, but for Python's own that watches shared memory."""
    return [child for child in psutil.Process().children(recursive=True) if _counts(child)]


def _counts(child):
    try:
        return "resource_tracker" not in " ".join(child.cmdline())
    except psutil.Error:  # it has ended, and whoever started it has not waited for it
        return False


def _ids(answers):
    return [[int(token) for token in ids] for ids in answers]


def reason(failure: BaseException) -> str:
    """Kind and text of an exception."""
    return f"{type(failure).__name__}: {failure}"


def adapter(module: ModuleType) -> Iterator[Finding]:
    """Findings on an adapter's file, without loading its engine."""
    yield finding("the module keeps the contract", contract.module_faults(module))
    clocks = ", ".join(contract.clocks(module))
    fault = f"it imports {clocks}; the instrument takes the times, in the callback." if clocks else ""
    yield Finding("the module imports no clock", fault)


def loaded(backend: Backend, option: str, device: str, threads: int, case: Case) -> Iterator[Finding]:
    """Findings on an engine that runs in this process; ends early where it cannot go on."""
    before = {child.pid for child in children()}
    try:
        engine = backend.load(case.checkpoint, option, device, threads)
    except Exception as failure:
        yield Finding("loads", fault=reason(failure))
        return
    faults = contract.engine_faults(engine)
    yield finding("the engine keeps the contract", faults)
    if not faults:
        yield finding(
            "bytes per step are plausible", conformance.byte_faults(engine, case.checkpoint, option)
        )
    if callable(getattr(engine, "generate", None)):
        parts = {
            "one request": lambda: _single(engine, case),
            "two prompts at a time": lambda: _batch(engine, case),
            "log-probabilities": lambda: [_log_probabilities(engine, case)],
            "answers that end by themselves": lambda: [_answers(engine, case)],
        }
        why = "the engine lacks a part of the contract" if faults else ""
        for title, checks in parts.items():
            for found in _guarded(title, checks, why):
                yield found
                if found.fault:  # what comes after it would be its consequence
                    why = "after the first fault"
                    break
    if hasattr(engine, "close"):
        yield _closing(engine, before)


def _guarded(title, findings, skip):
    """`findings()`, and a fault where they end with an exception; nothing is tried where `skip` says why."""
    if skip:
        yield Finding(title, untried=skip)
        return
    try:
        yield from findings()
    except Exception as failure:
        yield Finding(title, fault=f"the engine raised {reason(failure)}.")


def served(backend: Backend, option: str, device: str, threads: int, case: Case) -> Iterator[Finding]:
    """Findings on a server: it starts, answers through the load client, counts exactly, gives the model's
    tokens, and is gone afterwards."""
    before, rows, server = {child.pid for child in children()}, [], None
    log = paths.LOGS / "check_backend.server.txt"
    longest = max(PROMPT_TOKENS + TOKENS, len(case.judged) + judge.TOKENS)
    room = servers.ServerSpec(len(case.prompts), longest, threads, log=paths.ROOT / log)
    try:
        with backend.serve(case.checkpoint, option, device, room) as server:
            stranger = f"dialect is {server.dialect!r}, none of {', '.join(protocols.EVERY)}."
            fault = "" if server.dialect in protocols.EVERY else stranger
            yield Finding("starts, and speaks a protocol of the load client", fault)
            rows = running.through_server(server, case.checkpoint, case.prompts, TOKENS)
            rows += running.through_server(server, case.checkpoint, [case.judged], judge.TOKENS)
    except Exception as failure:
        yield Finding("starts and answers", fault=f"{reason(failure)} Its log: {log}")
    if rows and server is not None:
        errors = [row["error"] for row in rows if row["error"]]
        yield finding("exactly as many tokens as requested, as events and as usage", errors[:1])
        if not errors:
            yield conformance.judged(case, server, [case.judged], _ids([rows[-1]["output_ids"]]))
    yield orphans("stops, and leaves no process behind", before)


def _case(backend, option):
    checkpoint = checkpoints.checkpoint(MODEL)
    prompts = inputs.windows(checkpoint.encode(inputs.text()), 2, PROMPT_TOKENS)
    return Case(checkpoint, prompts, judge.prompt(checkpoint), option, backend.batches(option))


def findings(backend: Backend, option: str, device: str, threads: int) -> Iterator[Finding]:
    """All findings on a Backend, as they are made; ends early where nothing more can be tried."""
    wrong = False
    for found in adapter(backend.module):
        wrong |= bool(found.fault) and "contract" in found.check
        yield found
    if wrong:
        return
    case = _case(backend, option)
    if backend.can("prepare"):
        try:
            backend.prepare(MODEL, option, device)
        except Exception as failure:
            yield Finding("makes its own format of the model", fault=reason(failure))
            return
        yield Finding("makes its own format of the model")
    # Its server first: an engine that was loaded here has set variables that a child would inherit.
    for part, check in (("serve", served), ("load", loaded)):
        if backend.can(part):
            yield from check(backend, option, device, threads, case)


def _in_its_environment(backend, option, device):
    """Go on in the environment that the option runs in; SystemExit with the sentence where it is not
    installed."""
    if absent := backend.missing(device, option):
        raise SystemExit(absent)
    python = backend.prefix(device, option) / "bin" / "python"
    if python.parent.parent != Path(sys.prefix):
        os.execv(python, [str(python), "-m", "bench.experiments.check_backend", *sys.argv[1:]])


def main() -> None:
    """Read the command line, print the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="the file in bench/backends, without .py")
    parser.add_argument("option", nargs="?", default="", help="one of its OPTIONS; the first one if left out")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    chosen, watch = parser.parse_args(), in_process.Stopwatch()
    try:
        backend = backends.get(chosen.name)
        option = backend.option(chosen.option, chosen.device)
    except ValueError as error:
        raise SystemExit(f"WRONG  {error}") from None
    _in_its_environment(backend, option, chosen.device)
    print(
        f"{chosen.name} {option}: a line for each check, as it ends. Where {MODEL} is not there yet it is "
        "made first: minutes without a line.",
        file=sys.stderr,
        flush=True,
    )
    if chosen.device == "cpu" and "bfloat16" in option and identity.emulates_bfloat16():
        print(
            f"This CPU has no bfloat16 units: an engine emulates them, or refuses. Every check of "
            f"{option} may take minutes; an option in float32 shows the same faults sooner.",
            file=sys.stderr,
            flush=True,
        )
    wrong = 0
    with contextlib.redirect_stdout(sys.stderr):  # what an engine prints stays out of the report
        for found in findings(backend, option, chosen.device, identity.cores()):
            print(found, file=sys.__stdout__, flush=True)
            wrong += bool(found.fault)
    print(f"{chosen.name} {option}: {wrong or 'nothing'} wrong, after {watch.seconds():.0f} s.")
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
