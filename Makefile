# Shortcuts only. What a study is stands in study.yaml, how it is carried out in the Snakefile.
#
#     make study                         measure what is installed, draw, build the site
#     make study REPEATS=3               with the repeats that intervals need
#     make study ENGINES="vllm"          these engines only, each in its own environment where it needs one; or one option of one,
#                                        ENGINES="transformers/gptq-int4"
#     make study EXPERIMENTS="latency"   only these of the experiments in study.yaml
#     make test                          the tests
#     make readme                        the README's findings, from the committed observations
#     make site                          only the figures and the pages, from the observations that are there

PYTHON ?= python3
export PATH := $(CURDIR)/.venv/bin:$(PATH)
CONFIG := $(if $(REPEATS),repeats=$(REPEATS)) $(if $(ENGINES),engines="$(ENGINES)") $(if $(EXPERIMENTS),experiments="$(EXPERIMENTS)") $(if $(DEVICE),device=$(DEVICE)) $(if $(MODELS),models="[$(MODELS)]")
SNAKEMAKE = snakemake $(if $(strip $(CONFIG)),--config $(CONFIG))

.PHONY: study test site readme
.DEFAULT_GOAL := study

study: .venv/ready
	@$(SNAKEMAKE)

site: .venv/ready
	@snakemake --config partial=True $(CONFIG) -- draw

readme: .venv/ready
	@python -m bench.findings README.md

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
