# Gemmule: `make demo` and `make test` set up everything they need. Only set-up uses the network.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
BUILD  ?= build
SEED   ?= 1
FUZZ   ?= tiny edge base $(wildcard examples/configs/*.yaml)
SHAPE  ?= 512x768x3072
SYNTH  ?=

.PHONY: help setup demo test lint types rtl perf perf-scalesim figures pages fuzz synth route fourstate train clean

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
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile

lint: setup  ## style, and lint of the generated Verilog
	$(BIN)/ruff check gemmule hw sim compiler sw tests benchmarks examples
	for config in tiny edge base; do $(BIN)/gemmule verilog --config $$config --lint --out $(BUILD)/verilog || exit 1; done

types: setup  ## static types
	$(BIN)/mypy -p gemmule

rtl: setup  ## Verilog of all presets and the tests that simulate it
	$(BIN)/gemmule verilog --config base --out $(BUILD)/verilog
	$(BIN)/python -m pytest -m rtl

fuzz: setup  ## differential fuzzing of RTL against model (SEED=n)
	for config in $(FUZZ); do \
	  $(BIN)/gemmule fuzz --config $$config --programs 500 --seed $(SEED) \
	    --json docs/results/fuzz_$$(basename $$config .yaml).json || exit 1; done

perf: setup  ## speed tables into docs/results
	$(BIN)/python benchmarks/speed.py --shape $(SHAPE) --out docs/results
	$(BIN)/python benchmarks/matrix.py --out docs/results
	$(BIN)/python benchmarks/gemm.py --out docs/results
	$(BIN)/python benchmarks/encoder.py --out docs/results

synth: setup  ## area of every unit on an FPGA into docs/results (an hour or more)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[synth]'
	$(BIN)/gemmule synth --config tiny --unit all --json docs/results/synth_tiny.json
	$(BIN)/gemmule synth --config base --unit all --json docs/results/synth_base.json
	$(BIN)/gemmule synth --config edge --unit all --json docs/results/synth_edge.json

route: setup  ## place and route edge: Fmax into docs/results (half an hour with SYNTH=--native)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[synth]'
	$(BIN)/gemmule synth --config edge --route $(SYNTH) --json docs/results/synth_edge_routed.json

fourstate: setup  ## the generated Verilog under Icarus: nothing is unknown after reset
	@command -v iverilog >/dev/null || \
	  { echo "fourstate: iverilog is missing; install it (Debian: apt-get install iverilog)"; exit 2; }
	$(BIN)/python -m pytest -s tests/rtl/fourstate.py

figures: setup  ## the plot of docs/numerics.md and the error table
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[figures]'
	$(BIN)/python benchmarks/numerics.py --out docs/results --plot docs/img/numerics.svg

pages: setup  ## the generated pages and figures of docs/
	$(BIN)/python -m gemmule.sw.pages

perf-scalesim:  ## SCALE-Sim 3 on the same product, in an environment of its own (half an hour, 11 GB)
	$(PYTHON) -m venv $(BUILD)/scalesim
	$(BUILD)/scalesim/bin/python -m pip install --quiet --disable-pip-version-check 'scalesim==3.0.0' 'numpy<2.3'
	$(BUILD)/scalesim/bin/python benchmarks/scalesim_product.py --shape $(SHAPE) --out docs/results/scalesim.json

train: setup  ## train and quantise the bundled models (CPU, about an hour)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[train]'
	$(BIN)/python -m gemmule.sw.training.train --out $(BUILD)/train
	$(BIN)/python -m gemmule.sw.training.bundle --train $(BUILD)/train --out sw/models

clean:  ## remove everything that is generated here (not the cache: gemmule cache clear)
	rm -rf $(BUILD) .pytest_cache .mypy_cache .ruff_cache
