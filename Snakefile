# study.yaml -> runs -> figures -> site. What is measured is skipped; `snakemake -n` shows what is missing.
#
#     snakemake [--config all=True repeats=3 engines="vllm" device=cuda]

import logging
import re
import time

from filelock import FileLock, Timeout

from bench import cells
from bench.machine import identity
from bench.observations import store
from bench.paths import FIGURES, RESULTS, ROOT, SITE, sources
from bench.workflow import costs, plan, progress, report, run_notebook
from bench.workflow.runs import ENDED

PARTIAL = config.pop("partial", False)  # figures and site from what there is
OVERRIDES = plan.as_words(config)
LOCK = FileLock(".snakemake/study.lock")
UNDRAWN = Path(ENDED, "undrawn")  # says that figures or pages could not be made


def forget_ended(runs, peaks):
    """Remove the marks of jobs that have ended, unless a study runs here now: a run without a CSV is tried
    again."""
    try:
        with LOCK.acquire(timeout=0):
            marks = [run.ended for run in runs if not run.measured]
            for file in [*marks, f"{ENDED}/{peaks}", UNDRAWN]:
                Path(file).unlink(missing_ok=True)
    except Timeout:
        pass


try:
    STUDY = plan.load(config)
    PEAKS = store.peaks_id(plan.device(STUDY)[1], identity.host(), 1)
    if workflow.is_main_process and not PARTIAL:
        # Before the plan is made, for which a job that ended without a CSV is a run that failed.
        forget_ended(plan.plan(STUDY, generous=True), PEAKS)
    RUNS = [] if PARTIAL else plan.plan(STUDY, generous=True)
except ValueError as failure:  # a mistyped name, a device that is not here: one sentence, no traceback
    sys.exit(str(failure))
BY_ID = {run.id: run for run in RUNS}
ORDER = {identifier: -place for place, identifier in enumerate(BY_ID)}
STARTED = time.time()
# Figures of a study have this checkout's own runs in them: git ignores their folder, and figures/ stays as it is committed.
FIGURES_AT, PAGE = (os.path.relpath(path, ROOT) for path in (FIGURES / "own", SITE / "index.html"))
DRAWN = expand(FIGURES_AT + "/{figure}.svg", figure=cells.choose("all"))
OBSERVATIONS = [os.path.relpath(path, ROOT) for path in sorted([*RESULTS.glob("*/*.csv"), *RESULTS.glob("shared/*/*.csv")])]
# What a figure or a page is drawn by: a change in any file of a package redraws.
SOURCES = [os.path.relpath(path, ROOT) for path in sources()]
# An observation is no output, so Snakemake never deletes one: a CSV is whole as soon as it exists, whatever
# happened to its job.
# The output of a job is an empty file that says that it has ended; a run without a CSV is tried again.
MISSING = [run.ended for run in RUNS if not run.measured]
# Minutes of their own: who names an experiment is waiting for that one.
if STUDY["all"] and not store.path(PEAKS).exists():
    MISSING.append(f"{ENDED}/{PEAKS}")


def matching(*patterns):
    """Files of the repository that match, relative to it."""
    return sorted({os.path.relpath(path, ROOT) for pattern in patterns for path in ROOT.glob(pattern)})


def needs(wildcards):
    """Files that a run waits for; their age does not count."""
    run = BY_ID.get("{backend}/{name}-{n}".format(**wildcards))
    if run is None:
        return []
    return [ancient(file) for file in run.needs]


def command(wildcards):
    """What carries out a run: its notebook, in a later round only if the budget still has room for it."""
    run = BY_ID.get("{backend}/{name}-{n}".format(**wildcards))
    if run is None:  # a node of a cluster looks later than the study's start, and the budget is spent by then
        return "true"
    if STUDY["rounds"] is None and run not in plan.first_round(STUDY):
        budget = f"python -m bench.workflow.plan in-budget {run.id}"
        return f"exec env {run.order} {budget} {run.command} -- {OVERRIDES}"
    return f"exec env {run.order} {run.command}"


if workflow.is_main_process and not PARTIAL:
    for run in RUNS:  # the notebook of a run that was interrupted after its CSV was written
        if lacks_its_end := run_notebook.keep(run.id):
            print(lacks_its_end, file=sys.stderr)


wildcard_constraints:
    n=r"\d+",
    name="|".join(sorted({re.escape(run.id.split("/")[1].rpartition("-")[0]) for run in RUNS})) or "nothing",


# Only what measures is worth a node of a cluster; the rest runs where the study was started.
localrules: report, measure, draw, environment, figures, site


# What a study shows at its end. What is new is drawn by a Snakemake of its own, which sees what is new; where
# nothing is, nothing is drawn.
REPORT = (
    "if python -m bench.workflow.report new {since} {overrides}; then "
    "snakemake --quiet all --config partial=True {overrides} -- draw "
    "|| (echo 'Figures or pages could not be made: make site'; touch {undrawn}); "
    "else echo 'Nothing new was measured, so nothing is drawn; make site draws what is there.'; fi; "
    "BENCH_FRONT=here python -m bench.cells tbl-latency; python -m bench.workflow.report {overrides}"
).format(since=STARTED, overrides=OVERRIDES, undrawn=UNDRAWN)


