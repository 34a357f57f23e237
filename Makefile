# The two commands: `make demo` and `make test`. Both set everything up: a Python >= 3.11 and a Java 17 or 21 are all they need.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
WORKERS ?= 3
KUSTOMIZE ?= go run sigs.k8s.io/kustomize/kustomize/v5@v5.8.1 build
HELM ?= go run helm.sh/helm/v3/cmd/helm@v3.22.0
ACTIONLINT ?= go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DIST := dist
BUILD ?= docker build
IMAGES ?= spark-outbox
TAG ?= $(or $(VERSION),latest)
AUDIT := build/audit-tools
SITE := build/site
FUZZER := build/fuzz/atheris
S3_SERVER := build/s3-server
AXE := build/axe/node_modules/axe-core/axe.min.js
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
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
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

.PHONY: prepare
prepare: $(INSTALLED)
	$(BIN)/spark-job prepare

$(S3_SERVER)/.installed: requirements/s3-server.txt $(INSTALLED)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade --require-hashes --target $(S3_SERVER) -r $<
	@touch $@

.PHONY: s3-server
s3-server: $(S3_SERVER)/.installed ## Install the server of S3 that tests of the archive start (`make test` does it)

.PHONY: test
test: $(S3_SERVER)/.installed ## Everything but the long runs and what needs a container engine; installs nothing outside of .venv and the user's caches
	@# Types are checked on one core, and Spark's classes archived on another one meanwhile.
	$(MAKE) --jobs=2 check prepare
	$(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: test-unit
test-unit: $(INSTALLED) ## The tests that need no server
	$(BIN)/pytest tests/unit

$(AXE):
	npm install --no-save --no-package-lock --no-audit --no-fund --silent --prefix build/axe axe-core@4.14.1

.PHONY: test-console
test-console: $(INSTALLED) $(AXE) ## The console in a real Chromium; needs npm and Chromium (apt-get install chromium), or CHROMIUM=/path; writes docs/images
	$(BIN)/pytest tests/browser -m browser

.PHONY: test-monitoring
test-monitoring: $(INSTALLED) ## Alerts, dashboard and runbook on a real Prometheus; needs it (apt-get install prometheus), or PROMETHEUS=/path
	$(BIN)/pytest tests/monitoring -m monitoring

.PHONY: check-dashboard
check-dashboard: ## The Grafana dashboard against Grafana's own schema (its foundation SDK); needs Go
	cd tests/monitoring/dashboard_schema && go run . $(abspath deploy/monitoring/grafana/dashboards/spark-outbox.json)

.PHONY: check-manifests
check-manifests: $(INSTALLED) ## deploy/kubernetes as kustomize builds it; needs Go, or KUSTOMIZE="kubectl kustomize" (`make test` reads the files)
	KUSTOMIZE="$(KUSTOMIZE)" $(BIN)/pytest tests/unit/deploy

.PHONY: helm-chart
helm-chart: $(INSTALLED) ## Make deploy/helm/spark-outbox out of deploy/kubernetes
	$(BIN)/python deploy/helm/make.py deploy/helm/spark-outbox

.PHONY: check-chart
check-chart: $(INSTALLED) ## The chart as helm renders it equals what kustomize builds; needs Go, or HELM=helm and KUSTOMIZE="kubectl kustomize"
	$(HELM) lint --strict deploy/helm/spark-outbox
	HELM="$(HELM)" KUSTOMIZE="$(KUSTOMIZE)" $(BIN)/pytest tests/unit/deploy/test_chart.py

.PHONY: helm-package
helm-package: ## The chart as build/helm/spark-outbox-VERSION.tgz (VERSION=1.2.3); needs Go, or HELM=helm
	$(HELM) package --destination build/helm --version $(subst rc,-rc,$(VERSION)) --app-version $(VERSION) deploy/helm/spark-outbox

.PHONY: check-workflows
check-workflows: ## .github/workflows as actionlint reads them; needs Go, or ACTIONLINT=/path (`make test` checks targets, rights and pins)
	$(ACTIONLINT)

.PHONY: test-containers
test-containers: $(INSTALLED) ## What needs a container engine: docker-compose.yml, a part of the integration tests on containers (tests/containers/README.md)
	CI=1 $(BIN)/pytest tests/containers -m containers

.PHONY: test-kubernetes
test-kubernetes: $(INSTALLED) ## deploy/kubernetes on a real node that the tests start: kills, rollouts, policies; needs root on Debian and Go (tests/kubernetes/README.md)
	$(BIN)/pytest tests/kubernetes -m kubernetes

.PHONY: integration-on-containers
integration-on-containers: $(INSTALLED) ## All integration tests on Postgres and Kafka in containers (tests/containers/README.md)
	OUTBOX_TEST_SERVERS=containers $(BIN)/pytest tests/containers/test_servers.py tests/integration/db tests/integration/spark_job tests/integration/publisher -m 'not faults'

.PHONY: test-matrix
test-matrix: $(INSTALLED) ## A part of the tests on each Postgres, Kafka, Python and Java that is supported and here; writes docs/versions.md. CELLS="postgres-15 python-3.13"
	$(BIN)/python -m tests.matrix $(CELLS)

.PHONY: faults
faults: $(INSTALLED) ## A kill and a failure at each step, failovers, damages, zombies: the long runs; prints the tables, writes docs/faults*.md and docs/faults/*.json
	FAULT_TABLES=docs $(BIN)/pytest -m faults

.PHONY: faults-cluster
faults-cluster: $(INSTALLED) ## A Spark cluster whose executors, worker, master and driver are killed (< 20 minutes); docs/cluster.md
	$(BIN)/pytest tests/faults/spark_job/test_cluster.py tests/acceptance/operation/test_secured.py -m faults

.PHONY: faults-publisher
faults-publisher: $(INSTALLED) ## The publisher's fault matrix alone: kills, zombies, brokers, links, disks (< 20 minutes); writes docs/faults-publisher.md and its data
	FAULT_TABLES=docs $(BIN)/pytest tests/faults/publisher -m faults

.PHONY: soak
soak: $(INSTALLED) ## Two hours: 100 minutes of random kills of everything under load, judged after every five; writes docs/soak.md
	$(BIN)/python -m tests.soak --minutes 100 --report docs/soak.md
	$(BIN)/python -m tests.soak.held

.PHONY: soak-short
soak-short: $(INSTALLED) ## The same for ten minutes
	$(BIN)/python -m tests.soak --minutes 10 --report docs/soak.md

.PHONY: test-upgrade
test-upgrade: $(INSTALLED) ## From the release before to this one, from wheel to wheel and under load: schema, publisher, job
	$(BIN)/pytest tests/acceptance/operation/test_rolling_upgrade.py -m faults

$(FUZZER)/.installed: requirements/fuzz.txt $(INSTALLED)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade --no-deps --require-hashes --target $(FUZZER) -r $<
	@touch $@

.PHONY: fuzz
fuzz: $(FUZZER)/.installed ## Coverage-guided fuzzing of events, settings, progress records and the cache for MINUTES (60); adds to tests/fuzz/corpus
	PYTHONPATH=$(FUZZER) $(BIN)/python -m tests.fuzz --minutes $(MINUTES)

BENCH ?= throughput latency capacity growth faults outage catch-up
BENCH_OPTIONS = $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(RESULTS),--results $(RESULTS))
PUBLISHER_OPTIONS = --exactly-once --rounds $(or $(ROUNDS),2) --results $(or $(RESULTS),docs/performance)
# Runs what follows `each` in turn. One that fails does not keep the next from running; at the end they are named.
define in_turn
	failed=; for each in $(1); do \
		$(2) || failed="$$failed $$each"; \
	done; \
	$(MAKE) bench-report || failed="$$failed report"; \
	if [ -n "$$failed" ]; then echo "not complete, so call this again:$$failed" >&2; exit 1; fi
