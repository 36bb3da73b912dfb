# Shortcuts only. What a study is stands in study.yaml, how it is carried out in the Snakefile.
#
#     make study                         the first question: latency of every engine that is installed, then figures and site
#     make study ALL=1                   a round of every experiment that study.yaml has for it; with REPEATS=2 all of it
#     make study BUDGET=30               rounds of the first question for 30 minutes
#     make study REPEATS=3               with the repeats that intervals need, whatever they take (with ALL=1: of everything)
#     make study REPEATS=auto            until each interval is within ± 3 %, or MOST_RUNS=20 runs each or BUDGET minutes are spent
#     make study ENGINES="vllm"          these engines only, each in its own environment where it needs one; or one option of one,
#                                        ENGINES="transformers/gptq-int4"
#     make study EXPERIMENTS="latency"   only these of the experiments in study.yaml
#     make study WAIT=1                  waits for an idle machine where it would refuse one that is busy
#     make study SEED=7                  each round in the order that this seed draws; python -m bench.workflow.plan show prints it
#     make study PROFILE=slurm           on a cluster, with the profile of that name in profiles/ (guide.qmd)
#     make bundle DEVICE=cuda            one archive that installs and runs the study on a node without network
#     make install                       only what a study installs first: .venv
#     make test                          the quick tests: rules, formats, the instrument, the client under load
#     make check                         all others: every engine and option, figures, pages in a browser, Slurm, bundles
#     make check-backend NAME=mine       what is missing in an adapter, within a minute or two; OPTION=int8: in that option of it
#     make check-engines [NAME=vllm]     whether the pinned engines still take what the adapters send, from their own packages and
#                                        without a GPU (some 700 MB to download once); run it when a pin is raised
#     make audit FILE=result.json        what cannot be true in anybody's benchmark file (or a folder of them), what contradicts itself,
#                                        what is missing; GPU=h100_sxm MODEL=llama-3-8b WEIGHTS=fp8 TP=2 state what the file does not
#     make audit-runs                    the audit of our own runs, which is committed: after new runs, or when a check has changed
#     make wheels                        the audit and the planner as wheels of their own, in dist/
#     make plan-check DATA=file.csv OUT=out.csv   what the planner predicts for each row, and how far it is off
#     make contribute                    whether new runs may be committed, and what they would change on the site (CONTRIBUTING)
#     make observatory                   every published measurement in one table, checked (data/observatory/observatory.parquet);
#                                        SOURCE=name: one source, its rows, empty columns and findings; OBSERVATORY_RAW=folder: more raw files
#     make expect DATA=rows.csv OUT=predicted.csv   what to expect of one user on any accelerator, from what others published;
#                                        expect-proof: its errors on sources left out; expect-log: predictions that wait for a measurement
#     make proof                         the long simulations behind the intervals; their result is committed
#     make mutants                       whether the tests see the measuring code broken, line by line; the result is committed (ALL=1: also
#                                        modules that have not changed; a quarter of an hour, on an idle machine)
#     make lint                          format, style, types, and which room and package may import which
#     make readme                        the README's findings, from the committed observations
#     make data                          the whole data in downloads/: one Parquet, one CSV, the data dictionary
#     make site                          only the figures and the pages, from the observations that are there
#     make help                          these lines

