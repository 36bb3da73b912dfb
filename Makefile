# Shortcuts only. What a study is stands in study.yaml, how it is carried out in the Snakefile.
#
#     make study                         the first question: latency of every engine that is installed, then figures and site
#     make study ALL=1                   a round of every experiment that study.yaml has for it; with REPEATS=2 all of it
#     make study BUDGET=30               rounds of the first question for 30 minutes
#     make study REPEATS=3               with the repeats that intervals need, whatever they take (with ALL=1: of everything)
#     make study ENGINES="vllm"          these engines only, each in its own environment where it needs one; or one option of one,
#                                        ENGINES="transformers/gptq-int4"
#     make study EXPERIMENTS="latency"   only these of the experiments in study.yaml
#     make study WAIT=1                  waits for an idle machine; without it a run beside others is marked and kept apart
#     make study STRICT=1                refuses such a run (contributions)
#     make try ENGINES=llamacpp MODELS=… one engine, tried in two minutes: a table, no figures, no pages, nothing kept but in scratch/
#     make study MODELS=qwen2.5-coder-1.5b   a model of the size that people use: twelve options, three rounds: an hour to three;
#                                        qwen2.5-coder-0.5b is the half hour between. KEEP=1 keeps what engines make of large models
#     make study SEED=7                  each round in the order that this seed draws; python -m bench.workflow.plan show prints it
#     make study PROFILE=slurm           on a cluster, with the profile of that name in profiles/ (HOWTO.md)
#     make install                       only what a study installs first: .venv
#     make test                          the quick tests: rules, formats, the instrument, the client under load
#     make check                         all others: every engine and option, figures, pages in a browser, Slurm
#     make check-backend NAME=mine       what is missing in an adapter, within a minute or two; OPTION=int8: in that option of it,
#                                        which takes longer where the CPU has to emulate its number format (bfloat16)
#     make check-engines [NAME=vllm]     whether the pinned engines still take what the adapters send, from their own packages and
#                                        without a GPU (some 700 MB to download once); run it when a pin is raised
#     make faults                        sixty one-line faults, each applied to a copy and seen by its test (tests/faults.yaml);
#                                        NAME=word: those with this word in their name, file or area
#     make audit FILE=result.json        what cannot be true in anybody's benchmark file (or a folder of them), what contradicts itself,
#                                        what is missing; GPU=h100_sxm MODEL=llama-3-8b WEIGHTS=fp8 TP=2 PROMPT= OUTPUT= CONCURRENCY= BATCH=
#                                        overrule the file; MAP=theirs=word names a column; ALL=1 says everything
#     make compare A="old.json" B="new.json"   whether B is faster than A: result files of any tool, or folders of repeats;
#                                        FAIL_IF="ttft_p90 > +10%" ends with 1 where that is significantly passed
#     make compare-scatter               the scatter between runs that results of one run borrow, from committed reruns
#     make compare-proof                 how often `compare` errs: on reruns and on simulated servers; its result is committed
#     make wheels                        llm_measured as a wheel, in dist/: audit and published rows without the study
#     make contribute                    whether new runs may be committed (CONTRIBUTING)
#     make observatory                   every published measurement in one table, checked (data/observatory/observatory.parquet),
#                                        and the four tables of it that pages read (data/tables/published_*.csv);
#                                        SOURCE=name: one source, its rows, empty columns and findings; OBSERVATORY_RAW=folder: more raw files
#     make expect DATA=rows.csv OUT=predicted.csv   what to expect of one user or many on any accelerator, from what others published;
#                                        predict-fit: its coefficients from all published rows; expect-proof: its errors on
#                                        sources left out, and what intervals need;
#                                        expect-tables: the answers that the page How much looks up, in downloads/
#     make proof                         the long simulations behind the intervals; their result is committed
#     make lint                          format, style, types, and which room and package may import which
#     make readme                        the README's made parts, data/results.md and data/dictionary.md, from data/tables
#     make tables                        data/tables from the committed runs; python -m bench.topics.tables check compares them
#     make figures                       figures/: every labelled cell of a page
#     make site                          only the figures and the pages, from the observations that are there
#     make help                          these lines

PYTHON ?= python3
# Tests and studies are hundreds of short processes: each would compile bench/ anew.
unexport PYTHONDONTWRITEBYTECODE
export PATH := $(CURDIR)/.venv/bin:$(PATH)
CONFIG := $(if $(filter-out 0,$(ALL)),all=True) $(if $(BUDGET),budget=$(BUDGET)) $(if $(REPEATS),repeats=$(REPEATS)) $(if $(SEED),seed=$(SEED)) $(if $(ENGINES),engines="$(ENGINES)") $(if $(EXPERIMENTS),experiments="$(EXPERIMENTS)") $(if $(DEVICE),device=$(DEVICE)) $(if $(GPU),gpu=$(GPU)) $(if $(MODELS),models="[$(MODELS)]")
SNAKEMAKE = snakemake $(if $(PROFILE),--workflow-profile profiles/$(PROFILE)) $(if $(strip $(CONFIG)),--config $(CONFIG))
# What a cluster calls the device that a run asks for (profiles/slurm); empty: none is asked for.
export GRES ?=
# make study WAIT=1: wait for an idle machine; STRICT=1: refuse one that is not.
export BENCH_WAIT := $(WAIT)
export BENCH_STRICT := $(STRICT)
# KEEP=1: what engines make of large models is not deleted after its last run.
export BENCH_KEEP := $(filter-out 0,$(KEEP))
# A mistyped variable would be ignored, and everything measured.
VARIABLES := A ALL B BASE BATCH BUDGET CONCURRENCY DATA DEVICE ENGINES EXPERIMENTS FAIL_IF FILE FROM GPU GRES KEEP MAP MODEL MODELS NAME OPTION OUT OUTPUT PROFILE PROMPT PYTHON \
  REPEATS SEED SHELL SOURCE STRICT TAKE TP WAIT WEIGHTS
