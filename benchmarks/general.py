"""GPT-2 by shape on `base`: what other answers, some of the layers and moved cache rows cost beside a plain pass.

    python -m benchmarks.general --out docs/results

Weights are not needed: only time is simulated.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpt2 import SIZES
from gemmule import __version__
from gemmule.compiler.compile import compile_network
from gemmule.compiler.ir import Rows
from gemmule.compiler.program import NO_DRAM, Program, Step
from gemmule.compiler.programs.general_program import Answers
from gemmule.config import load_config
from gemmule.io.files import write_atomically
from gemmule.isa import Unit
from gemmule.sim.simulator import Simulator
from tests.compiler.integer_networks import random_network

ROWS, CONTEXT, POSITIONS, LAYERS = 8, 512, 1024, 12
EXIT = 4
"""Layers of an early exit."""


def _answers(rows: int) -> dict[str, tuple[tuple[int, int], Answers]]:
    """Launches of the general program by what they are for: layers, and what is wanted."""
    whole, scale = (0, LAYERS), (65535, 16)
    return {
        "greedy tokens": (whole, Answers(rows=rows)),
        "keys and values only": (whole, Answers(rows=0)),
        "hidden rows": (whole, Answers(rows=0, hidden=0)),
        "logits": (whole, Answers(rows=rows, logits=True)),
        "16 largest logits": (whole, Answers(rows=rows, top=True)),
        "row maximum and exponent sum": (whole, Answers(rows=rows, scale=scale)),
        f"{EXIT} layers and the head": ((0, EXIT), Answers(rows=rows)),
        f"the other {LAYERS - EXIT} and the head": ((EXIT, LAYERS - EXIT), Answers(rows=rows)),
        "the head alone": ((LAYERS, 0), Answers(rows=rows)),
    }


def measure() -> dict[str, Any]:
    """Every launch, and the plain pass."""
    config, net = load_config("base"), random_network(SIZES, 1, weights=False)
    begin = time.perf_counter()
    program = compile_network(net, config, rows=ROWS, context=POSITIONS, tokens=True, general=True)
    seconds, device = time.perf_counter() - begin, Simulator(config, dram_bytes=1)
    assert program.general
    assert program.moves

    def cycles(launched: Program, step: Step, rows: Rows) -> int:
        found = {at: np.array(rows.positions if command.fields["list"] else rows.tokens)
                 for at, command in enumerate(launched.commands) if command.unit is Unit.LOAD and 5 in command.flags}
        device.load(launched.launch("pass", NO_DRAM, step.registers))
        return int(device.run(timing_only=True, indices=found).cycles)

    passes = []
    for count in (1, ROWS):
        rows = Rows.chain([5] * count, CONTEXT)
        passes.append({"rows": count, "what": "plain pass", "cycles": cycles(program, program.step(rows, count), rows)})
        for what, (layers, wanted) in _answers(count).items():
            step = program.general_step(rows, [CONTEXT], layers, wanted)
            passes.append({"rows": count, "what": what, "cycles": cycles(program.general, step, rows)})
    copy = program.moves.copy
    moves = [{"rows": count, "what": "copy", "cycles": cycles(copy, copy.step((0, 8), (0, 0), count), rows)}
             for count in (1, 64, CONTEXT)]
    return {"schema": "gemmule/benchmark-general/1", "version": __version__, "config": "base",
            "config_sha256": config.sha256, "context": CONTEXT, "compile_seconds": seconds,
            "commands": {"plain": len(program.commands), "general": len(program.general.commands)},
            "passes": passes, "moves": moves}


def main() -> None:
    """Print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    record = measure()
    for row in record["passes"] + record["moves"]:
        print(f"{row['rows']:3} {row['what']:30} {row['cycles']:12,}")
    write_atomically(parser.parse_args().out / "general.json", json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
