# Shortcuts only. What a study is stands in study.yaml, how it is carried out in the Snakefile.
#
#     make study                         measure what is installed, draw, build the site
#     make study REPEATS=3               with the repeats that intervals need
#     make study ENGINES="vllm"          these engines only, each in its own environment where it needs one; or one option of one,
#                                        ENGINES="transformers/gptq-int4"
#     make study EXPERIMENTS="latency"   only these of the experiments in study.yaml
#     make study PROFILE=slurm           on a cluster, with the profile of that name in profiles/ (README)
#     make bundle DEVICE=cuda            one archive that installs and runs the study on a node without network
#     make test                          the tests
#     make readme                        the README's findings, from the committed observations
#     make site                          only the figures and the pages, from the observations that are there

PYTHON ?= python3
export PATH := $(CURDIR)/.venv/bin:$(PATH)
CONFIG := $(if $(REPEATS),repeats=$(REPEATS)) $(if $(ENGINES),engines="$(ENGINES)") $(if $(EXPERIMENTS),experiments="$(EXPERIMENTS)") $(if $(DEVICE),device=$(DEVICE)) $(if $(GPU),gpu=$(GPU)) $(if $(MODELS),models="[$(MODELS)]")
SNAKEMAKE = snakemake $(if $(PROFILE),--workflow-profile profiles/$(PROFILE)) $(if $(strip $(CONFIG)),--config $(CONFIG))
# What a cluster calls the device that a run asks for (profiles/slurm); empty: none is asked for.
export GRES ?=
# On a node without network, unpacked from a bundle (bench/workflow/bundle.py): pip looks nowhere but here, and the hub is not asked.
ifneq ($(wildcard wheels/*.whl),)
export PIP_NO_INDEX := 1
export PIP_FIND_LINKS := $(CURDIR)/wheels
export HF_HUB_OFFLINE := 1
endif

.PHONY: study test site readme bundle
.DEFAULT_GOAL := study

study: .venv/ready $(if $(PROFILE),.venv/$(PROFILE))
	@$(SNAKEMAKE)

site: .venv/ready
	@snakemake --config partial=True $(CONFIG) -- draw

readme: .venv/ready
	@python -m bench.report.findings README.md

bundle: .venv/ready
	@python -m bench.workflow.bundle $(CONFIG)

test: .venv/ready .venv/test
	@pytest

.venv/ready: requirements.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 study")'
	$(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet --requirement requirements.txt
	.venv/bin/pip install --quiet --no-deps --editable .
	touch $@

.venv/test: requirements-test.txt
	.venv/bin/pip install --quiet --requirement requirements-test.txt
	touch $@

.venv/%: profiles/%/requirements.txt | .venv/ready
	.venv/bin/pip install --quiet --requirement $<
	touch $@
