"""Attention over a whole cache that goes on summing what each row of it was attended to: heavy hitters.

Importance is the sum of the probabilities of all rows since the beginning of the text (H2O, Zhang et al. 2023), by KV
head. The sums stand in DRAM, int32. A pass adds those of its rows: two bytes of each normalised probability are two
rows of a product with a row of numbers, whose result has a sum for each position. The product takes signed bytes, so
all bytes are lowered by 128 before, by the vector unit's table, and sums are raised by a constant. Weights of 8 bits
make ``255 * high + low`` of the two bytes, which is ``p - (p >> 8)``. Keys are the sums in 16 bits; the select unit
chooses as in :mod:`gemmule.compiler.kernels.attention.selecting`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Attention
from gemmule.compiler.kernels.attention.block import BlockHead
from gemmule.compiler.kernels.attention.selecting import SelectingAttention, SelectingHead, SelectingMapping
from gemmule.compiler.kernels.attention.shared import NEW_SUMS, SUMS, attention_rows
from gemmule.compiler.kernels.row_blocks import stored
from gemmule.compiler.kernels.virtual import At, Bank, Buffer, Builder, LengthReg
from gemmule.config import Config
from gemmule.control import params, set_length
from gemmule.isa import (
    PARAMS_WORDS,
    AddFlag,
    Command,
    CommitFlag,
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
from gemmule.numerics import BYTE_TABLE_ENTRIES, HEAVY_SHIFT, MOST_COUNTED
from gemmule.timing import ceil_div

__all__ = ["COUNTING", "SUM_BYTES", "HeavyAttention", "HeavyMapping", "counting_bytes", "heavy_words", "sums_pitch"]

COUNTING = "counting"
"""Region of the launch's input: see :func:`counting_bytes`."""
SUM_BYTES = 4


def heavy_words(config: Config, kept: int, among: int) -> Command:
    """PARAMS with how many rows each list gets, how many rows of DRAM such a list takes, and among how many rows they
    are chosen; a launch's first command.
    """
    lines = ceil_div(2 * kept, config.dim)
    return params(config.parameter_words - PARAMS_WORDS, kept | lines << 16, among, *(PARAMS_WORDS - 2) * (0,),
                  note="rows that are chosen")


def sums_pitch(mapping: SelectingMapping) -> int:
    """Bytes from the sums of a KV head to the next one's: whole blocks."""
    return SUM_BYTES * ceil_div(mapping.context, mapping.block) * mapping.block


def _apart(config: Config, rows: int) -> int:
    """From the low bytes of ``rows`` rows to the high ones: the mesh takes both as one operand."""
    return ceil_div(rows, config.preload) * config.preload


def _weight_bytes(config: Config, rows: int) -> int:
    return ceil_div(2 * _apart(config, rows), config.dim) * config.dim


def counting_bytes(config: Config, node: Attention, rows: int) -> np.ndarray:
    """uint8: the table that lowers bytes by 128; what the low and the high bytes of a product's rows are multiplied
    by; and, int32, what this makes sums too small by.
    """
    every = attention_rows(node, rows)
    weights = np.zeros(_weight_bytes(config, every), dtype=np.uint8)
    weights[:every], weights[_apart(config, every):][:every] = 1, 255
    table = np.arange(BYTE_TABLE_ENTRIES, dtype=np.uint8) ^ 128
    raised = np.full(config.dim, 128 * 256 * every, dtype="<i4")
    return np.concatenate([table, weights, raised.view(np.uint8)])


@dataclass(frozen=True, kw_only=True)
class HeavyMapping(SelectingMapping):
    """How attention is cut into blocks; a head is done before the next one begins."""

    def scratchpad_rows(self, node: Attention, dim: int, rows: int) -> int:
        """Zeros beside the probabilities, and the table."""
        wide = 2 * ceil_div(self.block, dim) * attention_rows(node, rows)
        return super().scratchpad_rows(node, dim, rows) + wide + BYTE_TABLE_ENTRIES // dim


