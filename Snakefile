# study.yaml -> runs -> figures -> site. What is measured is skipped; `snakemake -n` shows what is missing.
#
#     snakemake --profile profiles/default [--config repeats=3 engines="vllm" device=cuda]

import threading

from filelock import FileLock, Timeout

from bench import backends, hardware, plots, results, study

PARTIAL = config.pop("partial", False)  # after a failure: figures and site from what there is
STUDY = study.load(config)
RUNS = study.plan(STUDY)
BY_ID = {run.id: run for run in RUNS}
ROOFS = f"_llama-inference/hardware/roofs-{study.device(STUDY)[1]}-{hardware.host()}-1.csv"
MEASURED = [path for path in [ROOFS, *(run.csv for run in RUNS)] if not PARTIAL or os.path.exists(path)]
FIGURES = expand("figures/{figure}.svg", figure=plots.names())
LOCK = FileLock(".snakemake/study.lock")


wildcard_constraints:
    n=r"\d+",


# A target without an output: it is made every time, so the report is printed even when there was nothing to do.
rule report:
    input:
        MEASURED,
        FIGURES,
        "_site/index.html",
    params:
        overrides=" ".join(f"{k}='{v}'" for k, v in config.items()),
    shell:
        "python -m bench.study {params.overrides}"


rule draw:
    input:
        FIGURES,
        "_site/index.html",


# An environment of its own for an engine whose pins don't fit the default one.
rule environment:
    output:
        ".venvs/{name}/ready",
    log:
        "logs/environment-{name}.txt",
    shell:
        # A lock is complete, so the resolver (and what it would add) stays out of it.
        """
        exec > {log} 2>&1
        python -m venv .venvs/{wildcards.name}
        pip=.venvs/{wildcards.name}/bin/pip
        if head -n 1 environments/{wildcards.name}.txt | grep -q lock; then deps=--no-deps; else deps=; fi
        $pip install --quiet $deps --requirement environments/{wildcards.name}.txt
        $pip install --quiet --no-deps --editable .
        touch {output}
        """


# Runs are outputs without inputs: no modification time of a fresh checkout can trigger a measurement. Only an engine's environment is
# waited for, and its age does not count.
rule run:
    input:
        lambda w: [ancient(ready) for ready in BY_ID[f"{w.backend}/{w.name}-{w.n}"].environment],
    output:
        "_llama-inference/{backend}/{name}-{n}.csv",
    params:
        run=lambda w: BY_ID[f"{w.backend}/{w.name}-{w.n}"],
    # First repeats of all engines before second ones of any.
    priority: lambda w: -int(w.n)
    resources:
        device=1,
    shell:
        "{params.run.python} -m bench.execute notebooks/{params.run.experiment}.ipynb {params.run.id} {params.run.arguments}"


rule roofs:
    output:
        ROOFS,
    params:
        id=ROOFS.removeprefix("_llama-inference/").removesuffix(".csv"),
    priority: 1
    resources:
        device=1,
    shell:
        "python -m bench.execute notebooks/hardware.ipynb {params.id} device={STUDY[device]} run=1"


rule figure:
    input:
        MEASURED,
        "bench/plots.py",
    output:
        "figures/{figure}.svg",
        "figures/{figure}.png",
    priority: -100
    shell:
        "papermill --no-progress-bar --log-level ERROR notebooks/figure.ipynb logs/figure-{wildcards.figure}.ipynb -p figure {wildcards.figure}"


rule site:
    input:
        MEASURED,
        glob_wildcards("{page}.qmd").page and expand("{page}.qmd", page=glob_wildcards("{page,[a-z]+}.qmd").page),
        expand("bench/{module}.py", module=glob_wildcards("bench/{module,[a-z]+}.py").module),
    output:
        "_site/index.html",
    priority: -200
    shell:
        "if command -v quarto > /dev/null; then quarto render; else python -m bench.preview; fi"


onstart:
    if not PARTIAL:
        try:
            LOCK.acquire(timeout=0)
        except Timeout:
            sys.exit("Another study runs in this checkout; runs never overlap on one device. Wait for it or stop it.")
        threading.Thread(target=study.watch, args=(RUNS,), daemon=True).start()


# What could be measured is shown all the same; what failed stands at the end.
onerror:
    if not PARTIAL:
        shell("snakemake --profile profiles/default --config partial=True " + " ".join(f"{k}='{v}'" for k, v in config.items()) + " || true")
