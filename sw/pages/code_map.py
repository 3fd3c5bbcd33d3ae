"""The page that says where everything is: every folder and file, in dataflow order, by the first line of its text."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from gemmule.sw.reports.markdown import wrapped

__all__ = ["FOLDERS", "Folder", "code_map_page", "files_of", "first_line"]

ROOT = Path(__file__).resolve().parents[2]
SENTENCE = re.compile(r"(?<=[^A-Z])[.] (?=[A-Z`])")
"""Where one ends and the next begins; not behind "et al." and a year."""
C_FILES = (".h", ".hpp", ".c", ".cpp", ".S", ".ld")
LICENCE = "SPDX-License-Identifier"
SUFFIXES = (".py", ".sv", *C_FILES, ".vlt", ".yaml", ".safetensors", ".json", ".html")


@dataclass(frozen=True)
class Folder:
    """A folder of the page: its files in the order in which data pass them, the others behind, by name."""

    path: str
    order: tuple[str, ...] = ()
    says: str = ""
    """Where the folder has no ``__init__.py`` that says it."""


FOLDERS: dict[str, tuple[Folder, ...]] = {
    "Contracts: what all rooms share": (
        Folder("gemmule", ("config", "operations", "isa", "clauses", "csr", "terms", "operands", "resolve", "control",
                           "timing")),
        Folder("gemmule/presets", ("tiny", "edge", "base"), "Presets of the configuration, as YAML."),
        Folder("gemmule/numerics", ("fixed", "vector", "softmax", "exponential", "online", "norm", "rope", "table",
                                    "select", "ibert")),
        Folder("gemmule/io", ("files", "reading", "yaml_file", "fields", "cache", "locks", "progress")),
    ),
    "Hardware": (
        Folder("hw", ("interfaces", "queue")),
        Folder("hw/command", ("fetch", "window", "loops", "fields", "execute", "local", "lookup", "extents", "meaning",
                              "legal", "spans", "hulls", "entries", "banks", "resolve", "dispatch", "issue", "claims")),
        Folder("hw/move", ("load", "bursts", "align", "load_write", "row_walker", "store_read", "store")),
        Folder("hw/matrix", ("matrix", "preload", "unpack", "stream", "edge", "skew", "mesh", "pe", "drain")),
        Folder("hw/vector", ("vector", "sequencer", "ops", "datapath", "lane", "round", "exp", "gelu", "word", "mask",
                             "stats", "sums", "divide", "serial", "contexts")),
        Folder("hw/select", ("select", "sequencer", "argmax", "radix", "route", "importance", "lists",
                             "group_memory")),
        Folder("hw/memory", ("scratchpad", "accumulator")),
        Folder("hw/device", ("top", "csr", "control", "core", "units", "read_arbiter", "counters", "watchdog")),
        Folder("hw/flow", ("verilog", "combinational", "names", "export", "verilator", "lint", "rtlil", "synth",
                           "mapping", "floorplan", "route", "paths", "target", "mutate", "cells", "live", "equal",
                           "loose", "tools")),
        Folder("hw/formal", ("targets", "target", "bench", "prove", "solve", "planted", "faults", "csr", "control",
                             "fetch", "loops", "dispatch", "queue", "issue", "claims", "bursts", "load", "store",
                             "read_arbiter")),
        Folder("hw/flow/standard", ("library", "macros", "mapped", "rows", "slack", "cells", "layout", "spice",
                                    "measure", "characterize")),
        Folder("hw/flow/placing", ("refine", "placement", "arrivals", "moves")),
        Folder("hw/tb"),
    ),
    "The exact model": (
        Folder("sim", ("launch", "simulator", "stream", "result", "compiled", "roofline", "errors")),
        Folder("sim/timing", ("program", "engine", "front", "queues", "issue", "units", "move", "dram")),
        Folder("sim/energy", ("count", "table")),
        Folder("sim/functional", ("execute", "memory", "matrix", "vector", "select")),
        Folder("sim/verify", ("verify", "order", "state", "blocks", "alone", "races", "access")),
        Folder("sim/rtl", ("verilog", "build", "verilate", "runtime", "testbench", "device", "process", "server",
                           "cosim", "waveform", "fst")),
        Folder("sim/rtl/activity", ("parse", "order", "emit", "rewrite")),
        Folder("sim/fuzz", ("run", "generate", "builder", "frame", "corners", "brink", "draw", "write", "commands",
                            "vector", "select", "control", "modes", "faults", "broken", "reveal", "forms", "coverage",
                            "wipe")),
        Folder("sim/mutants", ("recorded", "setup", "registers", "bus", "addresses", "watchdog", "corners", "fields",
                                "functions", "singles", "counts", "crossings", "directed", "campaign")),
    ),
    "Compiler": (
        Folder("compiler", ("compile", "kept", "ideal", "program", "listing", "layout", "place", "sources", "errors")),
        Folder("compiler/importers", ("load", "family", "config", "shards", "weights", "build", "rope")),
        Folder("compiler/importers/families", ("gpt2", "opt", "llama")),
        Folder("compiler/importers/gguf", ("checkpoint", "file", "keys", "names")),
        Folder("compiler/ir", ("nodes", "signature", "graph", "rows", "cache", "functions", "float_interpreter",
                               "integer_interpreter", "part")),
        Folder("compiler/quantize", ("taps", "prefix", "rotate", "smooth", "steps", "weights", "scale", "network",
                                     "accuracy", "likeness", "verdict")),
        Folder("compiler/files", ("model_file", "model_check", "tensors", "chat")),
        Folder("compiler/kernels", ("virtual", "layout", "constants", "contents", "linear", "epilogue", "embed", "norm",
                                    "head_norm", "mlp", "row_blocks", "widen", "spill", "commit", "moves", "product")),
        Folder("compiler/kernels/attention", ("shared", "kv_layout", "batch", "cache_list", "softmax", "whole", "block",
                                              "online", "standard", "sequence", "sequence_online")),
        Folder("compiler/kernels/attention/chosen", ("pages_mapping", "pages", "chunks")),
        Folder("compiler/kernels/attention/heads", ("sums", "gates", "leaving", "products")),
        Folder("compiler/kernels/attention/halves", ("sorting", "packing", "packed", "progressive")),
        Folder("compiler/kernels/attention/importance", ("heavy", "cascade")),
        Folder("compiler/kernels/attention/texts"),
        Folder("compiler/kernels/head", ("ids", "logits", "answers", "top", "exponents", "launch_words", "greedy")),
        Folder("compiler/passes", ("pipeline", "entry", "checks", "fuse", "map", "lower", "join", "hoist", "roll",
                                   "schedule", "allocate", "fit", "emit", "footprints", "waits", "turns", "notes")),
        Folder("compiler/passes/encoder", ("fuse", "map", "lower")),
        Folder("compiler/programs", ("linker", "pass_entry", "model_program", "general", "general_program", "commit",
                                     "moves", "selecting", "beside", "prefill", "greedy_loop", "step_program",
                                     "link", "encoder", "encoder_program", "product")),
        Folder("compiler/programs/chosen"),
        Folder("compiler/programs/halves", ("packing", "packed_program")),
        Folder("compiler/programs/texts"),
        Folder("compiler/mapping", ("mapper", "exhaustive", "branch_and_bound", "feedback", "constraint", "found")),
        Folder("compiler/mapping/product", ("space", "bound", "model", "formula")),
        Folder("compiler/search", ("cost", "decoder", "prefill", "narrow", "greedy", "layer", "product")),
    ),
    "Software": (
        Folder("sw", ("cli", "step", "limits", "errors")),
        Folder("sw/commands", ("generate", "bench", "serve", "tree", "report", "import_", "compile_", "run", "prune",
                               "sweep", "study", "info", "disasm", "datastore", "cache")),
        Folder("sw/commands/rtl", ("cosim", "fuzz", "mutate", "formal", "verilog", "header", "driver", "synth",
                                   "standard_cells")),
        Folder("sw/commands/runs", ("model", "arch")),
        Folder("sw/commands/shared", ("group", "common", "texts", "method_options", "sampling", "decode", "search",
                                      "earlier")),
        Folder("sw/driver", ("header", "decoder", "decoder_image", "export", "bench", "soc_run")),
        Folder("sw/driver/c", ("gemmule_driver", "gemmule_decoder", "gemmule_dram", "gemmule_bench"),
               "The bare-metal driver in C99, and its testbench in C++."),
        Folder("sw/driver/soc", ("soc", "start", "soc_main", "soc_bench"),
               "A system with a RISC-V core: hardware, firmware, testbench."),
        Folder("sw/text", ("tokens", "byte_level", "chat", "detokenize", "stream", "corpus")),
        Folder("sw/kv", ("text", "contiguous", "paged", "pruning", "selected", "chosen_pages", "parts")),
        Folder("sw/device", ("backends", "runtime", "ahead", "forward", "pieces", "answers", "slots", "interpreted",
                             "choosing", "chosen", "ledger", "timeline")),
        Folder("sw/device/costs", ("planned", "cost_curve")),
        Folder("sw/device/some_layers", ("depths", "layerwise")),
        Folder("sw/datastore", ("texts", "suffix_array", "datastore", "kept")),
        Folder("sw/models", ("pair", "bundled", "bundled_models", "published", "quantised", "sources", "importing",
                             "import_texts")),
        Folder("sw/models/drafting", ("int4_copy", "skipping", "draft_vocabulary", "tuned")),
        Folder("sw/models/trained", ("read", "nodes", "parallel", "eagle", "heads", "hydra", "calibrate", "drafter")),
        Folder("sw/models/default", (), "The pair worth decoding, and what `gemmule generate` takes."),
        Folder("sw/models/small", (), "The small pair: for RTL runs and quick tests."),
        Folder("sw/models/smollm2", (), "Drafters trained for SmolLM2, in int8."),
        Folder("sw/decoding", ("session", "generate", "asking", "tree", "paced", "trained", "heads", "verify",
                               "sampling", "noise", "lengths", "context", "stops", "script", "generation", "resident")),
        Folder("sw/decoding/candidates", ("branches", "levels", "chains", "suffixes", "stored", "merging", "bandit")),
        Folder("sw/decoding/adaptive", ("adaptive", "acceptance", "shapes", "worth")),
        Folder("sw/decoding/exits", ("leaving", "skipping", "confidence", "reference")),
        Folder("sw/decoding/methods", ("method", "ar", "draft", "pld", "jacobi", "layerskip")),
        Folder("sw/decoding/search", ("session", "run", "beams", "scores")),
        Folder("sw/prompts", ("functions", "choose", "categories", "copies", "requests", "held_out")),
        Folder("sw/workloads", ("passes", "architectures", "programs", "pruned", "pruned_cycles", "schedules",
                                "capacity", "estimate")),
        Folder("sw/records", ("record", "decoding", "workloads", "tools")),
        Folder("sw/benches", ("bench", "batch", "rows", "theory", "finished")),
        Folder("sw/serving", ("arrivals", "serve", "outcome", "summary", "plan", "prompts")),
        Folder("sw/reports", ("terminal", "page", "generation", "methods", "trace", "figures", "files", "markdown")),
        Folder("sw/reports/templates", ("page", "figures", "generation", "methods", "resident"),
               "What pages look like: Jinja, with every value escaped."),
        Folder("sw/sweeps", ("sweep_file", "sweep", "engines")),
        Folder("sw/studies", ("survey", "attention", "softmax", "activation", "fusion", "overlap")),
        Folder("sw/pages", ("__main__", "system", "mesh", "memory_map", "isa", "configuration", "registers",
                            "command_line", "schemas", "code_map", "svg", "ports")),
        Folder("sw/training", ("train", "recipe", "running", "measure", "report", "quality", "yardstick")),
        Folder("sw/training/data", ("packages", "tokenizer", "prepare", "batches", "requests", "alignment", "folds")),
        Folder("sw/training/networks", ("model", "export", "trained", "optimizers", "guidance", "heads", "drafting",
                                        "bert")),
        Folder("sw/training/stages", ("target", "copying_recipe", "copying", "answers", "lessons", "draft", "choice",
                                      "encoder", "small", "bundle")),
        Folder("sw/training/heads", ("recipe", "anchors", "learning", "judging", "bundled", "answers", "published")),
        Folder("sw/training/drafters", ("packed", "prompts", "pack", "recipe", "target", "writing", "networks",
                                        "training", "ranks", "judging", "run", "collect", "page", "tiny")),
    ),
    "Around it": (
        Folder("benchmarks", (), "Measurements, each file a command; results in `docs/results`."),
        Folder("benchmarks/energy", ("programs", "liberty", "netlist", "gates", "bus", "measure", "fit", "registers")),
        Folder("benchmarks/smollm2", (), "SmolLM2 measured, one file for each part."),
        Folder("examples", ("tutorial",), "The tutorials as a file that runs them."),
        Folder("examples/configs", (), "Configurations in addition to the presets, fuzzed like them."),
        Folder("examples/configs/unusual", (), "Unusual ones, fuzzed occasionally: `make fuzz FUZZ=`."),
        Folder("examples/sweeps", (), "Grids for `gemmule sweep`."),
        Folder("examples/pruning", (), "Schedules of pruned caches, for `--prune`."),
        Folder("examples/serving", (), "Traces of requests, for `gemmule serve --arrivals`."),
        Folder("examples/configs/large", (), "For large models and long contexts, timed and not fuzzed."),
        Folder("tests", (), "Mirrors the folders above, bench helpers included. The folders contain:"),
    ),
}
"""Every folder, in the order in which data pass them. A file that is not named comes behind the named ones."""

TESTS = {
    "tests/numerics": "integer functions against float and published vectors",
    "tests/hw": "each unit against its integer function or its contract, hand-written cycles",
    "tests/cocotb": "each unit as exported Verilog, one bench each",
    "tests/rtl": "building the simulator, the testbench, Icarus, the four-state run",
    "tests/sim": "timing engine, functional model, verifier, fuzzer",
    "tests/equivalence": "RTL against model; mutants; properties on the RTL",
    "tests/compiler": "importers against transformers; programs against the integer interpreter; golden listings",
    "tests/sw": "commands, decoding, training",
}

WHERE = (
    ("fields of a command", "[gemmule/isa.py](../gemmule/isa.py); as a page: [isa.md](isa.md)"),
    ("operations, their flags, which flags go together", "[gemmule/operations.py](../gemmule/operations.py)"),
    ("what a command's integers compute", "[gemmule/numerics](../gemmule/numerics); as a page: "
     "[numerics.md](numerics.md)"),
    ("how long a command takes", "[gemmule/timing.py](../gemmule/timing.py); as a page: [timing.md](timing.md)"),
    ("which rows a command touches", "[gemmule/operands.py](../gemmule/operands.py); as a page: "
     "[isa.md](isa.md), section Operands"),
    ("why a command faults", "[gemmule/resolve.py](../gemmule/resolve.py), [limits.md](limits.md)"),
    ("registers and their offsets", "[gemmule/csr.py](../gemmule/csr.py); as a page: [registers.md](registers.md)"),
    ("configuration fields and presets", "[gemmule/config.py](../gemmule/config.py); as a page: "
     "[configuration.md](configuration.md)"),
    ("the ports between two blocks", "[hw/interfaces.py](../hw/interfaces.py), "
     "[hw/device/units.py](../hw/device/units.py)"),
    ("who may hold which memory port", "[hw/command/claims.py](../hw/command/claims.py)"),
    ("the top's ports and names", "[hw/device/top.py](../hw/device/top.py)"),
    ("the Verilog of one unit", "`gemmule verilog`; [hw/flow/verilog.py](../hw/flow/verilog.py)"),
    ("which cycle a command issues in, in the model", "[sim/timing/engine.py](../sim/timing/engine.py)"),
    ("what a command does to data, in the model", "[sim/functional/execute.py](../sim/functional/execute.py)"),
    ("why a program is refused before it runs", "[sim/verify/verify.py](../sim/verify/verify.py)"),
    ("the first differing cycle of RTL and model", "`gemmule cosim`; [sim/rtl/cosim.py](../sim/rtl/cosim.py)"),
    ("what the fuzzer can draw", "[sim/fuzz](../sim/fuzz)"),
    ("where a compiled program keeps its rows", "[compiler/passes/allocate.py](../compiler/passes/allocate.py), "
     "[the memory map](img/memory.svg)"),
    ("the accept rule of speculative decoding", "[sw/decoding/verify.py](../sw/decoding/verify.py)"),
    ("the loop of every decoding method", "[sw/decoding/generate.py](../sw/decoding/generate.py)"),
    ("commands, options, their limits", "[sw/commands](../sw/commands), [sw/limits.py](../sw/limits.py); as a page: "
     "[command-line.md](command-line.md)"),
    ("what `--json` writes", "[sw/records](../sw/records); [schemas](schemas)"),
    ("how pages and figures are made", "[sw/pages](../sw/pages): `make pages`"),
)

INTRO = """\
# Code map