class HeavyAttention(SelectingAttention):
    """One layer, head by head.

    Raises:
        CompileError: sums of so many rows do not fit 32 bits.
    """

    def __init__(self, b: Builder, node: Attention, mapping: HeavyMapping, number: int, masks: At, nobody: At,
                 ring: tuple[Buffer, ...]) -> None:
        super().__init__(b, node, mapping, number, masks, nobody, ring)
        if self.share * mapping.context * MOST_COUNTED >= 1 << 31:
            raise CompileError(f"sums of probabilities have 32 bits, for at most {(1 << 31) // MOST_COUNTED:,} rows of "
                               f"heads that share a KV head, not {self.share} x {mapping.context:,}: use a shorter "
                               "context")
        self.pitch = sums_pitch(mapping)
        self.apart = _apart(b.config, self.one)
        self.row_bytes = _weight_bytes(b.config, self.one)
        b.reserve(SUMS, (number + 1) * node.kv_heads * self.pitch)
        b.reserve(COUNTING, BYTE_TABLE_ENTRIES + self.row_bytes + SUM_BYTES * b.config.dim)

    def begin(self) -> None:
        """The table, and the row of numbers."""
        b, name, size = self.b, self.node.name, BYTE_TABLE_ENTRIES + self.row_bytes
        rows = At(Buffer(f"{name} counting", size // b.config.dim, Bank.STATE, b.config.preload))
        b.add(Unit.LOAD, f"{name}: what counts probabilities", region=COUNTING, bytes=size, row=rows, block_stride=1,
              rows=1)
        b.add(Unit.VECTOR, f"{name}: bytes lowered by 128", op=VOp.TABLE, src0=rows)
        self.weights = rows + BYTE_TABLE_ENTRIES // b.config.dim

    def _head(self, kv: int, statistics: int, sequence: int) -> BlockHead:
        return _HeavyHead(self, kv, statistics, sequence)


class _HeavyHead(SelectingHead):
    """One KV head with the heads that share it."""

    kernel: HeavyAttention
    streams = {SUMS: SUM_BYTES, stored(SUMS): SUM_BYTES}

    def __init__(self, kernel: HeavyAttention, kv: int, statistics: int, sequence: int) -> None:
        super().__init__(kernel, kv, statistics, sequence)
        dim, preload = self.b.config.dim, self.b.config.preload
        self.groups = ceil_div(max(kernel.mapping.block, self.b.each), dim)
        rows = 2 * kernel.apart * self.groups
        self.normalised = [At(Buffer(f"{self.name} normalised {i}", rows, Bank.OPERAND, preload)) for i in range(2)]
        self.nothing = At(Buffer(f"{self.name} times 0", rows, Bank.STATE))
        self.added = [At(Buffer(f"{self.name} sums of probabilities {i}", self.groups, Bank.ACCUMULATOR))
                      for i in range(2)]
        self.keys = [At(Buffer(f"{self.name} keys {i}", 2 * self.groups, Bank.STATE)) for i in range(2)]

    def begin_importance(self) -> None:
        """Sums go on."""

    def _importance(self, scores: At, number: int, columns: Length, flags: set[SoftmaxFlag], *, moved: bool,
                    first: int, register: int) -> None:
        """Normalised probabilities of a piece, added to the sums from row ``first`` behind a register's on; keys of
        these.
        """
        b, i, pitch = self.b, number % 2, 2 * self.kernel.apart
        to, added, keys = self.normalised[i], self.added[i], self.keys[i]
        self.add_softmax(VOp.SOFTMAX_NORM, scores, columns, flags | {SoftmaxFlag.WIDE}, moved=moved,
                         src1=self.masks if flags else 0, dst=to, dst_stride=pitch)
        b.add(Unit.VECTOR, f"{self.name}: bytes lowered by 128", op=VOp.ADD, flags={AddFlag.LOOKUP}, src0=to,
              src0_stride=pitch, src1=self.nothing, dst=to, dst_stride=pitch, m=Length(pitch), n=columns, mult=1,
              aux=0, shift=0)
        if register == LengthReg.CONTEXT:
            self._sum_new(to, added, columns)
        else:
            self._sum_block(to, added, columns, first)
        b.add(Unit.VECTOR, f"{self.name}: keys of sums", op=VOp.REQUANT, flags={RequantFlag.WIDE}, src0=added,
              src0_stride=1, dst=keys, dst_stride=2, m=1, n=columns, mult=1, shift=HEAVY_SHIFT)
        self._select(SOp.KEYS, "keys of sums", dyn=(Dyn.DST, register, 1), src0=keys, src0_stride=2, first=0, dst=first,
                     n=columns)

    def _sum_block(self, planes: At, added: At, columns: Length, first: int) -> None:
        """Sums of a block of cached rows go on. The block is whole in DRAM: what stands behind the cached rows, new
        ones overwrite.
        """
        move: dict[str, Any] = {
            "row": added, "block_stride": 1, "bytes": SUM_BYTES * self.kernel.mapping.block,
            "offset": self.number * self.kernel.pitch + SUM_BYTES * first, "rows": Length(1, LengthReg.LEFT, first)}
        self._raise(added)
        self.b.add(Unit.LOAD, f"{self.name}: sums", region=SUMS, flags={MoveFlag.ACCUMULATOR, MoveFlag.ADD}, **move)
        self._multiply(planes, added, columns)
        self.b.add(Unit.STORE, f"{self.name}: sums", region=stored(SUMS), flags={MoveFlag.ACCUMULATOR}, **move)

    def _sum_new(self, planes: At, added: At, columns: Length) -> None:
        """Sums of new rows begin."""
        self._raise(added)
        self._multiply(planes, added, columns)
        self.b.add(Unit.STORE, f"{self.name}: sums of new rows", region=NEW_SUMS, flags={MoveFlag.ACCUMULATOR}, rows=1,
                   row=added, block_stride=1, bytes=SUM_BYTES * self.b.each, offset=self.number * self.kernel.pitch)

    def _raise(self, added: At) -> None:
        """What the product makes too small, beforehand."""
        self.b.add(Unit.LOAD, f"{self.name}: what raises sums", region=COUNTING, row=added, row_stride=1,
                   offset=BYTE_TABLE_ENTRIES + self.kernel.row_bytes, bytes=SUM_BYTES * self.b.config.dim,
                   block_stride=1, rows=self.groups, flags={MoveFlag.ACCUMULATOR, MoveFlag.BROADCAST})

    def _multiply(self, planes: At, added: At, columns: Length) -> None:
        """The row of numbers times the probabilities' bytes."""
        pitch = 2 * self.kernel.apart
        self.b.add(Unit.MATRIX, f"{self.name}: sums", flags={MatrixFlag.A_UNSIGNED, MatrixFlag.ACCUMULATE},
                   a_row=self.kernel.weights, a_stride=1, b_row=planes, b_stride=pitch, c_row=added, c_stride=1, m=1,
                   n=columns, k=Length(pitch))

    def complete_importance(self, every: Length) -> None:
        """The keys so far; rows that no pass has counted are among the newest ones, whose keys are the largest."""
        self._select(SOp.COMMIT, "importance is complete", CommitFlag.FROM_KEYS, first=self.k.prefix, n=every)

    def _every(self) -> Length:
        """Those among which rows are chosen, behind the prefix; none, where the pass only counts."""
        at = 2 * (self.b.config.parameter_words - PARAMS_WORDS + 1)
        self.b.control(set_length(LengthReg.LEFT, Source.HALF, index=at))
        return Length(self.kernel.most, LengthReg.LEFT)
