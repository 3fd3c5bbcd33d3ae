"""Attention over a cache as textbooks have it, for comparison: scores and probabilities go to DRAM and come back.

The commands of :mod:`gemmule.compiler.kernels.attention.block`, and its numbers. The first pass stores each block's
scores, from which the rows' maxima are known on the way; the second one loads them, stores probabilities and loads
these. What moves are whole blocks of the rows that there are; a block beyond the context moves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gemmule.compiler.ir import Attention
from gemmule.compiler.kernels.attention.block import BlockAttention, BlockHead, BlockMapping
from gemmule.compiler.kernels.attention.sequence import PROBABILITIES, SCORE_BYTES, SCORES
from gemmule.compiler.kernels.row_blocks import stored
from gemmule.compiler.kernels.virtual import At, Buffer, Builder, LengthReg
from gemmule.isa import Length, MoveFlag, Unit
from gemmule.timing import ceil_div

__all__ = ["StandardAttention", "StandardMapping"]

SIZES = {SCORES: SCORE_BYTES, PROBABILITIES: 1}
"""Bytes of a number by region; both are [sequence][KV head][row][new rows, cached positions]."""


@dataclass(frozen=True, kw_only=True)
class StandardMapping(BlockMapping):
    """How attention is cut into blocks; no key is loaded twice."""

    @property
    def scores(self) -> str:
        return "through DRAM"

    @property
    def ring(self) -> int:
        return 2 * self.blocks // self.pair


class StandardAttention(BlockAttention):
    """One layer, block by block, its scores and probabilities through DRAM."""

    def __init__(self, b: Builder, node: Attention, mapping: StandardMapping, number: int, masks: At, nobody: At,
                 ring: tuple[Buffer, ...]) -> None:
        super().__init__(b, node, mapping, number, masks, nobody, ring)
        dim = b.config.dim
        self.new_columns, self.block_columns = (ceil_div(size, dim) * dim for size in (b.each, mapping.block))
        turn = mapping.blocks * self.block_columns
        self.columns = self.new_columns + ceil_div(mapping.context, mapping.turn) * turn
        self.moved = {name: size * turn for region, size in SIZES.items() for name in (region, stored(region))}
        for region, size in SIZES.items():
            b.reserve(region, b.batch * node.kv_heads * self.one * self.columns * size)

    def _head(self, kv: int, statistics: int, sequence: int) -> BlockHead:
        return _StandardHead(self, kv, statistics, sequence)


class _StandardHead(BlockHead):
    """One KV head with the heads that share it."""

    kernel: StandardAttention

    def begin(self) -> None:
        super().begin()
        self._move(Unit.STORE, SCORES, self.new_scores, 0, self.kernel.new_columns)

    def mix_new(self) -> None:
        self._move(Unit.LOAD, SCORES, self.new_scores, 0, self.kernel.new_columns)
        super().mix_new()

    def block_maxima(self, j: int) -> None:
        super().block_maxima(j)
        with self._if_there(j):
            self._move_block(Unit.STORE, SCORES, self._cached(0, j), j)

    def load(self, part: int, j: int, *, again: bool = False) -> None:
        """Scores where the keys would come again."""
        if not again:
            super().load(part, j)
            return
        for block in range(j, j + self.mapping.pair):
            with self._if_there(block):
                self._move_block(Unit.LOAD, SCORES, self._cached(1, block), block)

    def scores_again(self, j: int) -> None:
        """They came from DRAM."""

    def new_contexts(self) -> None:
        for unit in (Unit.STORE, Unit.LOAD):
            self._move(unit, PROBABILITIES, self.new_probabilities, 0, self.kernel.new_columns)
        super().new_contexts()

    def block_contexts(self, j: int) -> None:
        with self._if_there(j):
            for unit in (Unit.STORE, Unit.LOAD):
                self._move_block(unit, PROBABILITIES, self.probabilities[j], j)
        super().block_contexts(j)

    @contextmanager
    def _if_there(self, j: int) -> Iterator[None]:
        """A body of one turn, or of none where the context ends before block ``j`` of a turn."""
        if not j:
            yield
            return
        with self.b.loop(Length(1, LengthReg.LEFT, j * self.mapping.block), 0, f"block {j} of {self.name}"):
            yield

    def _move_block(self, unit: Unit, region: str, at: At, j: int) -> None:
        kernel = self.kernel
        self._move(unit, region, at, kernel.new_columns + j * kernel.block_columns, kernel.block_columns)

    def _move(self, unit: Unit, region: str, at: At, column: int, columns: int) -> None:
        """Columns of the rows out to DRAM or back."""
        k, size = self.kernel, SIZES[region]
        first = (self.sequence * k.node.kv_heads + self.kv) * k.one * k.columns
        self.b.add(unit, f"{self.name}: {region}", region=stored(region) if unit is Unit.STORE else region,
                   flags={MoveFlag.ACCUMULATOR} if region == SCORES else set(), offset=(first + column) * size,
                   stride=k.columns * size, bytes=columns * size, row=at, row_stride=1, block_stride=k.one, rows=k.m)
