"""What a pass would take: exact cycles of the launch over some rows behind some cached ones, without running it.

For whoever decides how many rows a step has, of one text or of a batch: the program is the one that would take the
pass, so fewer rows cost less where a program of fewer rows is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gemmule.compiler.ir import Rows
from gemmule.compiler.program import NO_DRAM
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.search.narrow import chosen_program
from gemmule.sim.simulator import Simulator

__all__ = ["PassCosts"]


class Programs(Protocol):
    """A model, by its programs."""

    program: ModelProgram
    narrow: Sequence[ModelProgram]


@dataclass
class PassCosts:
    """Cycles by rows of each text and by the cached rows of every sequence, each timed once."""

    model: Programs
    known: dict[tuple[int, tuple[int, ...]], int] = field(default_factory=dict)

    def of(self, rows: int, cached: Sequence[int]) -> int:
        """Of a greedy pass over ``rows`` rows of each sequence, all answered; the host's launch is counted.

        Rows of a pool are taken to stand in order.

        Raises:
            CompileError: more rows than a launch takes, or than the context has room for.
        """
        lengths = tuple(cached)
        if (rows, lengths) not in self.known:
            program = chosen_program(self.model.narrow, rows, max(lengths)) or self.model.program
            given = Rows.ragged([[0] * rows] * program.batch, list(lengths))
            step, simulator = program.step(given, len(given), list(lengths)), Simulator(program.config, dram_bytes=1)
            simulator.load(program.launch("pass", NO_DRAM, step.registers))
            result = simulator.run(timing_only=True, indices=program.gathered_by(given, step))
            self.known[rows, lengths] = int(result.cycles) + program.config.host.launch_cycles
        return self.known[rows, lengths]