GIVEN := $(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(name)))
UNKNOWN := $(filter-out $(VARIABLES) MAKE% -%,$(GIVEN))
ifneq ($(UNKNOWN),)
$(error No variable $(firstword $(UNKNOWN)) here. There are: $(VARIABLES))
endif
# On a node without network (HOWTO.md): pip looks nowhere but in wheels/, and the hub is not asked.
ifneq ($(wildcard wheels/*.whl),)
export PIP_NO_INDEX := 1
export PIP_FIND_LINKS := $(CURDIR)/wheels
export HF_HUB_OFFLINE := 1
endif

.PHONY: compare compare-scatter compare-proof observatory expect predict-fit expect-proof expect-tables study try test check check-backend check-engines faults wheels audit contribute proof lint site tables figures readme help install
.DEFAULT_GOAL := study

study: .venv/ready $(if $(PROFILE),.venv/$(PROFILE))
	@exec $(SNAKEMAKE)

# One run with short answers, in a folder of its own.
try: .venv/ready
	@BENCH_RESULTS="$(CURDIR)/scratch" exec python -m bench.workflow.trial $(CONFIG)

help:
	@sed -n 's/^#     //p' Makefile

site: .venv/ready
	@snakemake --config partial=True $(CONFIG) -- draw

tables: .venv/ready
	@python -m bench.topics.tables

figures: .venv/ready
	@python -m bench.cells

readme: .venv/ready
	@python -m bench.report.readme
	@python -m bench.report.forge

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

wheels: .venv/ready
	@pip wheel --quiet --no-deps --wheel-dir dist . && rm -rf build

# $(call need,VARIABLE,example): without that variable the target says so, instead of what its command makes of "".
need = @test -n "$($(1))" || { echo 'Say $(1), as in: make $(2)' >&2; exit 2; }

audit: .venv/ready
	$(call need,FILE,audit FILE=result.json)
	@python -m llm_measured.audit "$(FILE)" $(if $(MAP),--map "$(MAP)") $(if $(PROMPT),--prompt-tokens $(PROMPT)) $(if $(OUTPUT),--output-tokens $(OUTPUT)) $(if $(CONCURRENCY),--concurrency $(CONCURRENCY)) $(if $(BATCH),--batch-size $(BATCH)) $(if $(ALL),--all) $(if $(GPU),--gpu "$(GPU)") $(if $(MODEL),--model "$(MODEL)") $(if $(WEIGHTS),--weights "$(WEIGHTS)") $(if $(TP),--tensor-parallel $(TP))

# The words of a variable, or its one file whose name has spaces.
space := $() $()
files = $(if $(wildcard $(subst $(space),\ ,$($1))),"$($1)",$($1))
compare: .venv/ready
	$(call need,A,compare A="a1.json a2.json" B=b.json)
	$(call need,B,compare A="a1.json a2.json" B=b.json)
	@python -m llm_measured compare $(call files,A) -- $(call files,B) $(if $(FAIL_IF),--fail-if "$(FAIL_IF)")

compare-scatter: .venv/ready
	@python -m llm_measured.compare.scatter _llama-inference

compare-proof: .venv/ready
	@python tests/compare/errors.py

contribute: .venv/ready
	@python -m bench.workflow.contribute $(if $(BASE),--base "$(BASE)") $(if $(FROM),--from "$(FROM)") $(if $(TAKE),--take)

observatory: .venv/ready
	@python -m llm_measured.published $(if $(SOURCE),report "$(SOURCE)",build)
	$(if $(SOURCE),,@python -m llm_measured.published tables)

expect: .venv/ready
	$(call need,DATA,expect DATA=rows.csv OUT=predicted.csv)
	$(call need,OUT,expect DATA=rows.csv OUT=predicted.csv)
	@python -m llm_measured.predict.command predict "$(DATA)" "$(OUT)"

predict-fit: .venv/ready
	@OPENBLAS_NUM_THREADS=1 python -m llm_measured.predict.command fit

expect-proof: .venv/ready
	@OPENBLAS_NUM_THREADS=1 python -m llm_measured.predict.command prove

expect-tables: .venv/ready
	@python -m bench.report.expect_tables

check-backend: .venv/ready
	$(call need,NAME,check-backend NAME=mine)
	@python -m bench.experiments.check_backend $(NAME) $(OPTION) $(if $(DEVICE),--device $(DEVICE))

check-engines: .venv/ready .venv/test
	@python tests/check_engines.py $(NAME)

faults: .venv/ready .venv/test
	@python tests/faults.py $(if $(NAME),"$(NAME)")

proof: .venv/ready
	@OPENBLAS_NUM_THREADS=1 python -m bench.topics.proof

lint: .venv/ready .venv/test
	@ruff format --check bench llm_measured tests
	@ruff check bench llm_measured tests
	@lint-imports
	@mypy

install: .venv/ready .venv/test

# Without a GPU, PyTorch's wheel for CPUs: 3 GB less to download, 4 on disk. pip would wait for an index that does
# not answer, so one look with a limit comes first.
CPU_WHEELS := https://download.pytorch.org/whl/cpu
CPU_INDEX = nvidia-smi -L > /dev/null 2>&1 || test -n "$$PIP_NO_INDEX" || \
  ! timeout 10 $(PYTHON) -c 'from urllib.request import urlopen; urlopen("$(CPU_WHEELS)/torch/", timeout=5)' > /dev/null 2>&1 || \
  echo --extra-index-url $(CPU_WHEELS)

.venv/ready: environments/default.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 study")'
	@$(PYTHON) -c 'import shutil, sys; free = shutil.disk_usage(".").free / 1e9; sys.exit(free < 4 and f"The installation takes 4 GB on disk, 7 with a GPU; {free:.1f} GB are free here.")'
	@echo "Installing environments/default.txt in .venv: five engines and what they need: 1 GB to download. With a GPU, or where PyTorch's"
	@echo "CPU index does not answer, 3.3 GB. pip says below what it fetches and how large each part is."
	@$(PYTHON) -m venv .venv
	@.venv/bin/pip install --disable-pip-version-check --requirement environments/default.txt $$($(CPU_INDEX))
	@.venv/bin/pip install --quiet --disable-pip-version-check --no-deps --editable .
	@.venv/bin/python environments/add_checkout.py
	@mkdir -p .venv/etc/ipython && echo "c.IPKernelApp.log_level = 'ERROR'" > .venv/etc/ipython/ipython_kernel_config.py
	@touch $@

.venv/test: environments/test.txt
	.venv/bin/pip install --quiet --requirement environments/test.txt
	touch $@

.venv/%: profiles/%/requirements.txt | .venv/ready
	.venv/bin/pip install --quiet --requirement $<
	touch $@
