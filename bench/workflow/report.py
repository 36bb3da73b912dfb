"""What a study says when it ends: what was left out and where it is measured, the page, what failed and why,
and last which engines have no row.

    python -m bench.workflow.report [repeats=3 …]
    python -m bench.workflow.report new SECONDS [repeats=3 …]    ends with 0 if there is something to draw
                                                                that was measured since (of the epoch)
"""

import collections
import json
import os
import sys

from bench import inputs, paths
from bench.machine import identity
from bench.observations import store
from bench.paths import ROOT, SITE
from bench.topics import latency as latency_analysis
from bench.workflow import costs, plan, run_notebook
from bench.workflow.runs import Run
from llm_measured.core.definitions import Fields


def without_row(config: Fields) -> list[Run]:
    """The runs without which the study has failed: of each engine and experiment those of its default option,
    or of the options that are requested by name, where no round of them has rows, alone or marked."""
    first, every = plan.first_round(config), plan.plan(config)
    named = {word for word in str(config["engines"]).split() if "/" in word}
    rows = {run.configuration for run in every if run.written}
    needed = []
    for engine in dict.fromkeys((run.experiment, run.backend, run.model) for run in first):
        runs = [run for run in first if (run.experiment, run.backend, run.model) == engine]
        by_name = [run for run in runs if f"{run.backend}/{run.option}" in named]
        needed += by_name or runs[:1]
    return [run for run in needed if run.configuration not in rows]


def is_new(config: Fields, since: float) -> bool:
    """Whether there is something to draw: a run that was measured since then (seconds of the epoch), or no
    page, although no engine lacks its row."""
    written = [run.written for run in plan.plan(config) if run.written]
    new = any(file.stat().st_mtime >= since for file in written)
    return new or (not (SITE / "index.html").exists() and not without_row(config))


def unmeasured(config: Fields) -> list[Run]:
    """The runs of the plan that have no CSV, not even a marked one, but not those for which the budget did
    not last."""
    runs = [run for run in plan.plan(config) if not run.written]
    if config["rounds"] is not None:
        return runs
    first = plan.first_round(config)
    return [run for run in runs if run in first or (ROOT / paths.log(run.id)).exists()]


def text(config: Fields) -> str:
    """The report on the study `config` (`plan.load`), one line per fact, what is missing last."""
    device, _ = plan.device(config)
    named = str(config["engines"]).split()  # whoever names engines knows which others are left out
    lines = [f"- {sentence}" for sentence in ([] if named else plan.left_out(device))]
    page = SITE / "index.html"
    where = os.path.relpath(page, ROOT) if page.exists() else "it could not be built"
    first = f"this machine, host {identity.host()}, stands first on it after: BENCH_FRONT=here make site"
    lines += ["", scope(config), f"The page: {where}; {first}"]
    written = [run for run in plan.plan(config) if run.written]
    for run in written:
        if why := run_notebook.error(run.written.with_suffix(".ipynb")):
            lines.append(f"NOTE {run.id}: measured, but its notebook failed after that: {why}")
    _, rejected = store.judged([run.csv for run in written if run.measured])
    for row in rejected.itertuples():
        lines.append(f"NOT COUNTED {row.run}: {row.reason}")
    lines += [failure(run) for run in unmeasured(config)]
    return "\n".join(lines + beside_others(config) + without_row_line(config))


def beside_others(config: Fields) -> list[str]:
    """What was measured beside others, where it lies, and what a quiet machine would add; nothing where all
    runs had the machine to themselves."""
    marked = [run for run in plan.plan(config) if run.marked]
    if not marked:
        return []
    lines = [f"SHARED {run.id}: {_shared_by(run)}." for run in marked]
    where = os.path.relpath(store.shared_folder(), ROOT)
    return [
        *lines,
        f"{len(marked)} of {len(plan.plan(config))} runs shared the machine: kept in {where}/, drawn apart "
        "on this machine's pages alone, in no comparison and no contribution. The same command on a quiet "
        "machine replaces them, and adds intervals, ranks and the comparison with other machines; WAIT=1 "
        "waits for one.",
    ]


def _shared_by(run: Run) -> str:
    sidecar = json.loads(run.shared_csv.with_suffix(".json").read_text())
    return sidecar.get("shared_by", "")


def without_row_line(config: Fields) -> list[str]:
    """The line that names each engine without a row, and why; nothing where each has one."""
    runs = without_row(config)
    reasons = [f"{run.experiment} {run.backend} {run.option}: {_why(run).rstrip('.')}" for run in runs]
    return [f"No row of {len(runs)}: {'; '.join(reasons)}."] if runs else []


def scope(config: Fields) -> str:
    """What this study was about, how often, and the command for everything else."""
    runs = plan.plan(config)
    rounds = max(collections.Counter(run.configuration for run in runs if run.measured).values(), default=0)
    names = " ".join(config["experiments"])
    done, marked = sum(run.measured for run in runs), sum(run.marked for run in runs)
    beside = f", {marked} more beside others" if marked else ""
    what = f"Measured: {names}, {done} of {len(runs)} runs{beside}, at most {rounds} of each configuration."
    others = [name for name in inputs.study()["experiments"] if name not in config["experiments"]]
    if config["first_only"]:
        return f"{what} Not yet: {', '.join(others)}, and every other option: make study ALL=1"
    return what + (f" Not asked for: {', '.join(others)}." if others else "")


def failure(run: Run) -> str:
    """Which run failed, why, and the file with the whole traceback."""
    return f"FAILED {run.id}: {_why(run)} (whole traceback: {paths.log(run.id)})"


def _why(run):
    for file in run.needs:
        if file.endswith("/ready") and not (ROOT / file).exists():
            name = file.split("/")[-2]
            return f"its environment was not installed, logs/environment-{name}.txt says why"
    return run_notebook.reason(run.id)


def row(run: Run) -> str:
    """What a run has found, in a few words for the terminal: rate and TTFT, or only that it was measured."""
    name = f"{run.experiment} {run.backend} {run.option}, run {run.n}"
    if not run.written:
        return f"{name}: FAILED, {_why(run)}"
    beside = f" (no measurement: {_shared_by(run)})" if run.marked else ""
    # Only what sends one request at a time is one number.
    if run.experiment not in ("latency", "served", "sizes"):
        return f"{name}: measured{beside}"
    measured = latency_analysis.runs(store.load([run.written], shared=True))
    if measured.empty:  # a validity check that came later rejects it
        return f"{name}: measured, but not counted"
    one = measured.iloc[0]
    wait = "" if one["ttft_s"] != one["ttft_s"] else f", TTFT {one['ttft_s'] * 1e3:,.1f} ms"
    return f"{name}: {one['output_tokens_per_s']:.3g} output tokens/s{wait}{beside}"


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["new", since, *words]:
            sys.exit(not is_new(plan.load(plan.overrides(words)), float(since)))
        case words:
            study = plan.load(plan.overrides(words))
            costs.drop(plan.plan(study), [])
            print(text(study))
