# study.yaml -> runs -> figures -> site. What is measured is skipped; `snakemake -n` shows what is missing.
#
#     snakemake [--config repeats=3 engines="vllm" device=cuda]

import re
import threading

from filelock import FileLock, Timeout

from bench.machine import identity
from bench.observations import store
from bench.paths import FIGURES, RESULTS, ROOT, SITE
from bench.report import figures
from bench.workflow import plan as study

PARTIAL = config.pop("partial", False)  # after a failure: figures and site from what there is
try:
    STUDY = study.load(config)
    RUNS = study.plan(STUDY)
except ValueError as failure:  # a mistyped name, a device that is not here: one sentence, no traceback
    sys.exit(str(failure))
BY_ID = {run.id: run for run in RUNS}
RUNS_AT, FIGURES_AT, PAGE = (os.path.relpath(path, ROOT) for path in (RESULTS, FIGURES, SITE / "index.html"))
ROOFS = store.roofs_id(study.device(STUDY)[1], identity.host(), 1)
MEASURED = [path for path in [f"{RUNS_AT}/{ROOFS}.csv", *(run.csv for run in RUNS)] if not PARTIAL or os.path.exists(path)]
# Everything else that lies there (other machines, engines not asked for now) is shown as well, and never made.
OTHERS = [os.path.relpath(path, ROOT) for path in [*store.files(), *store.accuracy_files()] if f"{path.parent.name}/{path.stem}" not in BY_ID]
DRAWN = expand(FIGURES_AT + "/{figure}.{form}", figure=figures.names(), form=("svg", "png"))
# What a figure or a page is drawn by: a change in any file of bench/ redraws.
SOURCES = [os.path.relpath(path, ROOT) for path in sorted((ROOT / "bench").rglob("*.py"))]
LOCK = FileLock(".snakemake/study.lock")


def needs(wildcards):
    """What a planned run waits for. Another engine's run may have the same name and not be planned: it lies there and needs nothing."""
    run = BY_ID.get("{backend}/{name}-{n}".format(**wildcards))
    return run.needs if run else []


wildcard_constraints:
    n=r"\d+",
    name="|".join(sorted({re.escape(run.id.split("/")[1].rpartition("-")[0]) for run in RUNS})) or "nothing",


# Only what measures is worth a node of a cluster; the rest runs where the study was started.
localrules: report, draw, environment, figures, site


# A target without an output: it is made every time, so the report is printed even when there was nothing to do.
rule report:
    input:
        MEASURED,
        DRAWN,
        PAGE,
    message:
        "what was measured"
    params:
        overrides=" ".join(f"{k}='{v}'" for k, v in config.items()),
    shell:
        "python -m bench.workflow.plan {params.overrides}"


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
        exec > {log} 2>&1
        python -m venv .venvs/{wildcards.environment}
        pip=.venvs/{wildcards.environment}/bin/pip
        if head -n 1 environments/{wildcards.environment}.txt | grep -q lock; then deps=--no-deps; else deps=; fi
        $pip install --quiet $deps --requirement environments/{wildcards.environment}.txt
        $pip install --quiet --no-deps --editable .
        touch {output}
        """


# Runs are outputs without inputs: no modification time of a fresh checkout can trigger a measurement. Only an engine's environment is
# waited for, or the run that this one looks at, and their age does not count.
rule run:
    input:
        lambda w: [ancient(file) for file in needs(w)],
    output:
        RUNS_AT + "/{backend}/{name}-{n}.csv",
    params:
        run=lambda w: BY_ID.get(f"{w.backend}/{w.name}-{w.n}"),
    message:
        "{params.run.id}"
    # The plan's order: first repeats of all engines before second ones of any.
    priority: lambda w: -([*BY_ID, f"{w.backend}/{w.name}-{w.n}"].index(f"{w.backend}/{w.name}-{w.n}"))
    resources:
        device=1,
    shell:
        "{params.run.python} -m bench.workflow.run_notebook notebooks/{params.run.notebook}.ipynb {params.run.id} {params.run.arguments}"


rule roofs:
    output:
        f"{RUNS_AT}/{ROOFS}.csv",
    message:
        "{ROOFS}"
    priority: 1
    resources:
        device=1,
    shell:
        "python -m bench.workflow.run_notebook notebooks/hardware.ipynb {ROOFS} device={STUDY[device]} gpu={STUDY[gpu]} run=1"


# All in one process: what costs time is its start.
rule figures:
    input:
        MEASURED,
        OTHERS,
        *SOURCES,
    output:
        DRAWN,
    message:
        "figures"
    priority: -10000
    shell:
        "papermill --no-progress-bar --log-level ERROR notebooks/figure.ipynb logs/figures.ipynb -p figure all"


rule site:
    input:
        MEASURED,
        OTHERS,
        [os.path.relpath(path, ROOT) for pattern in ("_quarto.yml", "*.qmd", "assets/*", "bench/**/*.py") for path in sorted(ROOT.glob(pattern))],
    output:
        PAGE,
    message:
        "{output}"
    priority: -20000
    shell:
        "if command -v quarto > /dev/null; then quarto render; else python -m bench.report.preview; fi"


onstart:
    if not PARTIAL:
        try:
            LOCK.acquire(timeout=0)
        except Timeout:
            sys.exit("Another study runs in this checkout; runs never overlap on one device. Wait for it or stop it.")
        threading.Thread(target=study.watch, args=(RUNS,), daemon=True).start()


# What could be measured is shown all the same; what failed stands at the end. Who stops the study wants it to stop, though.
onerror:
    stopped = any("on user request" in open(file).read() for file in ([log] if isinstance(log, str) else log))
    if not PARTIAL and not stopped:
        shell("snakemake --config partial=True " + " ".join(f"{k}='{v}'" for k, v in config.items()) + " || true")
