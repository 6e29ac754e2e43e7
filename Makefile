# Two commands do everything, set-up included: `make run` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: run test lint bench cases clean

run: $(READY)
	$(BIN)/cmfspec run

test: $(READY)
	$(BIN)/python -m pytest -n 2 -rs $(ARGS)

lint: $(READY)
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

bench: $(READY)
	$(BIN)/python -m bench --check

cases: $(READY)
	$(BIN)/python -m golden.make cases

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) dist .pytest_cache .mypy_cache .ruff_cache
