"""What a study says when it ends: what was left out and where it is measured, the page, and last what failed
and why.

    python -m bench.workflow.report [repeats=3 …]
"""

import os
import sys

from bench import inputs, paths
from bench.analysis import latency as latency_analysis
from bench.analysis import repeats
from bench.definitions import Fields
from bench.machine import identity
from bench.observations import store
from bench.paths import ROOT, SITE
from bench.workflow import auto, plan, run_notebook
from bench.workflow.runs import Run

AIM = f"the 95 % interval of output tokens/s within ± {repeats.WITHIN * 100:g} % of the mean"


def unmeasured(config: Fields) -> list[Run]:
    """The runs of the plan that have no CSV, but not those for which the budget did not last."""
    runs = [run for run in plan.plan(config) if not run.measured]
    if config["rounds"] is not None:
        return runs
    first = plan.first_round(config)
    return [run for run in runs if run in first or (ROOT / paths.log(run.id)).exists()]


def text(config: Fields) -> str:
    """The report on the study `config` (`plan.load`), one line per fact, the failures last."""
    named = str(config["engines"]).split()  # who names some has left out the others
    lines = [f"- {sentence}" for sentence in ([] if named else plan.left_out(plan.device(config)[0]))]
    page = SITE / "index.html"
    where = os.path.relpath(page, ROOT) if page.exists() else "it could not be built"
    first = f"this machine, host {identity.host()}, stands first on it after: BENCH_FRONT=here make site"
    lines += ["", rest(config), *repeated(config), f"The page: {where}; {first}"]
    lines += [
        f"NOTE {run.id}: measured, but its notebook failed after that: {why}" for run, why in _after(config)
    ]
    return "\n".join(lines + refusals(config) + failures(config))


def rest(config: Fields) -> str:
    """What this study was about, how often, and the command for everything else."""
    runs = plan.plan(config)
    groups = auto.configurations([runs]).values()
    rounds = max((sum(run.measured for run in group) for group in groups), default=0)
    names = " ".join(config["experiments"])
    done = sum(run.measured for run in runs)
    what = f"Measured: {names}, {done} of {len(runs)} runs, at most {rounds} of each configuration."
    others = [name for name in inputs.study()["experiments"] if name not in config["experiments"]]
    if config["first_only"]:
        return f"{what} Not yet: {', '.join(others)}, and every other option: make study ALL=1"
    return what + (f" Not asked for: {', '.join(others)}." if others else "")


def repeated(config: Fields) -> list[str]:
    """What `REPEATS=auto` has come to, one line per configuration; nothing without it."""
    if not config["auto"]:
        return []
    heading = f"REPEATS=auto, {AIM}, at most {config['most_runs']} runs of each configuration:"
    return [heading, *(f"- {sentence}" for sentence in auto.sentences(plan.rounds(config), config))]


def failures(config: Fields) -> list[str]:
    """One line for each run without CSV: its name, why, and the file with the whole traceback."""
    log = "(whole traceback: {})".format
    return [f"FAILED {run.id}: {_why(run)} {log(paths.log(run.id))}" for run in unmeasured(config)]


def refusals(config: Fields) -> list[str]:
    """One line for each measured run of the plan that a gate refuses when it is read, with its reason."""
    measured = [run.csv for run in plan.plan(config) if run.measured]
    _, refused = store.judged(measured)
    return [f"NOT COUNTED {row['run']}: {row['reason']}" for _, row in refused.iterrows()]


def _why(run):
    for file in run.needs:
        if file.endswith("/ready") and not (ROOT / file).exists():
            name = file.split("/")[-2]
            return f"its environment was not installed, logs/environment-{name}.txt says why"
    return run_notebook.reason(run.id)


def row(run: Run) -> str:
    """What a run has found, in a few words for the terminal: rate and TTFT, or only that it was measured."""
    name = f"{run.experiment} {run.backend} {run.option}, run {run.n}"
    if not run.measured:
        return f"{name}: FAILED, {_why(run)}"
    # Only what sends one request at a time is one number.
    if run.experiment not in ("latency", "served"):
        return f"{name}: measured"
    measured = latency_analysis.runs(store.load([run.csv]))
    if measured.empty:  # a gate that came after it refuses it
        return f"{name}: measured, but not counted"
    one = measured.iloc[0]
    wait = "" if one["ttft_s"] != one["ttft_s"] else f", TTFT {one['ttft_s'] * 1e3:.3g} ms"
    return f"{name}: {one['output_tokens_per_s']:.3g} output tokens/s{wait}"


def _after(config):
    """Measured runs of the plan whose notebook failed after writing them, with the error."""
    found = (
        (run, run_notebook.error(run.csv.with_suffix(".ipynb"))) for run in plan.plan(config) if run.measured
    )
    return [(run, why) for run, why in found if why]


if __name__ == "__main__":
    print(text(plan.load(plan.overrides(sys.argv[1:]))))
