"""A decoder's pass over a cache that may begin with rows of 4 bits."""

from __future__ import annotations

from dataclasses import dataclass

from gemmule.compiler.errors import CompileError
from gemmule.compiler.kernels.attention.packed import packed_words
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.kernels.virtual import LengthReg
from gemmule.compiler.program import Registers
from gemmule.compiler.programs.model_program import ModelProgram

__all__ = ["PackedProgram"]


@dataclass(frozen=True, kw_only=True)
class PackedProgram(ModelProgram):
    """:class:`ModelProgram` for a cache that begins with any number of packed rows, a constant prefix aside. Each has
    two positions; those of 8 bits stand behind them. Cached rows count as they stand in the cache.
    """

    def packed(self, registers: Registers, pairs: int) -> Registers:
        """Registers of a pass, where the first ``pairs`` of the cached rows are packed.

        Raises:
            CompileError: there are not so many rows, or more positions than the program takes.
        """
        cached = int(registers.lengths[LengthReg.CONTEXT])
        if not 0 <= pairs <= cached - self.graph.prefix:
            raise CompileError(f"rows of 4 bits must be from 0 to the {cached - self.graph.prefix} that are cached, not "
                               f"{pairs}")
        if cached + pairs >= self.max_positions:
            raise CompileError(f"cached positions must be fewer than {self.max_positions}, not {cached + pairs}: shorten "
                               "the context")
        made = Registers(*(numbers.copy() for numbers in registers))
        base, size = self.registers_of[CACHE], pairs * self.layout.row
        made.bases[base] += size
        made.limits[base] -= size
        made.lengths[LengthReg.CONTEXT] -= pairs
        made.first = (packed_words(self.config, pairs),)
        return made

    def extremes(self) -> list[Registers]:
        found = super().extremes()
        most = self.max_positions - self.graph.prefix - 1
        sizes = [(rows, pairs, more) for rows in {1, self.max_rows} for pairs in {1, 33, (most - self.max_rows) // 2}
                 for more in {0, 1, most - 2 * pairs - self.max_rows} if pairs > 0 and more >= 0]
        return found + [self.packed(self.registers(rows, self.graph.prefix + pairs + more), pairs)
                        for rows, pairs, more in sizes if 2 * pairs + more + rows <= most]
