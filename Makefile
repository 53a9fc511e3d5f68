# Two commands do everything on a fresh machine: `make analyze TARGET=llama` and `make test`.
# Each sets up .venv with the pinned versions of constraints.txt first; afterwards neither needs the network.
PYTHON ?= python3
TARGET ?= llama
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: analyze test lint setup schemas golden sweep clean

analyze: $(STAMP)
	$(BIN)/opscope analyze $(TARGET)

test: $(STAMP)
	$(BIN)/pytest -n 2 --dist worksteal

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache
