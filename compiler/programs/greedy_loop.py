"""The program of several greedy steps in one launch, beside the one of single passes.

A stop token does not end the launch; the host cuts what follows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Network, Rows
from gemmule.compiler.kernels.attention.shared import CACHE, NEW
from gemmule.compiler.kernels.head.logits import ANSWERS
from gemmule.compiler.kernels.virtual import LengthReg
from gemmule.compiler.program import Program, ReadDram, Registers, Step
from gemmule.compiler.programs.model_program import ModelProgram

__all__ = ["GreedyLoop"]


@dataclass(frozen=True, kw_only=True)
class GreedyLoop(Program):
    """Passes over one row each, every one of which goes on with the token of the last.

    It stands behind a program of single passes, from which it has weights and cache.
    """

    single: ModelProgram
    registers_of: Mapping[str, int]
    """Base register by region."""
    moved: Mapping[str, int]
    """Bytes of a row by region of which each position has one: angles, learned positions."""

    @property
    def max_positions(self) -> int:
        return self.single.max_positions

    def registers(self, position: int, steps: int) -> Registers:
        """Registers of a launch of ``steps`` steps behind ``position`` cached rows.

        Raises:
            CompileError: no step, or more than positions.
        """
        if steps < 1 or position < 0 or position + steps > self.max_positions:
            raise CompileError(f"position + steps must be from 1 to {self.max_positions}, not {position} + {steps}: "
                               "shorten the context")
        moved = {NEW: position * self.single.layout.row}
        moved |= {region: position * size for region, size in self.moved.items()}
        windows = {}
        for region, by in moved.items():
            address, size = self.symbols[CACHE if region == NEW else region]
            windows[self.registers_of[region]] = (address + by, size - by)
        return self.place(windows=windows, lengths={
            LengthReg.ROWS: 1, LengthReg.CONTEXT: position, LengthReg.TOTAL: position + 1, LengthReg.ROW: position,
            LengthReg.WANTED: 1, LengthReg.STEPS: steps})

    def step(self, token: int, position: int, steps: int) -> Step:
        """A launch of ``steps`` steps that begins with ``token`` at ``position``.

        Raises:
            CompileError: as of :meth:`registers`; an unknown token.
        """
        registers = self.registers(position, steps)
        return Step(registers, tuple(self.single.inputs(Rows.chain([token], position))))

    def read_tokens(self, read_dram: ReadDram, steps: int) -> list[int]:
        """The greedy token of each step."""
        return self.read_ids(read_dram, ANSWERS, 0, steps)

    def fill(self, network: Network) -> np.ndarray:
        """DRAM content (uint8, from ``base_address`` on) of a network with this graph, for both programs."""
        dram = np.zeros(self.size, dtype=np.uint8)
        dram[:self.single.size] = self.single.fill(network)
        self.put(dram, "program", np.frombuffer(self.image, dtype=np.uint8))
        return dram

    def extremes(self) -> list[Registers]:
        """Registers of launches at the ends of what they may hold."""
        few = min(4, self.max_positions)
        return [self.registers(position, steps) for position, steps in (
            (0, 1), (0, few), (self.max_positions - 1, 1), (self.max_positions - few, few))]
