# Every target sets up what it needs in .venv and no more; a second call starts at once.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-all bench test-lowest lint docs clean

demo: .venv/.has-demo,fast  ## run FCL on sample photos and draw its evidence into demo/
	$(BIN)/faircontext demo --out demo

test: .venv/.has-test  ## run the quick tests; FAIRCONTEXT_DATA adds those that need labelled images
	$(BIN)/python -m pytest -n auto --dist worksteal

# Modules with annotations of arrays, joined by commas.
ARRAYS = $(shell grep -rl --include='*.py' jaxtyping src/faircontext | sed 's|^src/||; s|/|.|g; s|\.py$$||' | paste -sd,)

test-all: .venv/.has-dev  ## run every test but those of time, with ten times the examples and shapes checked at run time
	$(BIN)/python -m pytest -n auto --dist worksteal -m 'not timing' --hypothesis-profile=all \
	  --jaxtyping-packages=$(ARRAYS),runtime_types.check --junitxml=.venv/tests.xml

bench: .venv/.has-test  ## run the tests of how long things take, one after the other, and print the table of engines
	$(BIN)/python -m pytest -m timing
	$(BIN)/python benchmarks/engines.py --json benchmarks/results.json

test-lowest:  ## run the tests against the lowest versions that are declared, in .venv-lowest
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/pip install --quiet --editable '.[checkpoints,client,corruptions,demo,serve]' -c tests/lowest.txt beartype hypothesis jsonschema pytest pytest-xdist scikit-learn torchcam torchmetrics
	.venv-lowest/bin/python -m pytest -o addopts= -o filterwarnings=default -m 'not timing'

lint: .venv/.has-lint  ## style, formatting, types, who imports whom, and files for GitHub
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/*.yml

docs: .venv/.has-docs  ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The extras that follow "has-", installed; those that other targets needed stay.
.venv/.has-%: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "faircontext needs Python 3.11 or newer; name one with: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "setting up .venv for: $* (once; downloads PyTorch, which takes minutes) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

clean:  ## remove everything that the other targets made
	rm -rf .venv .venv-lowest demo site .mypy_cache .pytest_cache .ruff_cache
