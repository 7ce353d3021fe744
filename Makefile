# Everything a person does with a clone, one command each; `make` alone lists them. Needs Python 3.11 to 3.13 and git.
# make test ARGS="tests/sessions -x" passes arguments to pytest; PYTHON=... chooses the interpreter of a new .venv.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
# Container images often set this variable. Every server and kernel that a test starts would then compile both packages.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# How many processes share the tests: they often wait for servers, so one more than the cores of a small machine. Each
# file stays in one of them, because its tests share a server. Models and browsers compute, so they get HEAVY_JOBS.
JOBS ?= 3
HEAVY_JOBS ?= 2
# The tests of the transformers backend run in an environment of their own, made as people make theirs; it installs
# torch, on Linux with CUDA (3 GB).
TORCH := build/torch/.test
TORCH_ENV := build/torch/.environment
# The packages whose sessions ours can be, each in an environment of its own: their pins exclude each other.
PEERS := build/peers-jupyterhub/.test build/peers-openai/.test build/peers-openapi/.test
PEERS += build/peers-gateway/.test build/peers-enterprise/.test build/peers-selectools/.test
# How often a test that failed runs again, in CI once; the summary shows it as RERUN with its failure. What is measured
# (bench) and what is drawn (soak) never runs again.
RERUNS ?=
SOAK_MINUTES ?= 40
SEED ?=
PYTHON ?= $(shell packaging/find-python)
PYTEST := $(BIN)/pytest $(if $(RERUNS),--reruns $(RERUNS) --rerun-show-tracebacks)
PIP := $(BIN)/python -m pip --disable-pip-version-check

# Tests of values, stores, codecs and tools: no server, no model, no browser.
QUICK := tests/test_layers.py tests/test_public_names.py tests/core tests/turn tests/permissions tests/sessions \
	tests/tools/base tests/tools/code tests/tools/files tests/tools/memory tests/tools/notebook tests/tools/skills \
	tests/engines/openai_api tests/engines/local/grammar tests/engines/local/tool_calling tests/engines/local/decoding \
	tests/jupyter_ext/api/dialects tests/jupyter_ext/api/chat_completions tests/jupyter_ext/api/responses \
	tests/jupyter_ext/api/anthropic tests/jupyter_ext/turns tests/jupyter_ext/quotas tests/jupyter_ext/auth
# A browser test that runs into its timeout ends its process. pytest-xdist 3.8 hangs when it replaces such a process while
# the tests of a file stay together (its issue 1323): there, the run ends instead. A browser test has a server of its own,
# so these tests are shared one by one, and a process can be replaced.
BY_FILE := --dist loadfile --max-worker-restart 0
SPECIAL := not torch and not peers and not ray and not guides and not stores

.PHONY: help demo lab quick test test-model test-browser test-torch test-peers test-ray test-stores environments test-guides bench gpu soak lowest lint docs dist pictures ui format clean

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.demo ## Install, get the default model, run the quickstart in a real kernel; results in build/demo/
	$(BIN)/agent-kernel model pull default --yes
	$(BIN)/python -m demo notebooks/quickstart.ipynb --into build/demo

lab: $(VENV)/.lab ## The same in JupyterLab, opened on a copy of the quickstart in build/lab/
	$(BIN)/agent-kernel model pull default --yes
	mkdir -p build/lab
	test -e build/lab/quickstart.ipynb || cp notebooks/quickstart.ipynb build/lab/
	$(BIN)/jupyter lab build/lab/quickstart.ipynb $(if $(filter 0,$(shell id -u)),--allow-root)

quick: $(VENV)/.test ## Lint, types and the tests that start no server, model or browser (about 3 minutes)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest -n $(JOBS) $(BY_FILE) -m "not browser and not model and not slow and $(SPECIAL)" $(QUICK) $(ARGS)
	if [ -d ui/node_modules ]; then cd ui && npx vitest run; fi

