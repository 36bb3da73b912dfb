"""A report for the author of an adapter, within a minute: what it lacks of the contract, and what it does
wrong.

    python -m bench.experiments.check_backend NAME [OPTION] [--device cuda]
    make check-backend NAME=mine

One line per check: `ok`, `WRONG` with what was found, or `--` with why it was not tried. The exit status is 1
where something is wrong. The model is smollm2-135m; the reference is transformers in float32.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path

from bench import backends, inputs, paths, processes
from bench.backends.common import checkpoints, servers
from bench.experiments import conformance
from bench.instrument import in_process
from bench.instrument.load import decoding, parallel, protocols, schedule
from bench.machine import identity

MODEL = "smollm2-135m"


def served(module, option, device, threads, case):
    """Findings on a server: it starts, answers through the load client, counts exactly, and is gone
    afterwards."""
    before, rows = {child.pid for child in conformance.children()}, []
    log = paths.LOGS / "check_backend.server.txt"
    room = servers.Wanted(
        len(case.prompts), conformance.PROMPT_TOKENS + conformance.TOKENS, threads, log=paths.ROOT / log
    )
    try:
        with module.serve(case.checkpoint, option, device, room) as server:
            yield conformance.finding("starts, and speaks a protocol of the load client", _protocol(server))
            rows = _requests(server, case)
    except Exception as failure:
        yield conformance.Finding("starts and answers", fault=f"{conformance.reason(failure)} Its log: {log}")
    if rows:
        errors = [row["error"] for row in rows if row["error"]]
        yield conformance.finding("exactly as many tokens as requested, as events and as usage", errors[:1])
    yield conformance.orphans("stops, and leaves no process behind", before)


def _protocol(server):
    known = ", ".join(protocols.DIALECTS)
    return (
        [] if server.dialect in protocols.DIALECTS else [f"dialect is {server.dialect!r}, none of {known}."]
    )


def _requests(server, case):
    """Rows of the two prompts, one after the other, as the load client measures them."""
    prompts = [
        protocols.Prompt(tuple(ids), case.checkpoint.decode(ids), conformance.TOKENS) for ids in case.prompts
    ]
    calls = schedule.calls(server, schedule.Level("closed", 1, len(prompts)), prompts)
    rows, _ = parallel.run(server.url, calls, server.dialect, 1, 120.0)
    return [decoding.with_gaps(row, case.checkpoint.encode) for row in rows]


def _case(module, option):
    checkpoint = checkpoints.checkpoint(MODEL)
    prompts = inputs.windows(checkpoint.encode(inputs.text()), 2, conformance.PROMPT_TOKENS)
    prompts = [list(ids) for ids in prompts]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "reference.json"
        processes.in_child(
            conformance.write_reference, file, MODEL, prompts, conformance.TOKENS, python=processes.maker()
        )
        return conformance.Case(checkpoint, prompts, json.loads(file.read_text()), module.OPTIONS[option])


def findings(name, option, device, threads):
    """All findings on the backend `name`, as they are made; ends early where nothing more can be tried."""
    module = backends.get(name)
    wrong = False
    for finding in conformance.adapter(module):
        wrong |= bool(finding.fault) and "contract" in finding.check
        yield finding
    if wrong:
        return
    case = _case(module, option)
    if hasattr(module, "prepare"):
        try:
            backends.prepare(name, MODEL, option, device)
        except Exception as failure:
            yield conformance.Finding("makes its own format of the model", fault=conformance.reason(failure))
            return
        yield conformance.Finding("makes its own format of the model")
    check = conformance.loaded if hasattr(module, "load") else served
    yield from check(module, option, device, threads, case)


def _in_its_environment(module, name, option, device):
    """Go on in the environment that the option runs in; SystemExit with the sentence where it is not
    installed."""
    if absent := backends.missing(name, device, option):
        raise SystemExit(absent)
    python = backends.prefix(module, device, option) / "bin" / "python"
    if python.parent.parent != Path(sys.prefix):
        os.execv(python, [str(python), "-m", "bench.experiments.check_backend", *sys.argv[1:]])


def main():
    """Read the command line, print the report."""
    parser = argparse.ArgumentParser(
        description="What an adapter lacks of the contract, and what it does wrong."
    )
    parser.add_argument("name", help="the file in bench/backends, without .py")
    parser.add_argument("option", nargs="?", default="", help="one of its OPTIONS; the first one if left out")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    chosen, watch = parser.parse_args(), in_process.Stopwatch()
    try:
        module = backends.get(chosen.name)
        option = backends.option(module, chosen.option, chosen.device)
    except (ValueError, ImportError) as error:
        raise SystemExit(str(error)) from None
    _in_its_environment(module, chosen.name, option, chosen.device)
    wrong = 0
    with contextlib.redirect_stdout(sys.stderr):  # what an engine prints stays out of the report
        for finding in findings(chosen.name, option, chosen.device, identity.cores()):
            print(finding, file=sys.__stdout__, flush=True)
            wrong += bool(finding.fault)
    print(f"{chosen.name} {option}: {wrong or 'nothing'} wrong, after {watch.seconds():.0f} s.")
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