PYTHON ?= python3
# Tests and studies are hundreds of short processes: each would compile bench/ anew.
unexport PYTHONDONTWRITEBYTECODE
export PATH := $(CURDIR)/.venv/bin:$(PATH)
CONFIG := $(if $(filter-out 0,$(ALL)),all=True) $(if $(BUDGET),budget=$(BUDGET)) $(if $(REPEATS),repeats=$(REPEATS)) $(if $(MOST_RUNS),most_runs=$(MOST_RUNS)) $(if $(SEED),seed=$(SEED)) $(if $(ENGINES),engines="$(ENGINES)") $(if $(EXPERIMENTS),experiments="$(EXPERIMENTS)") $(if $(DEVICE),device=$(DEVICE)) $(if $(GPU),gpu=$(GPU)) $(if $(MODELS),models="[$(MODELS)]")
SNAKEMAKE = snakemake $(if $(PROFILE),--workflow-profile profiles/$(PROFILE)) $(if $(strip $(CONFIG)),--config $(CONFIG))
# What a cluster calls the device that a run asks for (profiles/slurm); empty: none is asked for.
export GRES ?=
# make study WAIT=1: wait for an idle machine instead of refusing.
export BENCH_WAIT := $(WAIT)
# On a node without network, unpacked from a bundle (bench/workflow/bundle.py): pip looks nowhere but here, and the hub is not asked.
ifneq ($(wildcard wheels/*.whl),)
export PIP_NO_INDEX := 1
export PIP_FIND_LINKS := $(CURDIR)/wheels
export HF_HUB_OFFLINE := 1
endif

.PHONY: audit-runs observatory expect expect-proof expect-log study test check check-backend check-engines plan-check wheels audit contribute proof mutants lint site data readme bundle help install
.DEFAULT_GOAL := study

study: .venv/ready $(if $(PROFILE),.venv/$(PROFILE))
	@exec $(SNAKEMAKE)

help:
	@sed -n 's/^#     //p' Makefile

site: .venv/ready
	@snakemake --config partial=True $(CONFIG) -- draw

data: .venv/ready
	@python -m bench.report.downloads

readme: .venv/ready
	@python -m bench.report.findings README.md

bundle: .venv/ready
	@python -m bench.workflow.bundle $(CONFIG)

# What takes no time measurement runs on both cores, the rest one after the other. Of the quick tests many wait for a
# server or a deadline, so a third process uses what the others leave; the long ones compute, and hold engines.
BESIDE = --dist loadfile --no-loadscope-reorder --numprocesses
TIMING = $(shell grep -rl "mark.timing" tests --include=*.py)
test: .venv/ready .venv/test
	@pytest -m "not check and not timing" $(BESIDE) 3
	@pytest -m "timing and not check" $(TIMING)

check: .venv/ready .venv/test
	@pytest -m "check and not timing" $(BESIDE) 2
	@pytest -m "check and timing" $(TIMING)

plan-check: .venv/ready
	@python -m llm_planner check "$(DATA)" $(OUT)

wheels: .venv/ready
	@for package in llm_audit llm_planner; do pip wheel --quiet --no-deps --wheel-dir dist ./$$package && rm -rf $$package/build; done

audit: .venv/ready
	@python -m llm_audit $(FILE) $(if $(GPU),--gpu "$(GPU)") $(if $(MODEL),--model "$(MODEL)") $(if $(WEIGHTS),--weights "$(WEIGHTS)") $(if $(TP),--tensor-parallel $(TP))

audit-runs: .venv/ready
	@python -c "from bench.machine import identity; from bench.observations import store; from llm_audit import own_runs; own_runs.write(store.files(), identity.cores())"

contribute: .venv/ready
	@python -m bench.workflow.contribute $(if $(BASE),--base "$(BASE)") $(if $(FROM),--from "$(FROM)") $(if $(TAKE),--take)

observatory: .venv/ready
	@python -m llm_observatory $(if $(SOURCE),report "$(SOURCE)",build)

expect: .venv/ready
	@test -n "$(DATA)" -a -n "$(OUT)" || { echo "Name both files: make expect DATA=rows.csv OUT=predicted.csv" >&2; exit 2; }
	@python -m llm_observatory.expect_command predict "$(DATA)" "$(OUT)"

expect-proof: .venv/ready
	@python -m llm_observatory.expect_command prove

expect-log: .venv/ready
	@python -m llm_observatory.expect_command log

check-backend: .venv/ready
	@test -n "$(NAME)" || { echo "Name the engine: make check-backend NAME=mine" >&2; exit 2; }
	@python -m bench.experiments.check_backend $(NAME) $(OPTION) $(if $(DEVICE),--device $(DEVICE))

check-engines: .venv/ready .venv/test
	@python tests/check_engines.py $(NAME)

proof: .venv/ready
	@python -m bench.analysis.proof
	@python -m bench.analysis.serving_proof
	@python -m bench.analysis.across_machines_proof

mutants: .venv/ready .venv/test .venv/mutants
	@nice -n 19 python tests/mutation_run.py $(if $(filter-out 0,$(ALL)),--all)

lint: .venv/ready .venv/test
	@ruff format --check bench llm_* tests
	@ruff check bench llm_* tests
	@lint-imports
	@mypy

install: .venv/ready .venv/test

.venv/ready: requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 study")'
	@echo "Installing requirements.txt in .venv: five engines and what they need, about 2 GB to download (less with PyTorch's"
	@echo "CPU index, guide.qmd: Install). pip says below what it fetches and how large each part is."
	@$(PYTHON) -m venv .venv
	@.venv/bin/pip install --disable-pip-version-check --requirement requirements.txt
	@.venv/bin/pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

.venv/test: requirements-test.txt
	.venv/bin/pip install --quiet --requirement requirements-test.txt
	touch $@

.venv/mutants: requirements-mutants.txt
	.venv/bin/pip install --quiet --requirement $<
	touch $@

.venv/%: profiles/%/requirements.txt | .venv/ready
	.venv/bin/pip install --quiet --requirement $<
	touch $@
