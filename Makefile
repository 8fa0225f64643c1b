# Everything that a user or CI types. Each target makes the environment itself.
#
#   make reproduce        the papers, simulated: claims, verdicts, report
#   make reproduce SCALE=smoke DIR=build/small    the same, small, in a copy of the checkout
#   make test             all tests but the slow ones

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

UV_VERSION := 0.13.8
VENV := .venv
BIN := $(VENV)/bin
# The kernel and DVC's stages find the environment's programs without it being activated.
export PATH := $(CURDIR)/$(BIN):$(CURDIR)/build/uv/bin:$(PATH)
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
export UV_PROJECT_ENVIRONMENT := $(CURDIR)/$(VENV)
export DVC_NO_ANALYTICS := 1
export MPLBACKEND := agg
# The tests start Python hundreds of times: modules are compiled once, and not among the sources.
export PYTHONPYCACHEPREFIX := $(CURDIR)/build/pycache
unexport PYTHONDONTWRITEBYTECODE
# On all processors, the longest first; tests of one group in turn.
TOGETHER := $(BIN)/pytest -q -n auto --dist loadgroup --no-loadscope-reorder
ONLY ?=
SCALE ?= paper
DIR ?=

.PHONY: help env system guest reproduce emulated test test-slow check stub lab bench clean distclean format

help: ## what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

env: ## the Python environment and the C++ core, as locked
	@tools/make-env $(UV_VERSION)

system: ## as root on Debian or Ubuntu: the system packages that the tests use
	@tools/install-system-packages

guest: ## on Debian: what the tests of the hardware tier start a machine from
	@tools/install-guest
	@tools/install-guest kernel-source

reproduce: env ## the papers, simulated, from data to report
ifeq ($(SCALE)$(DIR),paper)
	@$(BIN)/dvc repro
	@$(BIN)/harness report
else
	@tools/reproduce-copy "$(SCALE)" "$(DIR)"
endif

emulated: system env ## as root: the papers on live block devices, beside their simulation
	@$(BIN)/dvc repro data/dvc.yaml
	@$(BIN)/harness report

test: system env ## all tests but the slow ones
	@$(TOGETHER) -m "not slow and not clock"
	@$(BIN)/pytest -q -m "not slow and clock"

test-slow: system env guest ## the slow tests, too
	@$(TOGETHER) -m "not slow and not clock"
	@$(BIN)/pytest -q -m "slow or clock"

check: env ## lint, types, fast tests
	@tools/lint
	@$(TOGETHER) -m "not slow and not builds and not servers and not clock" --maxfail 5

format: env ## puts Python and C++ into shape
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix-only -q .
	@git ls-files 'harness/core/*.[ch]pp' 'harness/core/*.[ch]' 'tests/core/*.cpp' 'tests/core/*.[ch]' 'tests/openssd/*.c' 'hardware/openssd/*.[ch]' | xargs $(BIN)/clang-format -i

stub: env ## the type stub of the compiled core
	@$(BIN)/python -m nanobind.stubgen -q -m harness._core -o harness/_core.pyi

lab: env ## JupyterLab in notebooks/
	@$(BIN)/jupyter lab --notebook-dir=notebooks --ip=127.0.0.1

bench: env ## measures the project's figures into build/bench.json; ONLY=<group> one of them
	@$(BIN)/harness bench --only "$(ONLY)"

clean: ## removes what was built and what a killed run left behind
	@rm -rf build data/journal .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@if [[ $$EUID -eq 0 && -x $(BIN)/harness ]]; then $(BIN)/harness clean; \
	elif [[ -d /run/flashlab ]]; then echo "live devices: as root, 'harness device list' and 'harness clean'"; fi
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean ## and the environment, inputs and results
	@rm -rf $(VENV) .dvc/cache .dvc/tmp data/raw/tpch data/raw/*/ data/results data/figures data/metrics
