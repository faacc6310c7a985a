# Needs make and Python 3.11 or newer; everything else is set up here, in .venv, when a target first needs it.

VENV := .venv
BIN := $(VENV)/bin
# Passed on to the command, for example: make test ARGS="-k lease"
ARGS ?=
# Test processes: four keep two cores busy, for many tests wait. `make test WORKERS=0` runs everything in one.
WORKERS ?= 4
# How often `make chaos` goes round.
ROUNDS ?= 3
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt

# Many tests start processes, and without bytecode each of these would compile the whole package again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-fast ci check format bench chaos docs clean

help: ## show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.demo ## see jobs live and die, and their history become a lake and a report, on SQLite
	@rm -rf build/demo
	@$(BIN)/python -m taskharbor demo --keep build/demo $(ARGS)

test: $(VENV)/.dev ## run every test; servers start by themselves
	$(BIN)/python -m pytest --numprocesses $(WORKERS) $(ARGS)

test-fast: $(VENV)/.dev ## run the unit tier: no servers, seconds in all
	$(BIN)/python -m pytest --fast --numprocesses $(WORKERS) $(ARGS)

ci: ## what CI runs: check, then test, with nothing skipped
	$(MAKE) check
	TASKHARBOR_REQUIRE_ALL=1 $(MAKE) test

check: $(VENV)/.dev ## check format, lint, types and imports
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy
	$(BIN)/python -m mypy tests/app/typed_application.py
	$(BIN)/lint-imports

format: $(VENV)/.dev ## format the code and mend what ruff can mend
	$(BIN)/python -m ruff format .
	$(BIN)/python -m ruff check --fix .

bench: $(VENV)/.bench ## measure ours beside other queues and plain SQL, as ratios
	$(BIN)/python -m bench $(ARGS)

chaos: $(VENV)/.dev ## end processes and servers at random, with a new seed each round: make chaos ROUNDS=10
	@round=1; while [ $$round -le $(ROUNDS) ]; do \
	  echo "round $$round of $(ROUNDS)"; \
	  $(BIN)/python -m pytest --numprocesses $(WORKERS) tests/hard tests/drivers/test_json_crashes.py \
	    tests/worker/test_outages.py tests/pipeline/test_faults.py tests/pipeline/test_load_faults.py \
	    tests/pipeline/test_archive_killed.py $(ARGS) || exit 1; \
	  round=$$((round + 1)); \
	done

docs: $(VENV)/.dev ## run the README's code and check every link inside the documents
	$(BIN)/python -m pytest tests/test_readme.py tests/test_documents.py $(ARGS)

clean: ## remove .venv and what tools leave behind
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	find $(wildcard src tests bench examples) -name __pycache__ -type d -prune -exec rm -rf {} +

# --- Set-up: a stamp for each step, so that the next run is quick ---------------------------------------------

# The build tools come first and stay, so that installing ourselves fetches nothing that constraints.txt does not name:
# hatchling and editables are for this package, setuptools is for PySpark, which comes as sources.
$(VENV)/.python:
	@for candidate in $(PYTHON) python3 python3.13 python3.12 python3.11 python3.14; do \
	  if $$candidate -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "creating $(VENV) with $$($$candidate --version)"; \
	    $$candidate -m venv --clear $(VENV) || exit 1; \
	    $(PIP) hatchling editables setuptools || exit 1; \
	    touch $@; exit 0; \
	  fi; \
	done; \
	echo "make needs Python 3.11 or newer with its venv module: install it (on Debian: python3 and python3-venv)," >&2; \
	echo "or name one: make PYTHON=/path/to/python3" >&2; exit 1

$(VENV)/.bare: $(VENV)/.python pyproject.toml constraints.txt
	@$(PIP) --no-build-isolation --editable .
	@touch $@

$(VENV)/.demo: $(VENV)/.python pyproject.toml constraints.txt
	@echo "installing Spark: once, some 450 MB"
	@$(PIP) --no-build-isolation --editable '.[cli,spark]'
	@touch $@ $(VENV)/.bare

$(VENV)/.dev: $(VENV)/.python pyproject.toml constraints.txt
	@echo "installing the test tools"
	@$(PIP) --no-build-isolation --editable '.[dev,postgres,mysql,spark]'
	@touch $@ $(VENV)/.bare

$(VENV)/.bench: $(VENV)/.dev
	@echo "installing the queues to measure against"
	@$(PIP) --no-build-isolation --editable '.[dev,postgres,mysql,spark,bench]'
	@touch $@
