"""What a program costs: cycles of passes as decoding makes them, on the exact simulator, timing only."""

from __future__ import annotations

from gemmule.compiler.ir import Rows
from gemmule.compiler.model_program import ModelProgram
from gemmule.compiler.program import NO_DRAM
from gemmule.sim.simulator import Simulator

__all__ = ["cost"]


def cost(program: ModelProgram) -> int:
    """Cycles of a pass of one row behind a quarter and behind half of the context, and of a few rows; of each sequence.

    The program need not be verified: no data moves.
    """
    simulator, total = Simulator(program.config, dram_bytes=1), 0
    most, few = program.max_positions, min(4, program.max_rows)
    for count, context in ((1, most // 4), (1, most // 2), (few, most // 4)):
        context = min(context, most - count)
        rows = Rows.ragged([[0] * count] * program.batch, [context] * program.batch)
        step = program.step(rows, len(rows) if program.batch > 1 else count)
        simulator.load(program.launch("cost", NO_DRAM, step.registers))
        total += int(simulator.run(timing_only=True, indices=program.gathered(rows)).cycles)
    return total
