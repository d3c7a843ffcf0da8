# The verbs of this project. A fresh machine needs Python 3.11 or newer, a C++ compiler, make and git; the rest is
# installed into .venv. Another Python: make run PYTHON=python3.12
PYTHON ?= python3
BIN := .venv/bin
# Twice quiet: warnings about mirrors are hidden, errors are not.
PIP := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check

.PHONY: run test long check format gpu

# Optimizes a kernel on this machine, with the recorded model where there is no key.
run: .venv/installed
	$(BIN)/kernelwright run causal_conv

test: .venv/installed-dev
	$(BIN)/python -m pytest

# What takes minutes each: the admission of all tasks, and 200 draws of every honest way to compute them.
long: .venv/installed-dev
	$(BIN)/python -m pytest -m 'long and not gpu'

check: .venv/installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/installed-dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# The tests that need a GPU, with the Python at hand: GPU machines come with their own PyTorch.
gpu:
	$(PYTHON) -m pytest -m gpu

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is older than 3.11 or missing; name another: make run PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv .venv || \
	  { rm -rf .venv; echo "making .venv failed; on Debian: apt-get install python3-venv" >&2; exit 1; }

.venv/installed: pyproject.toml | .venv/bin/python
	@echo "installing into .venv; PyTorch is large, so the first time takes minutes"
	@$(PIP) -e .
	@touch $@

.venv/installed-dev: pyproject.toml | .venv/bin/python
	@echo "installing into .venv; PyTorch is large, so the first time takes minutes"
	@$(PIP) -e '.[dev]'
	@touch .venv/installed $@