Generated by `python -m gemmule.sw.pages` from the first line of every file; do not edit.

Folders are listed in dataflow order, and so are the files of a folder. [architecture.md](architecture.md)
draws and explains the blocks, [glossary.md](glossary.md) the terms. Top-level folders are imported as `gemmule.hw`
and so on.

## Where do I find ..

| what | where |
|---|---|
"""


def first_line(path: Path) -> str:
    """What a file says of itself: the first paragraph of its docstring or comment, one line."""
    if path.suffix not in (".py", ".sv", *C_FILES, ".vlt", ".yaml", ".html"):
        return ""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        said = ast.get_docstring(ast.parse(text)) or ""
        said = said.split("\n\n")[0]
    elif path.suffix == ".html":
        said = text.partition("{# ")[2].partition(" #}")[0]
    else:
        head: list[str] = []
        for line in text.splitlines():
            mark = next((mark for mark in ("//", "#", "/*", " *") if line.startswith(mark)), "")
            if mark and not head and (LICENCE in line or not line.strip("/#* ")):
                continue  # above what the file says of itself
            if not mark or not line.strip("/#* "):
                break
            head.append(line.strip("/#* "))
        said = " ".join(head)
    said = " ".join(said.split()).replace("``", "`").replace("|", "\\|")
    return SENTENCE.split(said)[0].rstrip(".:") if said else ""


def made_here(root: Path = ROOT) -> frozenset[Path]:
    """Files that commands make among the committed ones, such as trained heads: ``.gitignore`` names their paths."""
    return frozenset(root / line for line in (root / ".gitignore").read_text(encoding="utf-8").splitlines())


def files_of(folder: Folder, root: Path = ROOT) -> list[Path]:
    """A folder's own files, in the page's order; a clone has them all, so none that commands made (`made_here`)."""
    apart = made_here(root)
    found = [path for path in (root / folder.path).iterdir() if path.is_file() and path.suffix in SUFFIXES
             and path.name != "__init__.py" and path not in apart]
    rank = {name: i for i, name in enumerate(folder.order)}
    return sorted(found, key=lambda path: (rank.get(path.stem, len(rank)), path.name))


def code_map_page(root: Path = ROOT) -> str:
    """The page."""
    lines = [INTRO + "\n".join(f"| {what} | {where} |" for what, where in WHERE), ""]
    for title, folders in FOLDERS.items():
        lines += [f"## {title}", ""]
        for folder in folders:
            package = root / folder.path / "__init__.py"
            says = folder.says or first_line(package) + "."
            lines += [f"### [{folder.path}](../{folder.path})", "", says, ""]
            if folder.path == "tests":
                lines += ["| folder | holds |", "|---|---|"]
                lines += [f"| [{path}](../{path}) | {what} |" for path, what in TESTS.items()]
            else:
                lines += ["| file | what |", "|---|---|"]
                lines += [f"| [{path.name}](../{path.relative_to(root)}) | {first_line(path)} |"
                          for path in files_of(folder, root)]
            lines.append("")
    return wrapped("\n".join(lines).rstrip() + "\n")