test: $(VENV)/.test ## Install what tests need and run them, without a model or a browser; test-* have the others
	$(PYTEST) -n $(JOBS) $(BY_FILE) -m "not browser and not model and $(SPECIAL)" $(ARGS)

test-model: $(VENV)/.test ## The tests that run a local model
	$(PYTEST) -n $(HEAVY_JOBS) $(BY_FILE) -m "model and not browser and $(SPECIAL)" $(ARGS)

test-browser: $(VENV)/.test chromium ## The tests of JupyterLab and Notebook in Chromium
	$(PYTEST) -n $(HEAVY_JOBS) --dist load -m "browser and $(SPECIAL)" $(ARGS)

test-torch: $(VENV)/.test $(TORCH) ## The tests that need torch, which it installs into build/torch (on Linux 3 GB)
	$(PYTEST) -m torch $(ARGS)

test-peers: $(VENV)/.test $(PEERS) chromium ## The tests against other frameworks, each installed into build/
	$(PYTEST) -n $(HEAVY_JOBS) $(BY_FILE) -m peers $(ARGS)

test-ray: $(VENV)/.test build/ray/.test ## The tests of a model on a Ray cluster (1 GB, minutes; not in CI)
	$(PYTEST) -m ray tests/jupyter_ext/ray_serve $(ARGS)

test-stores: $(VENV)/.stores build/moto/.test ## The tests of sessions on databases, which wheels install or fake
	$(PYTEST) -n $(HEAVY_JOBS) $(BY_FILE) -m "stores and not slow" tests/sessions/log $(ARGS)

environments: $(TORCH) $(PEERS) build/moto/.test ## Install the environments of test-torch, test-peers and test-stores, which those also do

test-guides: $(VENV)/.test ## Run the guides in notebooks/ with the real default model
	$(PYTEST) -m guides $(ARGS)

bench: $(VENV)/.test $(TORCH) $(PEERS) ## Measure speed against peers and write docs/performance.md (minutes)
	failed=0; $(BIN)/pytest -m "" tests/benchmarks $(ARGS) || failed=$$?; \
		$(BIN)/python -m tests.benchmarks.figures; exit $$failed

gpu: $(VENV)/.test $(TORCH_ENV) ## Measure the GPU in 10 minutes: MODEL=DIRECTORY with safetensors, SHAPE=qwen_1_5b for random weights, or DRY=cpu
	$(BIN)/python -m tests.benchmarks.gpu_rows $(if $(DRY),--dry-device $(DRY)) $(if $(MODEL),--model $(MODEL)) $(if $(SHAPE),--random $(SHAPE)) $(ARGS)

soak: $(VENV)/.test chromium ## Kills, fuzzing, streams, attacks, XSS, drawn from a seed, for SOAK_MINUTES (40)
	$(BIN)/pytest tests/soak --soak-minutes $(SOAK_MINUTES) $(if $(SEED),--seed $(SEED)) $(ARGS)

lowest: ## Run the tests with the oldest dependencies that pyproject.toml allows, in build/lowest
	test -x build/lowest/bin/python || $(PYTHON) -m venv build/lowest
	$(PYTHON) packaging/lowest > build/lowest/constraints.txt
	build/lowest/bin/python -m pip install -q -c build/lowest/constraints.txt --editable '.[test]'
	build/lowest/bin/python -m pytest -m "not browser and not torch and not peers and not ray and not guides and not stores" $(ARGS)

lint: $(VENV)/.test ## ruff, mypy and the layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest -q tests/test_layers.py

docs: $(VENV)/.docs ## Build the documentation site, with the reference of commands and names, in build/docs/
	$(BIN)/python packaging/docs-pages build/docs-pages
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

