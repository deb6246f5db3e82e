# Everything sets itself up: each target first brings .venv up to date, which is instant when nothing changed.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CHROMIUM := .tools/chromium/.ready
PROMTOOL := .tools/promtool/.ready
NPM_SERVERS := .tools/azurite/.ready .tools/oidc-provider/.ready

.PHONY: help setup demo docs test browser slow deploy check serve bench crash simulate interop rck proof grpc-code lock licences release

help: ## Show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Make .venv with the command `sandur` and everything the project needs

$(READY): requirements/bootstrap.txt requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Sandur needs Python 3.11 or newer; '$(PYTHON)' is older. Try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing the pinned dependencies into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
	@$(BIN)/uv pip sync --quiet --require-hashes --python $(BIN)/python requirements/bootstrap.txt requirements/dev.txt
	@$(BIN)/uv pip install --quiet --no-deps --no-build-isolation --python $(BIN)/python --editable .
	@touch $@

# Test servers: Azurite for Azure, oidc-provider for OpenID Connect. Without npm their tests are skipped.
.tools/azurite/.ready: tests/servers/azurite/package.json tests/servers/azurite/package-lock.json
.tools/oidc-provider/.ready: tests/servers/oidc_provider/package.json tests/servers/oidc_provider/package-lock.json
$(NPM_SERVERS):
	@mkdir -p $(@D)
	@cp $^ $(<D)/.npmrc $(@D)/
	@if command -v npm >/dev/null; then echo "Installing $(notdir $(@D)) ..."; npm ci --prefix $(@D) --silent --no-audit --no-fund >/dev/null; fi
	@touch $@

# The browser of the system. Without root and apt, the tests that need it are skipped with this reason.
$(CHROMIUM):
	@mkdir -p $(@D)
	@if ! command -v chromium >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing chromium ..."; \
	  { apt-get update -q && apt-get install -qy --no-install-recommends chromium fonts-dejavu-core; } >/dev/null 2>&1 || true; fi
	@touch $@

# promtool checks the alerts and the dashboard; without it, these tests are skipped with this reason.
$(PROMTOOL):
	@mkdir -p $(@D)
	@if ! command -v promtool >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing promtool ..."; \
	  { apt-get update -q && apt-get install -qy --no-install-recommends prometheus; } >/dev/null 2>&1 || true; fi
	@touch $@

test: $(READY) $(NPM_SERVERS) $(CHROMIUM) $(PROMTOOL) ## Run the checks and the tests
	@$(MAKE) --no-print-directory check
	@$(BIN)/python -m pytest --numprocesses=2 --dist=loadscope --no-loadscope-reorder

browser: $(READY) $(NPM_SERVERS) $(CHROMIUM) ## Run the UI in a real browser; pictures of all pages go to .pictures/
	@$(BIN)/python -m pytest -m "browser or not browser" tests/browser

# Helm and kubernetes-validate check the chart; buildah and podman build and run the image, as root.
.tools/deploy/.ready: $(READY)
	@mkdir -p $(@D)
	@if ! command -v helm >/dev/null && command -v go >/dev/null; then \
	  echo "Installing helm ..."; GOBIN=$(abspath $(@D))/bin go install helm.sh/helm/v3/cmd/helm@latest >/dev/null 2>&1 || true; fi
	@$(BIN)/uv venv --quiet --allow-existing --python $(BIN)/python .tools/kubernetes-validate
	@$(BIN)/uv pip install --quiet --python .tools/kubernetes-validate/bin/python kubernetes-validate==1.37.0 || true
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  { apt-get update -q && apt-get install -qy --no-install-recommends buildah podman runc mmdebstrap; } >/dev/null 2>&1 || true; fi
	@touch $@

deploy: .tools/deploy/.ready $(PROMTOOL) ## Install the wheel, build and run the image, validate the chart
	@$(BIN)/python -m pytest -m "slow or not slow" tests/deploy

# Only some of them: make slow TESTS=tests/pipeline
slow: $(READY) ## Run the tests that take minutes (make test leaves them out)
	@$(BIN)/python -m pytest -m slow $(TESTS)

check: $(READY) ## Run formatting, lint, types, import layers, purity, and the shape of the source tree
	@$(BIN)/ruff format --check --quiet . || { echo "Run: $(BIN)/ruff format ."; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo 2>&1 | tail -n +1
	@$(BIN)/python checks/purity.py
	@$(BIN)/python checks/house.py

serve: $(READY) ## Start a server on ./sandur-data and show how to connect engines
	@$(BIN)/sandur serve

demo: $(READY) ## Show the main job end to end on a fresh folder
	@$(BIN)/python -m demo

docs: $(READY) ## Build the documentation site into build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Open build/site/index.html"

bench: $(READY) ## Run the benchmarks next to raw calls and peers; results go to bench/results/
	@$(BIN)/python -m bench

crash: $(READY) ## Run the full crash matrix
	@$(BIN)/python -m pytest -m crash tests/crash tests/chaos tests/events tests/grpc tests/operations tests/pipeline tests/statemachine

# By time or by seeds: make simulate SECONDS=600, make simulate SEEDS=200 FIRST=1000
simulate: $(READY) ## Simulate many servers under faults, from seeds (docs/reliability.md)
	@$(BIN)/python -m tests.simulation $(if $(SEEDS),--seeds $(SEEDS),--seconds $(or $(SECONDS),60)) --first $(or $(FIRST),1)

# An engine that needs its own environment installs it on first use, below .tools. One engine: make interop PARTS=duckdb.
# Only the parts that failed or were interrupted: make interop PARTS=--resume
interop: $(READY) ## Run real engines against a running server, and write the engine matrix
	@$(BIN)/python -m tests.interop.run $(PARTS)

rck: $(READY) ## Run Iceberg's REST Compatibility Kit (needs Java 17 and Maven)
	@$(BIN)/python -m tests.rck

proof: $(READY) ## Check the protocol models over all interleavings
	@$(BIN)/python -m proof

grpc-code: $(READY) ## Generate the code of the gRPC definitions again
	@$(BIN)/python -m checks.grpc_code

lock: ## Pin the dependencies again (versions and hashes)
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 requirements/bootstrap.in -o requirements/bootstrap.txt
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 pyproject.toml --all-extras --group dev -c requirements/bootstrap.txt -o requirements/dev.txt

licences: $(READY) ## Print the licences of all dependencies
	@$(BIN)/python -m checks.dependencies licences

# Options for the image: make release VERSION=1.2.3 IMAGE="--build-arg BASE=python:3.12-slim"
release: $(READY) ## Make a release in dist/: make release VERSION=1.2.3
	@test -n "$(VERSION)" || { echo "Give a version: make release VERSION=1.2.3"; exit 1; }
	@PATH="$(abspath .tools/deploy/bin):$$PATH" $(BIN)/python -m checks.release $(VERSION) --date $$(date -u +%F) --image-options "$(IMAGE)"
