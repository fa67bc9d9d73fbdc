# Everything runs in .venv, which any target sets up when it is missing or out of date.

VENV     := .venv
BIN      := $(VENV)/bin
KERNEL_C := $(wildcard src/moldau/wire/_decoder.c src/moldau/wire/records/_kernel.c)
WORKERS  ?= 2
SEEDS    ?= 100
CUTS     ?= 300
KILLS    ?= 30

# Some images forbid Python its compiled files, and every command would start three times as slowly.
unexport PYTHONDONTWRITEBYTECODE
export PIP_NO_INPUT := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test lint format bench bench-quick bench-spark bench-parts sim powercuts chaos clean

help:  ## Show this list
	@echo "Moldau: a distributed commit log that speaks Kafka's protocol."
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.demo  ## Clicks, counted by Spark while the broker is killed: the whole story, in three minutes
	@$(BIN)/python examples/demo.py

test: lint  ## Everything that must hold: lint, types and tests
	@echo "== pytest"
	@$(BIN)/python -m pytest -q -n $(WORKERS)

lint: $(VENV)/.test  ## Style and types only
	@echo "== ruff"
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@echo "== mypy"
	@$(BIN)/mypy

format: $(VENV)/.test  ## Let ruff mend what it can
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

bench: $(VENV)/.bench  ## Measure Moldau beside Apache Kafka, for half an hour; docs/performance.md has the figures
	@$(BIN)/python bench/comparison.py --write

bench-quick: $(VENV)/.bench  ## The same in about five minutes
	@$(BIN)/python bench/comparison.py --quick --write

bench-spark: $(VENV)/.test  ## Measure Spark with Moldau's data source beside Spark with its own connector for Kafka
	@$(BIN)/python bench/spark.py --write

bench-parts: $(VENV)/.test  ## Measure the broker alone and its parts; bench/README.md says what the figures mean
	@for script in bench/wire.py bench/records.py bench/log.py bench/startup.py bench/request.py bench/broker.py \
	    bench/groups.py; do \
	    echo "== $$script"; $(BIN)/python "$$script" || exit 1; \
	done

sim: $(VENV)/.base  ## Run simulated clusters under many seeds: make sim SEEDS=1000
	@$(BIN)/moldau sim --seeds $(SEEDS)

powercuts: $(VENV)/.base  ## Cut real power under a log, on a loop device: sudo make powercuts CUTS=300
	@$(BIN)/python tests/power_cuts.py --times $(CUTS)

chaos: $(VENV)/.test  ## Kill driver, workers and broker under Spark, and check what was written: make chaos KILLS=30 SEED=1
	@PYTHONPATH=tests $(BIN)/python -m spark.chaos --kills $(KILLS) $(if $(SEED),--seed $(SEED)) --json build/chaos.json

clean:  ## Remove the environment, caches and everything built
	@rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis src/*.egg-info
	@find src tests bench examples -name __pycache__ -prune -exec rm -rf {} +
	@find src -name '*.so' -delete
	@echo "Clean."

# The stamps: an install happens only when what it depends on has changed. The test environment can do all that
# the base one can, and the demo's.

$(VENV)/.base: $(VENV)/.created pyproject.toml setup.py $(KERNEL_C)
	@echo "== installing moldau into $(VENV)"
	@$(BIN)/python -m pip install --quiet --editable '.[arrow]'
	@touch $@

# What cannot be installed from here is looked for before the long download.
$(VENV)/.demo: $(VENV)/.base
	@$(BIN)/python examples/demo.py --check
	@echo "== installing PySpark, which is Spark itself, and what it needs, into $(VENV)"
	@echo "   (about 450 MB the first time, and a minute or two to unpack it)"
	@$(BIN)/python -m pip install --editable '.[demo]'
	@touch $@

$(VENV)/.test: $(VENV)/.created pyproject.toml setup.py $(KERNEL_C)
	@echo "== installing moldau and its test tools into $(VENV) (some minutes the first time, for Spark is among them)"
	@$(BIN)/python -m pip install --quiet --editable '.[arrow,test]'
	@touch $@ $(VENV)/.base $(VENV)/.demo

$(VENV)/.bench: $(VENV)/.created pyproject.toml setup.py $(KERNEL_C)
	@echo "== installing moldau and what it is measured with into $(VENV)"
	@$(BIN)/python -m pip install --quiet --editable '.[bench]'
	@touch $@ $(VENV)/.base

$(VENV)/.created:
	@$(FIND_PYTHON); \
	echo "== creating $(VENV) with $$($$python --version)"; \
	$$python -m venv $(VENV)
	@touch $@

# Sets $python to the first interpreter that will do, or says what to install. PYTHON=... overrides the search.
define FIND_PYTHON
for python in $(or $(PYTHON),python3 python3.13 python3.12 python3.11); do \
    $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; \
    python=; \
done; \
if [ -z "$$python" ]; then \
    echo "Moldau needs Python 3.11 or newer, and found none as $(or $(PYTHON),python3 or python3.11 to python3.13)." >&2; \
    echo "Install one, or name it: make PYTHON=/path/to/python3" >&2; \
    exit 1; \
fi; \
if ! $$python -c 'import ensurepip, venv' 2>/dev/null; then \
    echo "$$python cannot create virtual environments. On Debian or Ubuntu: sudo apt install python3-venv" >&2; \
    exit 1; \
fi
endef
