"""A decoder's pass over a cache that may begin with rows of 4 bits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.kernels.attention.halves.packed import LOWER, PackedMapping, packed_words
from gemmule.compiler.kernels.attention.halves.packing import Halves, Packing
from gemmule.compiler.kernels.attention.halves.progressive import ProgressiveMapping
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.kernels.virtual import LengthReg
from gemmule.compiler.program import Registers
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.numerics import halved, lower_half, pack_halves, pack_rows

__all__ = ["PackedProgram", "standing_rows"]


def standing_rows(rows: np.ndarray, pairs: int, halves: Halves, part: int) -> Iterator[tuple[int, np.ndarray]]:
    """Keys (``part`` 0) or values (1) as they stand in the cache, int8 [rows, ...]: a place, and the rows from it on.

    ``rows``: one for each position, of which the first ``2 * pairs`` have 4 bits. Of a pair the one is among the first
    ``pairs``, the other among the following ones.
    """
    if halves.packed[part]:
        lower = halves.lower and part == 0
        yield 0, pack_rows(halved(rows) if lower else rows, pairs)[:pairs]
        if lower:
            low, high = (lower_half(rows[at:at + pairs]) for at in (0, pairs))
            yield pairs, pack_halves(low, high).view(np.int8)
    else:
        yield 0, np.stack([rows[:pairs], rows[pairs:2 * pairs]], axis=1).reshape(2 * pairs, *rows.shape[1:])
    yield halves.stand(pairs), rows[2 * pairs:]


@dataclass(frozen=True, kw_only=True)
class PackedProgram(ModelProgram):
    """:class:`ModelProgram` for a cache that begins with any number of positions of 4 bits, a constant prefix aside,
    two in a row; those of 8 bits stand behind them. Cached rows count as they stand in the cache.
    """

    @property
    def packing(self) -> Packing:
        """What the program is compiled for."""
        attention = self.choice.mappings[0].attention
        assert isinstance(attention, PackedMapping)
        return Packing(attention.packed, attention.below if isinstance(attention, ProgressiveMapping) else 0.0)

    @property
    def halves(self) -> Halves:
        """What has 4 bits."""
        return self.packing.halves

    def beside(self, pairs: int) -> int:
        """By how many positions are more than the rows that they take, where so many pairs have 4 bits."""
        return 2 * pairs - self.halves.stand(pairs)

    def packed(self, registers: Registers, pairs: int) -> Registers:
        """Registers of a pass, where the cached rows begin with so many pairs of positions of 4 bits.

        Raises:
            CompileError: there are not so many rows, or more positions than the program takes.
        """
        cached = int(registers.lengths[LengthReg.CONTEXT])
        stand = self.halves.stand(pairs)
        positions = cached + self.beside(pairs)
        if not 0 <= stand <= cached - self.graph.prefix:
            raise CompileError(f"rows of 4 bits must take from 0 to the {cached - self.graph.prefix} rows that are "
                               f"cached, not {stand}")
        if positions >= self.max_positions:
            raise CompileError(f"cached positions must be fewer than {self.max_positions}, not {positions}: shorten "
                               "the context")
        made = Registers(*(numbers.copy() for numbers in registers))
        shifts = {CACHE: stand} | ({LOWER: pairs} if LOWER in self.registers_of else {})
        for region, rows in shifts.items():
            made.bases[self.registers_of[region]] += rows * self.layout.row
            made.limits[self.registers_of[region]] -= rows * self.layout.row
        made.lengths[LengthReg.CONTEXT] -= stand
        made.first = (packed_words(self.config, pairs),)
        return made

    def extremes(self) -> list[Registers]:
        found = super().extremes()
        most = self.max_positions - self.graph.prefix - 1
        sizes = [(rows, pairs, more) for rows in {1, self.max_rows} for pairs in {1, 33, (most - self.max_rows) // 2}
                 for more in {0, 1, most - 2 * pairs - self.max_rows} if pairs > 0 and more >= 0]
        stand, prefix = self.halves.stand, self.graph.prefix
        return found + [self.packed(self.registers(rows, prefix + stand(pairs) + more), pairs)
                        for rows, pairs, more in sizes if 2 * pairs + more + rows <= most]
