# make install   .venv with the onehop command in it, ready to translate, explore and serve
# make demo      translates three sentences, shows where the model looked, writes the explorer's page
# make test      everything that CI runs, from a fresh machine
# make test-fast the working loop: the same without the slow tests
# make test-long the longer proofs: both engines on a thousand real sentences, whole trainings, many random examples
# make test-gpu  the tests that run on a GPU; where there is none it says what they need
# make docs      the site of docs/, into site/
# make wheel     dist/onehop-….whl, the same bytes from the same commit
# make chaos     a tenth of the attacks on files, server and runs, one line each; FULL=1 all of them
# make lock      container.lock, from pyproject.toml and constraints.txt
# make dist      wheels and source archives of onehop and the model packages, checked, into dist/
# make coverage  all tests, and which lines they reach; half as long again
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: dist test-gpu test-long install demo test test-fast all-tests coverage check check-js check-python docs wheel lock chaos \
	format clean browser

install: $(VENV)/.runtime

# torch comes first and by its exact version: so a CPU build that lies on the machine is taken, not gigabytes of CUDA.
$(VENV)/.runtime: pyproject.toml constraints.txt $(wildcard packages/*/pyproject.toml)
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch==2.13.0
	$(PIP) --config-settings editable_mode=compat -e ".[torch,serve,evaluate]"
	$(PIP) --config-settings editable_mode=compat --no-deps $(patsubst %,-e %,$(wildcard packages/*))
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	$(PIP) --config-settings editable_mode=compat -e ".[dev]"
	@touch $@

demo: install
	$(BIN)/onehop demo -o runs/demo.html
	@echo 'Next: source $(BIN)/activate, then onehop translate "Your own sentence."'

check: check-js check-python

check-python: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# The pages' JavaScript. Its tools need node and npm's registry; where they are missing the check is left out, except in CI.
SCRIPTS := "onehop/**/*.js" globals.d.ts package.json jsconfig.json
check-js:
	@if command -v npm >/dev/null && $(MAKE) --silent node_modules/.package-lock.json; then \
	node_modules/.bin/prettier --check --log-level warn $(SCRIPTS) && node_modules/.bin/tsc -p jsconfig.json; \
	elif [ -n "$$CI" ]; then echo "The pages' JavaScript cannot be checked: install node and npm."; exit 1; \
	else echo "SKIPPED: the pages' JavaScript is not checked. Install node and npm to check it."; fi

node_modules/.package-lock.json: package.json package-lock.json
	npm ci --no-audit --no-fund --loglevel=error
	@touch $@

# The explorer's page is tested in Debian's chromium; without it those tests are skipped, and in CI they fail.
browser:
	@command -v chromium >/dev/null || (apt-get update -qq && apt-get install -y -qq chromium) >/dev/null 2>&1 || echo "chromium is missing and cannot be installed here"

# Tests start the command some hundred times; it would be compiled anew each time where Python may not keep what it compiled.
test all-tests test-fast test-long coverage: export PYTHONDONTWRITEBYTECODE =

# mypy keeps one core busy for most of a minute, so the checks of Python run beside the tests.
test: check-js browser $(VENV)/.dev
	@$(MAKE) --no-print-directory --jobs 2 all-tests check-python

# A file stays with one worker, so that what its tests share is made once. tests/conftest.py orders the files and says
# how many workers there are.
all-tests: $(VENV)/.dev
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder

# The longer proofs of what `make test` proves in short; the thousand sentences alone take half an hour.
test-long: $(VENV)/.dev
	ONEHOP_LONG_TESTS=1 $(BIN)/pytest -s -m long

test-gpu: $(VENV)/.dev
	$(BIN)/pytest -m gpu

coverage: $(VENV)/.dev
	$(BIN)/pytest --cov --cov-report=term

test-fast: check
	$(BIN)/pytest -m "not slow" -q

# Strictly: a page without a place in the menu or a link that leads nowhere is an error
# (with --quiet it would not be). No network is needed.
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Times in the wheel are that of the commit.
wheel: $(VENV)/.dev
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m build --wheel

# Needs uv: hashes of every platform's files are in the index alone.
lock:
	(echo "# Everything that the container installs, with hashes; of the versions in constraints.txt. \`make lock\` writes it."; \
	echo "setuptools>=77" | uv pip compile pyproject.toml - --extra serve -c constraints.txt --generate-hashes \
	--python-version 3.11 --no-annotate --no-header --quiet) > container.lock.new
	mv container.lock.new container.lock

# Each leaves its figures in results/chaos; all are run though one fails.
chaos: $(VENV)/.dev
	@status=0; for attack in files http_fuzz kills faults crowd; do \
	nice -n 10 $(BIN)/python benchmarks/chaos/$$attack.py || status=1; done; exit $$status

dist: $(VENV)/.dev
	$(PIP) twine
	rm -rf dist
	for folder in . packages/*; do $(BIN)/python -m build --outdir dist "$$folder" || exit 1; done
	$(BIN)/twine check --strict dist/*

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	@if [ -x node_modules/.bin/prettier ]; then node_modules/.bin/prettier --write --log-level warn $(SCRIPTS); fi

clean:
	rm -rf build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
