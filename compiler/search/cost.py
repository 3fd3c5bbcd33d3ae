"""What a program costs: cycles of passes as decoding makes them, on the exact simulator, timing only."""

from __future__ import annotations

from collections.abc import Sequence

from gemmule.compiler.ir import Rows
from gemmule.compiler.place import cut_evenly
from gemmule.compiler.program import NO_DRAM
from gemmule.compiler.programs.halves.packed_program import PackedProgram
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.sim.simulator import Simulator
from gemmule.timing import ceil_div

__all__ = ["cost", "passes_cost", "prompt_cost", "prompt_cycles"]

PROMPTS = (32, 100, 200, 400)
"""Rows of the prompts whose cycles tell what a program is worth for one, as many as the context takes."""


def cost(program: ModelProgram) -> int:
    """Cycles of a pass of one row behind a quarter and behind half of the context, and of a few rows; of each sequence.

    The program need not be verified: no data moves.
    """
    most, few = program.text_positions, min(4, program.max_rows)
    return passes_cost(program, [(count, min(context, most - count)) for count, context in (
        (1, most // 4), (1, most // 2), (few, most // 4))])


def passes_cost(program: ModelProgram, passes: Sequence[tuple[int, int]], pairs: int = 0) -> int:
    """Cycles of passes, each of so many rows, all answered, behind so many cached ones; of each sequence. The cached
    ones begin with ``pairs`` pairs of 4 bits.
    """
    simulator, total = Simulator(program.config, dram_bytes=1), 0
    for count, context in passes:
        rows = Rows.ragged([[0] * count] * program.batch, [context] * program.batch)
        step = program.step(rows, len(rows) if program.batch > 1 else count)
        registers = program.packed(step.registers, pairs) if isinstance(program, PackedProgram) else step.registers
        simulator.load(program.launch("cost", NO_DRAM, registers))
        total += int(simulator.run(timing_only=True, indices=program.gathered(rows)).cycles)
    return total


def prompt_cost(program: ModelProgram) -> int:
    """Cycles of prompts of several lengths, host included, each for as many rows as the longest has."""
    most = min(PROMPTS[-1], program.text_positions - 1)
    return sum(prompt_cycles(program, rows) * most // rows for rows in sorted({min(n, most) for n in PROMPTS}))


def prompt_cycles(program: ModelProgram, rows: int) -> int:
    """Cycles of passes over so many rows from an empty cache on, without answers, and of the host's launches.

    Of a batch one sequence has them, and the others a row that nobody sees.
    """
    config, total = program.config, 0
    simulator = Simulator(config, dram_bytes=1)
    for first, count in cut_evenly(rows, ceil_div(rows, program.max_rows)):
        others = program.batch - 1
        part = Rows.ragged([[0] * count, *[[0]] * others], [first, *[0] * others])
        simulator.load(program.launch("prompt", NO_DRAM, program.step(part, 0).registers))
        total += int(simulator.run(timing_only=True, indices=program.gathered(part)).cycles)
        total += config.host.launch_cycles
    return total
