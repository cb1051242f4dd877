# Two commands do everything on a machine with Python 3.11, pip and make:
#   make demo    the paper's comparison on the embedded model and benchmark
#   make test    lint, types and all tests
# and two more are for people who change something:
#   make docs    the documentation's site, into build/site
#   make pocket  the embedded model, trained from nothing
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
DEMO   ?= quick

.PHONY: demo test lint docs pocket clean

# Installed anew only when a dependency list changes; the package itself is editable.
$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[openmoji,parquet,serve]"
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group dev --group docs --group oracle --editable ".[ray]"
	@# axe-core checks the page's accessibility; its test skips without it
	-npm install --silent --no-save --no-audit --prefix $(VENV)/axe axe-core@4.14.0
	@touch $@

demo: $(VENV)/installed
	$(BIN)/dtpt demo --output demo-output $(if $(filter full,$(DEMO)),--full)

lint: $(VENV)/installed-dev
	$(BIN)/ruff format --check src tests training docs benchmarks
	$(BIN)/ruff check src tests training docs benchmarks
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal

# Without a network, warnings as errors; open build/site/index.html.
docs: $(VENV)/installed-dev
	$(BIN)/python docs/pages.py build/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# Train the embedded model from nothing (about an hour on one core; fetches artwork from npm).
pocket: $(VENV)/installed-dev
	$(BIN)/python -m training.train
	$(BIN)/python -m training.export --record docs/pocket-training.json
	$(BIN)/python -m training.evaluate

clean:
	rm -rf $(VENV) demo-output
