"""One engine, tried once: the latency of its default option, or of those named, with short answers.

    make try ENGINES=llamacpp [MODELS=smollm2-135m]

A trial is no run of the study: it goes to scratch/, without figures and pages, and beside neighbours it is
measured and marked.
"""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from tqdm import tqdm

from bench import backends, html
from bench.observations import store
from bench.paths import ROOT
from bench.topics import latency
from bench.workflow import costs, plan, progress, report
from bench.workflow.runs import Run, make
from llm_measured.core.columns import Column, shown
from llm_measured.core.definitions import Fields

NEW_TOKENS = 20  # of each answer: an engine that generates 5 tokens/s has answered nine prompts in a minute
LOOK_S = 0.5
COLUMNS = "model backend option output_tokens_per_s ttft_s tpot_s mbu peak_memory_bytes shared_by"


def runs(study: Fields) -> list[Run]:
    """The runs of the trial that `study` (`plan.load`) asks for: one engine, of which the default option or
    those that are named, with each model. ValueError where no engine is named, or several."""
    kind, gpu = plan.device(study)
    if not str(study["engines"]).split():
        raise ValueError(
            f"Name one engine: make try ENGINES=llamacpp. There are: {', '.join(backends.names())}."
        )
    offers = plan.engines(study, kind)
    if len(offers) != 1:
        raise ValueError(
            f"A trial is of one engine, not of {' and '.join(offers)}: make study compares them."
        )
    ((engine, options),) = offers.items()
    chosen = options if "/" in str(study["engines"]) else options[:1]
    return [_run(engine, option, model, kind, gpu) for option in chosen for model in study["models"]]


def _run(engine, option, model, kind, gpu):
    if missing := backends.get(engine).missing(kind, option):
        raise ValueError(missing)
    run = make("latency", engine, option, model, kind, gpu, 1)
    run = replace(run, parameters=(("max_new_tokens", NEW_TOKENS),))
    while run.measured:
        run = replace(run, n=run.n + 1)
    return run


def measure(run: Run) -> None:
    """Carry `run` out, with a line that says how long it has taken and, where it waits for the machine or a
    download, for what. Whether it succeeded is told by the file that it wrote, or did not."""
    waits, began = progress.Waits(), time.monotonic()
    process = subprocess.Popen(shlex.split(run.command), cwd=ROOT)
    with tqdm(bar_format="{desc}", disable=None) as bar:  # None: no line of seconds in a log
        while process.poll() is None:
            if sentence := waits.new():
                bar.write(sentence)
            bar.set_description_str(f"{run.backend} {run.option}: {time.monotonic() - began:.0f} s")
            time.sleep(LOOK_S)


def text(measured: Sequence[Run]) -> str:
    """The table of the runs that were `measured`, and what is to be thought of it."""
    requests = store.load([run.csv for run in measured], shared=True)
    table = latency.runs(requests)
    shared = requests.groupby("run_id")["shared_by"].first()
    table = table.assign(shared_by=table["run_id"].map(shared))
    said = f"A trial, no measurement: one run, {NEW_TOKENS} tokens per answer, no interval; kept in "
    where = (
        f"{os.path.relpath(store.RESULTS, ROOT)}/, apart from the study's. make study measures and compares."
    )
    return f"{html.text(shown(table, COLUMNS, shared_by=Column('beside others')))}\n{said}{where}"


def main(words: Sequence[str]) -> None:
    """Try the engine of the study that `words` (key=value) ask for; SystemExit where a run has no row."""
    try:
        study = plan.load(plan.overrides(words))
        planned = runs(study)
        print(f"A trial takes {costs.room(planned)}", file=sys.stderr)
        costs.fetch(study, planned)
    except (ValueError, RuntimeError) as error:
        sys.exit(str(error))
    try:
        for run in planned:
            measure(run)
    except KeyboardInterrupt:
        sys.exit("Stopped. The same command begins again.")
    measured = [run for run in planned if run.measured]
    if measured:
        print(text(measured))
    if failures := [report.failure(run) for run in planned if not run.measured]:
        sys.exit("\n".join(failures))


if __name__ == "__main__":
    main(sys.argv[1:])
