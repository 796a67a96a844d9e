# Everything a user or developer of Lockstep runs. `make` alone shows this list.
.DEFAULT_GOAL := help
.PHONY: help setup servers run demo test soak check coverage docs bench simulate drill-matrix clean

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
READY  := $(VENV)/.spark
SITE   := build/docs-packages
SEEDS  ?= 10000
WORKERS ?= 3
PARTS  ?=
SOAK   ?= 1
# Thousands of processes are started here: each would compile every module anew.
unexport PYTHONDONTWRITEBYTECODE

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

setup: $(STAMP) $(READY) ## make .venv with the lockstep command and everything the tests need; Java for Spark

$(STAMP): requirements/dev.txt pyproject.toml
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Lockstep needs Python 3.11 or newer; install it (apt-get install python3.11 python3.11-venv) or set PYTHON=..."; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip' 2>/dev/null || \
	  { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq python3-venv; } || \
	  { echo "Python's venv module is missing; install it (apt-get install python3-venv)"; exit 1; }
	"$(PYTHON)" -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

$(READY): $(STAMP)
	@command -v java >/dev/null || [ -x "$$JAVA_HOME/bin/java" ] || \
	  { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq default-jre-headless; } || \
	  { echo "Spark needs Java 17 or newer; install it (apt-get install default-jre-headless) or set JAVA_HOME"; exit 1; }
	$(BIN)/python -m lockstep.engine.spark.prepare
	@touch $(READY)

run: setup ## streams under kills and pauses; then the drill: engines are killed, and the subscriber's file is the same
	$(BIN)/python -m lockstep.bench.demo
	@mkdir -p build
	$(BIN)/lockstep drill --rate 16000 --plot build/drill.png

demo: setup ## everything on one embedded bus with live data; prints the address to open and the token to sign in with
	$(BIN)/lockstep demo

drill-matrix: setup ## every fault on real engines: one line each, with blocks checked, faults and anomalies
	$(BIN)/python -m lockstep.drill.matrix

servers: setup ## install and fetch the servers that tests run on (as root on Debian); without one its tests are skipped
	@$(BIN)/lockstep dev fetch all || echo "Tests of missing servers are skipped, or fail where CI=true."

test: $(STAMP) ## format, lint, types, and every test but those of make soak, on WORKERS=3 processes
	@$(MAKE) --no-print-directory -j2 --output-sync=recurse check servers
	$(BIN)/pytest -n $(WORKERS) --dist loadgroup --junitxml build/tests.xml

soak: servers ## what needs hours: kill matrices, all buses, millions of events; PARTS=a,b some of it, SOAK=0.1 less of it
	$(BIN)/python tests/soak.py --parts "$(PARTS)" --scale "$(SOAK)"

check: $(STAMP) ## format, lint and types only
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

coverage: $(STAMP) ## what the tests cover of the pure modules; fails below 95 %
	$(BIN)/python tests/coverage_of_pure_modules.py

docs: $(STAMP) $(SITE)/.ready ## make these pages a site in build/site; a link that leads nowhere is an error
	PYTHONPATH=$(SITE):src $(BIN)/python -m sphinx -b html -W --keep-going -q docs build/site
	@echo "build/site/index.html"

$(SITE)/.ready: requirements/docs.txt $(STAMP)
	rm -rf $(SITE)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --target $(SITE) -r requirements/docs.txt
	@touch $@

simulate: setup ## SEEDS=10000: the core under random faults; prints seeds, faults and anomalies
	$(BIN)/python -m lockstep.simulation --seeds $(SEEDS)

bench: setup ## measure every row of the speed table; writes docs/benchmarks/
	$(BIN)/python benchmarks/run_all.py

clean: ## remove what make made
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
