# The two commands: `make demo` and `make test`. Both set everything up: a Python >= 3.11 and a Java 17 or 21 are all they need.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
WORKERS ?= 3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
FUZZER := build/fuzz/atheris
MINUTES ?= 60

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-26s %s\n", $$1, $$2}'

$(INSTALLED): requirements/dev.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "error: there is no $(PYTHON); install Python 3.11 or newer, or run make PYTHON=/path/to/python"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: $$($(PYTHON) --version) is too old: Python 3.11 or newer is needed (make PYTHON=...)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "error: $(PYTHON) cannot make virtual environments; on Debian: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --config-settings editable_mode=compat -e .
	@touch $@

.PHONY: install
install: $(INSTALLED) ## Make .venv with the pinned dependencies (the other targets do it)

.PHONY: demo
demo: $(INSTALLED) ## Real Postgres, Kafka, Spark and publisher on a real clickstream, two SIGKILLs, a verdict (< 3 minutes); KEEP=1: stays up
	@$(BIN)/python -m examples.demo $(if $(KEEP),--keep)

.PHONY: check
check: $(INSTALLED) ## Formatting, lint, types, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: test
test: check ## Everything but the long runs and what needs a container engine; installs nothing outside of .venv and the user's caches
	$(BIN)/spark-job prepare
	$(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: test-unit
test-unit: $(INSTALLED) ## The tests that need no server
	$(BIN)/pytest tests/unit

.PHONY: test-containers
test-containers: $(INSTALLED) ## What needs a container engine: docker-compose.yml, a part of the integration tests on containers (tests/containers/README.md)
	CI=1 $(BIN)/pytest tests/containers -m containers

.PHONY: integration-on-containers
integration-on-containers: $(INSTALLED) ## All integration tests on Postgres and Kafka in containers (tests/containers/README.md)
	OUTBOX_TEST_SERVERS=containers $(BIN)/pytest tests/containers/test_servers.py tests/integration/db tests/integration/spark_job tests/integration/publisher -m 'not faults'

.PHONY: faults
faults: $(INSTALLED) ## A kill and a failure at each step, failovers, damages, zombies: the long runs; prints the tables, writes docs/faults*.md
	FAULT_TABLES=docs $(BIN)/pytest -m faults

.PHONY: faults-publisher
faults-publisher: $(INSTALLED) ## The publisher's fault matrix alone: kills, zombies, brokers, links, disks (< 20 minutes); writes docs/faults-publisher.md
	FAULT_TABLES=docs $(BIN)/pytest tests/faults/publisher -m faults

.PHONY: soak
soak: $(INSTALLED) ## Two hours: 100 minutes of random kills of everything under load, judged after every five; writes docs/soak.md
	$(BIN)/python -m tests.soak --minutes 100 --report docs/soak.md

.PHONY: soak-short
soak-short: $(INSTALLED) ## The same for ten minutes
	$(BIN)/python -m tests.soak --minutes 10 --report docs/soak.md

$(FUZZER)/.installed: requirements/fuzz.txt $(INSTALLED)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade --no-deps --require-hashes --target $(FUZZER) -r $<
	@touch $@

.PHONY: fuzz
fuzz: $(FUZZER)/.installed ## Coverage-guided fuzzing of events, settings, progress records and the cache for MINUTES (60); adds to tests/fuzz/corpus
	PYTHONPATH=$(FUZZER) $(BIN)/python -m tests.fuzz --minutes $(MINUTES)

.PHONY: bench
bench: $(INSTALLED) ## Measure throughput and latency of the whole path, the relay and its latency
	$(BIN)/python -m benchmarks.pipeline throughput
	$(BIN)/python -m benchmarks.pipeline latency
	$(BIN)/python -m benchmarks.relay
	$(BIN)/python -m benchmarks.relay_latency

.PHONY: format
format: $(INSTALLED) ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: docs
docs: $(INSTALLED) ## Generate docs/configuration.md from the settings
	$(BIN)/python -m service.configuration > docs/configuration.md

.PHONY: lock
lock: $(INSTALLED) ## Pin the dependencies anew, with hashes and without addresses
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-header --extra dev pyproject.toml -o requirements/dev.txt
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-header --extra job pyproject.toml -c requirements/dev.txt -o requirements/job.txt
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-header --extra publisher --extra migrate pyproject.toml -c requirements/dev.txt -o requirements/publisher.txt
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-header requirements/fuzz.in -o requirements/fuzz.txt

.PHONY: clean
clean: ## Remove what the targets made, .venv too
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
