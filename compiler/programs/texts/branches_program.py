"""A decoder's pass whose rows see rows of the cache of their own: bitmaps and places that a launch takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Rows
from gemmule.compiler.kernels.attention.cache_list import CACHE_ROWS
from gemmule.compiler.kernels.attention.shared import CACHE, NEW
from gemmule.compiler.kernels.attention.texts.branches import SEEN, BranchesMapping
from gemmule.compiler.kernels.virtual import LengthReg
from gemmule.compiler.program import Registers, Step
from gemmule.compiler.programs.general_program import Answers
from gemmule.compiler.programs.model_program import ModelProgram, Places
from gemmule.timing import ceil_div

__all__ = ["BranchesProgram"]


@dataclass(frozen=True, kw_only=True)
class BranchesProgram(ModelProgram):
    """:class:`ModelProgram` of a cache with rows of several texts. Rows without places go behind the cached ones."""

    @property
    def mapping(self) -> BranchesMapping:
        """How attention was cut."""
        found = self.choice.mappings[0].attention
        assert isinstance(found, BranchesMapping)
        return found

    def registers(self, rows: int, context: int, wanted: int | None = None) -> Registers:
        """As of :meth:`ModelProgram.registers`; stores go by list, from the first row of the cache on."""
        made, stored = super().registers(rows, context, wanted), self.registers_of[NEW]
        made.bases[stored], made.limits[stored] = self.symbols[CACHE]
        made.lengths[LengthReg.ROW] = 0
        return made

    def extremes(self) -> list[Registers]:
        """Launches whose rows see all of the cache, and such whose rows see some of all of it."""
        found, others = super().extremes(), super().extremes()
        for made in others:
            made.lengths[LengthReg.ROW] = made.lengths[LengthReg.CONTEXT]
        return [*found, *others]

    def step(self, rows: Rows, wanted: int, cached: Sequence[int] | None = None,
             places: Places | None = None) -> Step:
        context = int(rows.positions[0]) if cached is None else cached[0]
        plain = super().step(rows, wanted, [context])
        return self._with_branches(plain, rows, context)

    def general_step(self, rows: Rows, cached: Sequence[int], layers: tuple[int, int], wanted: Answers) -> Step:
        plain = super().general_step(rows, cached, layers, wanted)
        return self._with_branches(plain, rows, cached[0])

    def scattered(self, rows: Rows, cached: Sequence[int]) -> np.ndarray:
        """The cache's row of each new row behind ``cached`` ones, constant ones included  # int64 [rows]."""
        return cached[0] + np.arange(len(rows)) if rows.places is None else self.graph.prefix + rows.places

    def _with_branches(self, plain: Step, rows: Rows, context: int) -> Step:
        """A step, with what the host tells of the cache.

        Raises:
            CompileError: rows see other rows than the cached ones.
        """
        cached = max(0, context - self.graph.prefix)
        if rows.seen is not None and rows.seen.shape[1] != cached:
            raise CompileError(f"what rows see of the cache must be told of {cached} cached rows, not of "
                               f"{rows.seen.shape[1]}")
        seen = np.ones((len(rows), cached), dtype=bool) if rows.seen is None else rows.seen
        hidden = np.flatnonzero(~seen.all(axis=0))
        shared = int(hidden[0]) if len(hidden) else cached
        plain.registers.lengths[LengthReg.ROW] = shared // self.mapping.turn * self.mapping.turn
        told = [(self.symbols[CACHE_ROWS][0], self.scattered(rows, [context]).astype("<u2").view(np.uint8))]
        if cached:
            told.append((self.symbols[SEEN][0], self._seen(seen).reshape(-1)))
        return Step(plain.registers, (*plain.inputs, *told))

    def _seen(self, seen: np.ndarray) -> np.ndarray:
        """uint8 [pieces, share * rows, dim]: which positions of each piece each row sees  # bool [rows, cached]

        The positions of a piece count from its last column, as many as the rows of a product.
        """
        piece, every, cached = self.mapping.piece, self.share * self.max_rows, seen.shape[1]
        bits = np.zeros((ceil_div(cached, piece), self.share, self.max_rows, 8 * self.config.dim), dtype=np.uint8)
        for number in range(len(bits)):
            part = seen[:, number * piece:(number + 1) * piece]
            first = every - part.shape[1]
            bits[number, :, :len(seen), first:first + part.shape[1]] = part
        return np.packbits(bits.reshape(len(bits), every, -1), axis=2, bitorder="little")

    def _bitmaps(self, mask: np.ndarray) -> np.ndarray:
        """As of :meth:`ModelProgram._bitmaps`, of products that always have all rows."""
        count, every = len(mask), self.share * self.max_rows
        bits = np.zeros((self.share, self.max_rows, 8 * self.config.dim), dtype=np.uint8)
        bits[:, :count, every - count:every] = mask
        return np.packbits(bits.reshape(every, -1), axis=1, bitorder="little")
