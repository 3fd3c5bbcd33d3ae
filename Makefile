# Gemmule: `make demo` and `make test` set up everything they need. Only set-up uses the network.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
BUILD  ?= build
SEED   ?= 1

.PHONY: help setup demo test lint types rtl perf fuzz train clean

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort

setup: $(STAMP)  ## create the virtual environment with everything installed

$(STAMP): pyproject.toml
	@for tool in g++ perl make; do command -v $$tool >/dev/null || \
	  { echo "setup: $$tool is missing; install it (Debian: apt-get install g++ perl make python3-venv)"; exit 2; }; done
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $(STAMP)

demo: setup  ## generate text by speculative decoding on the simulated accelerator, with the report
	$(BIN)/gemmule generate --method draft --max-new-tokens 96 --json $(BUILD)/demo.json

test: setup  ## the test suite
	$(BIN)/python -m pytest

lint: setup  ## style, and lint of the generated Verilog
	$(BIN)/ruff check gemmule hw sim compiler sw tests benchmarks examples
	for config in tiny edge base; do $(BIN)/gemmule verilog --config $$config --lint --out $(BUILD)/verilog || exit 1; done

types: setup  ## static types
	$(BIN)/mypy -p gemmule

rtl: setup  ## Verilog of all presets and the tests that simulate it
	$(BIN)/gemmule verilog --config base --out $(BUILD)/verilog
	$(BIN)/python -m pytest -m rtl

fuzz: setup  ## differential fuzzing of RTL against model (SEED=n)
	for config in tiny edge base; do \
	  $(BIN)/gemmule fuzz --config $$config --programs 200 --seed $(SEED) --json $(BUILD)/fuzz_$$config.json || exit 1; done

perf: setup  ## speed tables into docs/results
	$(BIN)/python benchmarks/speed.py --out docs/results

train: setup  ## train and quantise the bundled models (CPU, about an hour)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[train]'
	$(BIN)/python -m gemmule.sw.training.train --out $(BUILD)/train
	$(BIN)/python -m gemmule.sw.training.bundle --train $(BUILD)/train --out sw/models

clean:  ## remove everything that is generated
	rm -rf $(BUILD) .pytest_cache .mypy_cache .ruff_cache