# A target without an output: it is made every time, so the report is printed even where nothing was to do.
rule report:
    input:
        MISSING,
    message:
        "what was measured"
    shell:
        REPORT


rule measure:
    input:
        MISSING,


rule draw:
    input:
        DRAWN,
        PAGE,


# An environment of its own for an engine whose pins don't fit the default one.
rule environment:
    output:
        ".venvs/{environment}/ready",
    log:
        "logs/environment-{environment}.txt",
    shell:
        # A lock is complete, so the resolver (and what it would add) stays out of it.
        """
        echo "Installing environments/{wildcards.environment}.txt; all that pip says: {log}"
        python -m venv .venvs/{wildcards.environment}
        pip=.venvs/{wildcards.environment}/bin/pip
        if head -n 1 environments/{wildcards.environment}.txt | grep -q lock; then deps=--no-deps; else deps=; fi
        $pip install --progress-bar off $deps --requirement environments/{wildcards.environment}.txt 2>&1 \\
            | tee {log} | awk '/Downloading/ {{print; fflush()}}'
        .venvs/{wildcards.environment}/bin/python environments/add_checkout.py >> {log} 2>&1
        touch {output}
        """


# A job has no inputs but its engine's environment, or the run that it looks at, and their age does not count.
rule run:
    input:
        needs,
    output:
        touch(ENDED + "/{backend}/{name}-{n}"),
    params:
        command=command,
    message:
        "{wildcards.backend}/{wildcards.name}-{wildcards.n}"
    # The plan's order (bench/workflow/plan.py): a shuffled round of all configurations before the next one.
    priority: lambda w: ORDER.get(f"{w.backend}/{w.name}-{w.n}", 0)
    resources:
        device=1,
    shell:
        "{params.command}"


rule peaks:
    output:
        touch(f"{ENDED}/{PEAKS}"),
    message:
        "{PEAKS}"
    priority: 1
    resources:
        device=1,
    shell:
        "exec python -m bench.workflow.run_notebook notebooks/hardware.ipynb {PEAKS} device={STUDY[device]} gpu={STUDY[gpu]} run=1"


# One CSV per topic, of the committed runs and this checkout's own: what cells of figures and pages read.
rule tables:
    input:
        OBSERVATIONS,
        SOURCES,
    output:
        touch(f"{ENDED}/tables"),
    log:
        "logs/tables.txt",
    message:
        "tables"
    shell:
        "python -m bench.topics.tables own > {log} 2>&1 || {{ cat {log}; exit 1; }}"


# All in one process: what costs time is its start.
rule figures:
    input:
        OBSERVATIONS,
        SOURCES,
        f"{ENDED}/tables",
    output:
        update(DRAWN),  # each is replaced whole: those of before stay where drawing is stopped or fails
    log:
        "logs/figures.txt",
    message:
        "figures"
    shell:
        "OMP_NUM_THREADS=1 papermill --no-progress-bar --log-level ERROR notebooks/figure.ipynb logs/figures.ipynb -p figure all -p out {FIGURES_AT} "
        "2> {log} || {{ cat {log}; exit 1; }}"


rule site:
    input:
        OBSERVATIONS,
        f"{ENDED}/tables",
        matching("_quarto.yml", "index.qmd", "pages/*.qmd", "assets/*"),
        SOURCES,
    output:
        PAGE,
    message:
        "{output}"
    priority: -1
    shell:
        # Quarto writes _site; whoever names another folder (BENCH_SITE) finds it there.
        'if [ "${{QUARTO:-}}" ] || command -v quarto > /dev/null; then "${{QUARTO:-quarto}}" render '
        '&& {{ [ "$PWD/_site" -ef "{SITE}" ] || {{ rm -rf "{SITE}" && cp -r _site "{SITE}"; }}; }}; '
        "else python -m bench.report.preview; fi"


onstart:
    if workflow.local_exec:  # of each job Snakemake would say four times that it exists
        logging.getLogger(snakemake.logging.__name__).setLevel(logging.WARNING)
    if not PARTIAL:
        try:
            LOCK.acquire(timeout=0)
        except Timeout:
            sys.exit(
                "Another study runs in this checkout; runs never overlap on one device. Wait for it or stop it."
            )
        missing = [run for run in plan.plan(STUDY) if not run.measured]
        print(costs.text(missing), file=sys.stderr)
        try:
            costs.fetch(STUDY, missing)
        except RuntimeError as failure:
            sys.exit(str(failure))
        progress.started(STUDY)


# Snakemake's own last words would only stand below the reasons.
onsuccess:
    if not PARTIAL and (report.without_row(STUDY) or UNDRAWN.exists()):
        sys.exit(1)


# What could be measured is shown all the same. Who stops the study wants it to stop, though.
onerror:
    if not PARTIAL:
        if progress.is_stopped():
            print(progress.stopped(STUDY, STARTED), file=sys.stderr)
            sys.exit(130)
        shell(REPORT)
        sys.exit(1)
