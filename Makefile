# Firehose: two commands. `make demo` and `make test` set everything up by themselves.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# The CPU build where a configured index has one; see "Choose your torch" in the README.
TORCH ?= $(shell grep '^torch==' constraints.txt)
DEMO := demo
BENCHMARKS := $(addprefix benchmarks/,prepare.py nature.py model.py game.py classic.py parallel.py scale.py serve.py)

.DEFAULT_GOAL := help
.PHONY: help demo live test lint format docs wheel bench faults clean

help:  ## show this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 16

demo: $(READY)  ## simulate a population, play the game on its stream, compare
	$(BIN)/firehose demo --out $(DEMO)

live: $(READY)  ## serve a small model on this machine, with simulated people who post
	$(BIN)/firehose serve --demo --state $(DEMO)/live

test: $(READY)  ## run the tests
	$(BIN)/python -m pytest -n 2

lint: $(READY)  ## ruff, formatting, the order of imports, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy

format: $(READY)  ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)  ## build the site from docs/, strictly, into site/
	@$(BIN)/python -c 'import mkdocstrings, material' 2>/dev/null || $(BIN)/python -m pip install --quiet '.[docs]'
	$(BIN)/mkdocs build --strict

wheel: $(READY)  ## build the wheel, install it in an environment of its own, and run the demo with it
	$(BIN)/python benchmarks/wheel.py

bench: $(READY)  ## what is fast, shown: each benchmark prints its ratios
	@for file in $(BENCHMARKS); do echo "== $$file"; $(BIN)/python $$file || exit 1; done

faults: $(READY)  ## broken on purpose: thousands of crashes, a hundred kills, mutated records
	$(BIN)/python benchmarks/crashes.py
	$(BIN)/python benchmarks/kills.py
	$(BIN)/python benchmarks/service_kills.py
	$(BIN)/python benchmarks/fuzz.py

clean:  ## remove the environment and what the demo made
	rm -rf $(VENV) $(DEMO) site dist

# A changed pyproject.toml or constraints.txt installs again; nothing else does.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Firehose needs Python 3.11 or newer; name one: make PYTHON=python3.12 demo" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@$(BIN)/python -c 'import torch' 2>/dev/null || $(BIN)/python -m pip install --quiet '$(TORCH)+cpu' 2>/dev/null \
	  || $(BIN)/python -m pip install --quiet '$(TORCH)'
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,ray,serve,tensorboard]'
	@touch $(READY)