endef

.PHONY: bench
bench: $(INSTALLED) ## The measurements of docs/performance.md beside the peers (about 140 minutes, alone on the machine); goes on where it was cut off. BENCH="latency faults" ROUNDS=1 RESULTS=DIR
	@# It makes starts faster, no more: nothing is given up for it.
	timeout 300 $(BIN)/spark-job prepare || echo "not prepared: starts take some seconds longer" >&2
	@$(call in_turn,$(BENCH),$(BIN)/python -m benchmarks.suite $$each $(BENCH_OPTIONS))

.PHONY: bench-publisher
bench-publisher: $(INSTALLED) ## The publisher beside Debezium and a bare producer, for docs/performance.md (about 15 minutes, alone on the machine); goes on where it was cut off. ROUNDS=5 RESULTS=DIR
	@$(call in_turn,relay relay_latency relay_kills,$(BIN)/python -m benchmarks.$$each --debezium $(PUBLISHER_OPTIONS))

.PHONY: bench-report
bench-report: $(INSTALLED) ## Render docs/performance.md and its pictures from docs/performance/*.json
	$(BIN)/python -m benchmarks.suite report $(if $(RESULTS),--results $(RESULTS))

.PHONY: bench-smoke
bench-smoke: $(INSTALLED) ## A minute of the benchmark suite: whether it works, nothing of speed; writes build/bench-smoke
	rm -rf build/bench-smoke
	$(BIN)/python -m benchmarks.suite smoke --results build/bench-smoke

$(AUDIT)/.installed: requirements/audit.txt
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/audit.txt
	@touch $@

.PHONY: audit
audit: $(AUDIT)/.installed ## Known vulnerabilities of all pinned Python packages, as the package index lists them
	@for each in dev audit; do \
		$(AUDIT)/bin/pip-audit --strict --disable-pip --require-hashes --progress-spinner off -r requirements/$$each.txt; \
	done

.PHONY: sbom
sbom: $(INSTALLED) $(AUDIT)/.installed ## Bills of materials of both services, packages and jars: build/sbom-*.json, CycloneDX, checked
	$(AUDIT)/bin/python requirements/sbom.py --spark-jars $$($(BIN)/python -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent / "jars")')
	$(BIN)/pytest tests/unit/requirements -m sbom

$(SITE)/tools/.installed: requirements/site.txt
	$(PYTHON) -m venv $(SITE)/tools
	$(SITE)/tools/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/site.txt
	@touch $@

.PHONY: docs-site
docs-site: $(SITE)/tools/.installed ## The pages as a site with a search: build/site/html; a link or an anchor that leads nowhere ends it
	$(PYTHON) deploy/site/collect.py $(SITE)
	NO_MKDOCS_2_WARNING=1 $(SITE)/tools/bin/mkdocs build --strict --config-file $(SITE)/mkdocs.yml

.PHONY: format
format: $(INSTALLED) ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: docs
docs: $(INSTALLED) ## Generate docs/configuration.md, docs/commands.md and commands.txt, the JSON schema of the settings, dbt's sources and the PrometheusRule; copy the runbook for the console
	$(BIN)/python -m service.configuration > docs/configuration.md
	$(BIN)/python -m service.json_schema > service/outbox.schema.json
	$(BIN)/python -m db.dbt_sources > deploy/dbt/sources.yml
	$(BIN)/python -m tests.support.pages.commands > docs/commands.md
	$(BIN)/python -m tests.support.pages.commands texts > docs/commands.txt
	cp docs/runbook.md publisher/console/alerts/runbook.txt
	{ printf '%s\n' '# Made from deploy/monitoring/outbox.rules.yml by `make docs`.' 'apiVersion: monitoring.coreos.com/v1' 'kind: PrometheusRule' \
		'metadata:' '  name: spark-outbox' '  labels: {app.kubernetes.io/part-of: spark-outbox}' 'spec:'; \
		sed 's/^./  &/' deploy/monitoring/outbox.rules.yml; } > deploy/kubernetes/operators/prometheus-rule.yaml

.PHONY: lock
lock: $(INSTALLED) ## Pin the dependencies anew, with hashes and without addresses
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-header --extra dev pyproject.toml -o requirements/dev.txt
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-header --extra job --extra schema-registry pyproject.toml -c requirements/dev.txt -o requirements/job.txt
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-header requirements/executor.in -c requirements/dev.txt -o requirements/executor.txt
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-header --extra schema-registry pyproject.toml -c requirements/dev.txt -o requirements/schema-registry.txt
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-header --extra publisher --extra archive --extra console --extra migrate --extra schema-registry pyproject.toml -c requirements/dev.txt -o requirements/publisher.txt
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-header --extra aws --extra azure --extra google pyproject.toml -c requirements/dev.txt -o requirements/logins.txt
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-header --group audit -o requirements/audit.txt
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-header --group site -o requirements/site.txt
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-header requirements/fuzz.in -o requirements/fuzz.txt
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header requirements/s3-server.in -o requirements/s3-server.txt

.PHONY: dist
dist: $(INSTALLED) ## The sdist and the wheel of the last commit in dist/: the same bytes each time, only what is committed; VERSION=1.2.3: an error if that is another version
	@if [ "$$(git rev-parse --is-shallow-repository)" = true ]; then echo "error: this clone is shallow, so the version is not known; git fetch --unshallow --tags"; exit 1; fi
	@clone=$$(mktemp -d); trap 'rm -rf "$$clone"' EXIT; git clone --quiet . "$$clone"; \
	SOURCE_DATE_EPOCH=$$(git -C "$$clone" log -1 --format=%ct) && export SOURCE_DATE_EPOCH; \
	cd "$$clone" && $(abspath $(BIN))/hatchling build --directory $(abspath $(DIST))
	@$(if $(VERSION),test -e $(DIST)/spark_outbox-$(VERSION).tar.gz || { echo "error: $(DIST)/ has no spark_outbox-$(VERSION): is the last commit tagged v$(VERSION)?"; exit 1; })

.PHONY: images
images: ## Both images for this machine's architecture: IMAGES/publisher and IMAGES/spark-job (IMAGES=registry.example.com/shop VERSION=1.2.3)
	$(BUILD) --build-arg VERSION=$(or $(VERSION),unknown) --file publisher/Dockerfile --tag $(IMAGES)/publisher:$(TAG) .
	$(BUILD) --build-arg VERSION=$(or $(VERSION),unknown) --file spark_job/Dockerfile --tag $(IMAGES)/spark-job:$(TAG) .

.PHONY: guarantees
guarantees: $(INSTALLED) ## Each promise of docs/guarantees.md with the tests that check it
	@$(BIN)/python -m tests.support.pages.guarantees

.PHONY: clean
clean: ## Remove what the targets made, .venv too
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
