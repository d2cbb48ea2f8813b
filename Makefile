# Every target makes its own .venv; nothing is needed beforehand but Python (3.10 or newer) and pip.
PYTHON ?= python3
RUN := .venv/bin/python

.PHONY: demo test test-all check benchmark clean
.DEFAULT_GOAL := demo

demo: .venv/ready
	$(RUN) -m labeltrace demo

test: .venv/ready
	$(RUN) -m pytest -n auto --dist loadfile -m "not slow"

test-all: .venv/ready
	$(RUN) -m pytest -n auto --dist loadfile

check: .venv/ready
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

benchmark: .venv/ready
	$(RUN) benchmarks/digits.py

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(RUN) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch .venv/ready

clean:
	rm -rf .venv runs build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