dist: $(VENV)/.test ## Build the sdist, both wheels and the list of all dependencies (CycloneDX) in dist/
	rm -rf dist build/dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m build --wheel --outdir dist packaging/magic
	$(BIN)/python -m venv build/dist/installed
	$(BIN)/python -m venv build/dist/cyclonedx
	build/dist/installed/bin/python -m pip install -q --disable-pip-version-check dist/agent_kernel-*.whl
	build/dist/cyclonedx/bin/python -m pip install -q --disable-pip-version-check cyclonedx-bom
	build/dist/cyclonedx/bin/cyclonedx-py environment build/dist/installed --output-reproducible \
		--pyproject pyproject.toml --output-file dist/agent_kernel.cdx.json

pictures: $(VENV)/.test chromium ## Take the pictures of the documentation from JupyterLab with the default model
	$(BIN)/agent-kernel model pull default --yes
	$(BIN)/python -m tests.browser.take_pictures docs/pictures

ui: ui/node_modules/.stamp ## The panel: check, test and build ui/ into what is committed (needs node 20 or later)
	cd ui && npm run --silent check && npx vitest run && npm run --silent build

format: $(VENV)/.test ## Let ruff format and repair what it can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean: ## Remove the environment and everything built; models in the user's cache stay
	rm -rf $(VENV) build dist ui/node_modules .mypy_cache .pytest_cache .ruff_cache

.PHONY: chromium
chromium:
	@packaging/get-chromium

# The stamps: an environment is made once, and installed again only when its requirements changed.
$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "agent-kernel needs Python 3.11, 3.12 or 3.13 with venv (Debian: python3-venv)."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo $(VENV)/.lab $(VENV)/.test $(VENV)/.stores $(VENV)/.docs: $(VENV)/.%: pyproject.toml packaging/jupyter_server_config.json | $(BIN)/python
	$(PIP) install --editable '.[$(EXTRAS)]'
	@touch $@ $(if $(filter test,$(COVERS)),$(VENV)/.test)

# What the lock names, no more and no less.
ui/node_modules/.stamp: ui/package-lock.json
	@command -v npm >/dev/null || { echo "The panel is built with node 20 or later; what is committed works without."; exit 1; }
	cd ui && npm ci --no-audit --no-fund
	@touch $@

build/torch/.environment: agent_kernel/engines/local/catalog/worker_environment.py | $(VENV)/.test
	$(BIN)/agent-kernel model setup gpu --yes --data-dir build/torch
	@touch $@

# Beside the environment: what `transformers serve` needs, and an older transformers for the contract of the grammar hook.
build/torch/.test: $(TORCH_ENV)
	build/torch/environments/gpu/bin/python -m pip install -q --disable-pip-version-check fastapi uvicorn openai
	$(BIN)/python packaging/older-transformers build/torch/environments/gpu build/torch/older
	@touch $@

build/peers-%/.test: tests/peers/requirements-%.txt | $(VENV)/.test
	test -x build/peers-$*/bin/python || $(BIN)/python -m venv build/peers-$*
	build/peers-$*/bin/python -m pip install -q --disable-pip-version-check -r $<
	@touch $@

# The nodes of the cluster load the package itself, so it is installed beside Ray.
build/ray/.test: tests/jupyter_ext/ray_serve/requirements.txt pyproject.toml | $(VENV)/.test
	test -x build/ray/bin/python || $(BIN)/python -m venv build/ray
	build/ray/bin/python -m pip install -q --disable-pip-version-check -r $<
	@touch $@

build/moto/.test: tests/sessions/log/requirements-moto.txt | $(VENV)/.test
	test -x build/moto/bin/python || $(BIN)/python -m venv build/moto
	build/moto/bin/python -m pip install -q --disable-pip-version-check -r $<
	@touch $@

$(VENV)/.demo: EXTRAS := demo
$(VENV)/.lab: EXTRAS := demo,lab
$(VENV)/.test: EXTRAS := test
$(VENV)/.stores: EXTRAS := test,stores
$(VENV)/.docs: EXTRAS := test,docs
# What has the packages of the tests too is not followed by an installation of them alone.
$(VENV)/.stores $(VENV)/.docs: COVERS := test
