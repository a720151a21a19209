# make demo: train, evaluate and use a Vision Transformer in a few minutes.   make test: all tests.
# Both set up .venv themselves; the second time they start at once.
PYTHON ?= python3
BIN := .venv/bin
RUN := saved_models/demo

.PHONY: demo test lint clean

demo: .venv/installed
	$(BIN)/keras-vit train --data digits --output $(RUN) --overwrite
	$(BIN)/keras-vit evaluate $(RUN)
	$(BIN)/keras-vit predict $(RUN) examples/digits --top 3
	@echo "Now your own photos, one folder for each class:"
	@echo "  $(BIN)/keras-vit train --data folder:PATH --output saved_models/mine"
	@echo "  $(BIN)/keras-vit evaluate saved_models/mine"
	@echo "  $(BIN)/keras-vit predict saved_models/mine PHOTO..."

test: .venv/installed-dev
	$(BIN)/python -m pytest -n auto

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

clean:
	rm -rf .venv build *.egg-info

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: make $(MAKECMDGOALS) PYTHON=python3.11" >&2; exit 2; }
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python requirements.txt pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

.venv/installed-dev: .venv/installed requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $@
