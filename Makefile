# Everything that a user or CI types. Each target makes the environment itself.
#
#   make quick            all papers at a small scale, the whole pipeline and report, in a copy
#   make reproduce        the papers, simulated: claims, verdicts, report
#   make reproduce SCALE=small DIR=build/small    the same at another scale, in a copy of the checkout
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
TOGETHER := $(BIN)/pytest -q -n auto --dist loadgroup --no-loadscope-reorder --durations 12 --durations-min 8
ONLY ?=
BESIDE ?=
SCALE ?=
DIR ?=

.PHONY: help env system guest newest servers browser quick reproduce emulated hardware test test-slow check stub commands lab bench release clean distclean format

help: ## what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

env: ## the Python environment and the C++ core, as locked
	@tools/make-env $(UV_VERSION)

system: ## as root on Debian or Ubuntu: the system packages that the tests use
	@tools/install-system-packages

guest: ## on Debian: what the tests of the hardware tier start a machine from
	@tools/install-guest
	@tools/install-guest kernel-source

newest: ## on Debian: its newest compilers and bpftrace, which the slow tests use
	@tools/install-newest

servers: ## on Debian: database servers of other series than this machine's, for the slow tests
	@tools/install-servers

# A warning is an error for those who change the code, and in CI (.ci/run); never for who uses it.
check test-slow: export FLASHLAB_WERROR := ON

browser: ## as root on Debian: Chromium, in which the slow tests look at pages
	@tools/install-system-packages chromium chromium-driver

quick: env ## all papers, small and once: the same pipeline and report, in build/quick
	@tools/reproduce-copy smoke "$(or $(DIR),build/quick)" once

reproduce: env ## the papers, simulated, from data to report
ifeq ($(SCALE)$(DIR),)
	@$(BIN)/dvc repro
	@$(BIN)/harness report
else
	@tools/reproduce-copy "$(SCALE)" "$(DIR)"
endif

emulated: system env ## as root: the papers on live block devices, beside their simulation
	@$(BIN)/harness machine emulated
	@$(BIN)/dvc repro code data/dvc.yaml
	@$(BIN)/harness report

hardware: system env ## as root: the papers on claimed drives, DRIVES="ssd=NAME hdd=NAME"; a plan first, then RUN=yes
	@$(BIN)/harness machine hardware
ifeq ($(RUN),yes)
	@$(BIN)/harness hardware choose $(DRIVES) --write data/drives.json
	@tools/hardware-pipeline
else
	@$(BIN)/harness hardware choose $(DRIVES)
	@echo 'nothing was written yet; to run it: make hardware DRIVES="$(DRIVES)" RUN=yes'
endif

test: system env ## all tests but the slow ones
	@$(TOGETHER) -m "not slow and not clock"
	@$(BIN)/pytest -q -m "not slow and clock"

test-slow: system env guest newest servers browser ## the slow tests, too
	@$(TOGETHER) -m "not slow and not clock"
	@$(BIN)/pytest -q -m "slow or clock"

check: env ## lint, types, fast tests
	@tools/lint
	@$(TOGETHER) -m "not slow and not builds and not servers and not clock" --maxfail 5

format: env ## puts Python and C++ into shape
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix-only -q .
	@git ls-files 'harness/core/*.[ch]pp' 'harness/core/*.[ch]' 'tests/core/*.cpp' 'tests/core/*.[ch]' 'tests/openssd/*.c' 'hardware/openssd/*.[ch]' | xargs $(BIN)/clang-format -i

stub: env ## the type stubs of the compiled core, and of the parameters that it describes
	@$(BIN)/python -m nanobind.stubgen -q -m harness._core -o harness/_core.pyi
	@$(BIN)/python tools/parameters-stub harness/devices/core_parameters.pyi

commands: env ## docs/commands.md, from the command line itself
	@$(BIN)/typer harness.commands.main utils docs --name harness --output docs/commands.md

lab: env ## JupyterLab in notebooks/; a kernel that is ended may put back what it has changed first
	@$(BIN)/jupyter lab --notebook-dir=notebooks --ip=127.0.0.1 --KernelManager.shutdown_wait_time=1200 \
		$(if $(filter 0,$(shell id -u)),--allow-root) # claimed drives are root's

bench: env ## measures the project's figures into build/bench.json; ONLY=<group> one of them; BESIDE="mqsim=FOLDER"
	@$(BIN)/harness bench --only "$(ONLY)" $(addprefix --beside ,$(BESIDE))

release: env ## one archive of what is committed: sources, recorded data, RO-Crate
	@$(BIN)/harness release

clean: ## removes what was built and what a killed run left behind
	@rm -rf --one-file-system --preserve-root=all build data/journal .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@if [[ $$EUID -eq 0 && -x $(BIN)/harness ]]; then $(BIN)/harness clean; \
	elif [[ -d /run/flashlab ]]; then echo "live devices: as root, 'harness device list' and 'harness clean'"; fi
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean ## and the environment, inputs and results
	@rm -rf --one-file-system --preserve-root=all $(VENV) .dvc/cache .dvc/tmp data/results data/figures data/metrics
	@find data/raw -mindepth 1 -maxdepth 1 -type d -exec rm -rf --one-file-system --preserve-root=all {} + # no link, nor through one
