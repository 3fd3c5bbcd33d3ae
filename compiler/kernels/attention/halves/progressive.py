"""Attention that reads the upper halves of keys, and the lower ones where a row's probabilities are flat.

Packed rows of keys hold upper halves (:mod:`gemmule.compiler.kernels.attention.halves.packed`), those behind them the
lower ones; values have 8 bits, or 4 in packed rows. All rows are scored with upper halves first. The reciprocal of a
row's sum of probabilities is its largest one, about its own maximum: where that is below a threshold, the row is *flat*
(progressive quantisation, SpAtten, Wang et al. 2021). If any row is, a predicate lets the lower halves be loaded, and
their products added to the scores: with queries that are 0 for rows that are not flat. So what a row sees is its own
matter. Maxima, probabilities and contexts then follow as ever. All scores stay in the accumulator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmule.compiler.ir import Attention
from gemmule.compiler.kernels.attention.block import BlockHead, BlockMapping
from gemmule.compiler.kernels.attention.halves.packed import (
    LOWER,
    PackedAttention,
    PackedHead,
    PackedMapping,
    packed_half,
)
from gemmule.compiler.kernels.attention.halves.packing import Packing
from gemmule.compiler.kernels.constants import FixedRows
from gemmule.compiler.kernels.virtual import At, Bank, Buffer, Builder, LengthReg, SetDisplacement
from gemmule.config import Config
from gemmule.control import set_length
from gemmule.isa import (
    MAX_LENGTH,
    Dyn,
    Length,
    MatrixFlag,
    MoveFlag,
    RequantFlag,
    SoftmaxFlag,
    SOp,
    Source,
    Unit,
    VOp,
)
from gemmule.numerics import BYTE_TABLE_ENTRIES, FLAT, flat_scaling

__all__ = ["ProgressiveAttention", "ProgressiveMapping"]

PREDICATE = 1
REGION, UNITS = "flat rows", "units of flat rows"
"""Regions of the table that is 1 of what is below the threshold, and of a row of the number that it is compared with.
"""


@dataclass(frozen=True, kw_only=True)
class ProgressiveMapping(PackedMapping):
    """How attention is cut into blocks; a head is done before the next one begins."""

    below: float
    """Largest probability of a row below which it is flat."""

    @staticmethod
    def flat(blocks: BlockMapping, config: Config, packing: Packing) -> ProgressiveMapping | None:
        """None where scores are not all kept, or where half a block does not begin where the mesh takes it."""
        if not blocks.keep or blocks.block % (2 * config.preload):
            return None
        return ProgressiveMapping(
            context=blocks.context, cache=blocks.cache, block=blocks.block, blocks=blocks.blocks, pair=blocks.pair,
            kept=blocks.kept, pipelined=False, joined=blocks.joined, packed=packing.halves, below=packing.below)


class ProgressiveAttention(PackedAttention):
    """One layer, head by head."""

    mapping: ProgressiveMapping

    def __init__(self, b: Builder, node: Attention, mapping: ProgressiveMapping, number: int, masks: At, nobody: At,
                 ring: tuple[Buffer, ...]) -> None:
        super().__init__(b, node, mapping, number, masks, nobody, ring)
        self.units = At(Buffer(f"{node.name} unit", self.one, Bank.ACCUMULATOR))

    def begin(self) -> None:
        """The table, and a number for each row of a product."""
        b, name = self.b, self.node.name
        table = At(Buffer(f"{name} flat", BYTE_TABLE_ENTRIES // b.config.dim, Bank.STATE, b.config.preload))
        below = np.arange(BYTE_TABLE_ENTRIES).astype(np.uint8).view(np.int8) < FLAT
        b.load_constants(REGION, [FixedRows("flat", below.astype(np.uint8).tobytes())], table, f"{name}: flat rows")
        b.add(Unit.VECTOR, f"{name}: flat rows", op=VOp.TABLE, src0=table)
        unit = b.constant(UNITS, FixedRows("unit of flat rows", bytes([FLAT]) * b.config.dim))
        b.add(Unit.LOAD, f"{name}: units", region=UNITS, offset=unit, bytes=b.config.dim, row=self.units,
              row_stride=1, block_stride=1, rows=self.one,
              flags={MoveFlag.ACCUMULATOR, MoveFlag.NARROW, MoveFlag.BROADCAST})

    def _head(self, kv: int, statistics: int, sequence: int) -> BlockHead:
        return _ProgressiveHead(self, kv, statistics, sequence)

    def _sequence(self, sequence: int) -> None:
        for kv in range(self.node.kv_heads):
            head = _ProgressiveHead(self, kv, 0, sequence)
            octaves, head.maxima = head.maxima, set()
            head.begin()
            self._loop(None, head)
            head.decide()
            head.add_lower()
            head.maxima = octaves
            head.maxima_again()
            head.mix_new()
            self._loop(head, None)
            head.finish()

    def over_scores(self, what: str, write: Callable[[int], None]) -> None:
        """A loop over the scores of packed positions, then one over those of the others; ``write``: of a block."""
        b, mapping = self.b, self.mapping
        self.keeping = True
        b.control(set_length(LengthReg.ROW))
        for positions, source in ((Length(MAX_LENGTH, LengthReg.LEFT), packed_half(b.config)),
                                  (Length(MAX_LENGTH, LengthReg.CONTEXT, self.prefix), None)):
            b.control(set_length(LengthReg.LEFT, Source.LENGTH, LengthReg.CONTEXT, amount=-self.prefix)
                      if source is None else set_length(LengthReg.LEFT, Source.HALF, index=source))
            with b.loop(positions, mapping.turn.bit_length() - 1, what):
                for j in range(mapping.blocks):
                    write(j)
                b.control(set_length(LengthReg.LEFT, Source.LENGTH, LengthReg.LEFT, amount=-mapping.turn),
                          set_length(LengthReg.ROW, Source.LENGTH, LengthReg.ROW,
                                     amount=mapping.blocks * self.block_rows))


class _ProgressiveHead(PackedHead):
    """One KV head with the heads that share it."""

    kernel: ProgressiveAttention

    def __init__(self, kernel: ProgressiveAttention, kv: int, statistics: int, sequence: int) -> None:
        super().__init__(kernel, kv, statistics, sequence)
        rows = kernel.groups * kernel.one
        self.flat = At(Buffer(f"{self.name} flat", rows, Bank.OPERAND))
        self.asking = At(Buffer(f"{self.name} queries of flat rows", rows, Bank.OPERAND))

    def decide(self) -> None:
        """Which rows are flat, by the reciprocals of their sums; a predicate says whether any is."""
        b, k = self.b, self.k
        self.add_softmax(VOp.SOFTMAX_EXP, self.new_scores, b.m_each, {SoftmaxFlag.TREE, SoftmaxFlag.MORE},
                         src1=self.masks, dst=self.new_probabilities, dst_stride=k.one)
        self.kernel.over_scores(f"sums of {self.name}", lambda j: self.add_softmax(
            VOp.SOFTMAX_EXP, self._cached(1, j), self._left(j), {SoftmaxFlag.CONTINUE, SoftmaxFlag.MORE}, moved=True,
            dst=self.probabilities[j], dst_stride=k.one))
        self.add_softmax(VOp.SOFTMAX_EXP, self.new_scores, Length(1), {SoftmaxFlag.CONTINUE, SoftmaxFlag.TREE},
                         src1=self.kernel.nobody, dst=self.new_probabilities, dst_stride=k.one)
        mult, shift = flat_scaling(self.kernel.mapping.below)
        size: dict[str, Any] = {"m": self.own.m, "n": k.node.head_dim}
        b.add(Unit.VECTOR, f"{self.name}: flat rows", op=VOp.REQUANT, flags={RequantFlag.ROW, RequantFlag.LOOKUP},
              src0=self.kernel.units, src0_stride=0, dst=self.flat, dst_stride=k.one, mult=mult, shift=shift,
              context=self.statistics, **size)
        b.add(Unit.VECTOR, f"{self.name}: queries of flat rows", op=VOp.PRODUCT, src0=self.own.query,
              src0_stride=k.all, src1=self.flat, aux=k.one, dst=self.asking, dst_stride=k.one, mult=1, shift=0, **size)
        b.add(Unit.SELECT, f"{self.name}: is any row flat", op=SOp.COMPARE, src0=self.flat, src0_stride=k.one,
              m=self.own.m, n=1, aux=1, number=PREDICATE)

    def add_lower(self) -> None:
        """The lower halves' part of the scores of flat rows."""
        b, k, mapping, half = self.b, self.k, self.kernel.mapping, packed_half(self.b.config)
        row = k.layout.row
        b.control(set_length(LengthReg.ROW), set_length(LengthReg.LEFT, Source.HALF, index=half),
                  set_length(LengthReg.PAIRS, Source.HALF, index=half + 1), SetDisplacement(LOWER, 0))
        self.kernel.packed = True
        with b.loop(Length(MAX_LENGTH, LengthReg.LEFT), mapping.turn.bit_length() - 1, f"lower halves of {self.name}"):
            with b.when(PREDICATE):
                for j in range(0, mapping.blocks, mapping.pair):
                    self.load_packed(0, j, self._slot(0, j), LOWER)
                for j in range(mapping.blocks):
                    b.add(Unit.MATRIX, f"{self.name}: scores of lower halves", a_row=self.asking, a_stride=k.one,
                          b_row=self._slot(0, j), b_stride=mapping.block * mapping.pair, c_row=self._cached(0, j),
                          c_stride=self.own.one, m=self.own.m, n=self._left(j), k=k.node.head_dim,
                          dyn=(Dyn.DST, LengthReg.ROW, 1),
                          flags={MatrixFlag.B_TRANSPOSED, MatrixFlag.B_INT4, MatrixFlag.ACCUMULATE})
            b.control(set_length(LengthReg.LEFT, Source.LENGTH, LengthReg.LEFT, amount=-mapping.turn),
                      set_length(LengthReg.PAIRS, Source.LENGTH, LengthReg.PAIRS, amount=-mapping.turn // 2),
                      SetDisplacement(LOWER, mapping.turn // 2 * row, further=True),
                      set_length(LengthReg.ROW, Source.LENGTH, LengthReg.ROW,
                                 amount=mapping.blocks * self.kernel.block_rows))
        self.kernel.packed = False
        b.control(SetDisplacement(LOWER, 0))

    def maxima_again(self) -> None:
        """Of the scores as they are now."""
        self.add_softmax(VOp.SOFTMAX_MAX, self.new_scores, self.b.m_each, {SoftmaxFlag.TREE} | self.maxima,
                         src1=self.masks)
        self.kernel.over_scores(f"maxima of {self.name}", self.block_maxima)
