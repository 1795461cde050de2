# Two commands matter: `make demo` and `make test`. Both set up everything they need in .venv.
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
UV := $(BIN)/uv
UV_VERSION := 0.13.9

.PHONY: demo test quick bench lint lock clean

demo: $(VENV)/.base
	$(BIN)/orch demo --yes

test: $(VENV)/.dev
	@.ci/postgres
	$(BIN)/python -m pytest -n auto --dist worksteal

quick: $(VENV)/.dev
	@.ci/postgres
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

# Not part of `make test`: what it measures is the machine too. BENCH="chain --quick" chooses.
bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks $(BENCH)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The locks carry hashes and no download address; they are the only source of what gets installed.
lock: $(UV)
	$(UV) pip compile -q --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 \
	  --group build pyproject.toml -o requirements.lock
	$(UV) pip compile -q --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 \
	  --group build --group dev pyproject.toml -o requirements-dev.lock

# A development environment also serves the demo: never shrink it.
$(VENV)/.base: requirements.lock pyproject.toml | $(UV)
	@test -f $(VENV)/.dev || $(UV) pip sync -q --python $(BIN)/python --require-hashes requirements.lock
	@$(UV) pip install -q --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: requirements-dev.lock pyproject.toml | $(UV)
	$(UV) pip sync -q --python $(BIN)/python --require-hashes requirements-dev.lock
	$(UV) pip install -q --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@ $(VENV)/.base

$(UV):
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Orchestrator needs Python 3.11 or newer: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check uv==$(UV_VERSION)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache dist
