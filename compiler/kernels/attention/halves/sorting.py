"""Attention over a whole cache that sorts its rows in three classes: dropped, of 4 bits and of 8 bits.

Rows are chosen as in :mod:`gemmule.compiler.kernels.attention.selecting`. Of those that stay, the most important ones
keep 8 bits; the list of the others has the rows that are in the first choice and not in the second. No command tells
that of two lists. So marks of rows stand in DRAM, a byte each: ones are scattered by the first list, zeros by the
second, and what is marked then is chosen once more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gemmule.compiler.ir import Attention
from gemmule.compiler.kernels.attention.block import BlockHead
from gemmule.compiler.kernels.attention.halves.packing import PAIR_LISTS, pair_half
from gemmule.compiler.kernels.attention.selecting import SelectingAttention, SelectingHead, SelectingMapping
from gemmule.compiler.kernels.moves import LISTS
from gemmule.compiler.kernels.row_blocks import stored
from gemmule.compiler.kernels.virtual import At, Bank, Buffer, Builder, LengthReg
from gemmule.config import Config
from gemmule.control import params, set_length
from gemmule.isa import (
    PARAMS_WORDS,
    Command,
    Dyn,
    KeysFlag,
    Length,
    MoveFlag,
    SOp,
    Source,
    TopKFlag,
    Unit,
)
from gemmule.timing import ceil_div

__all__ = ["BOTH_MARKS", "SortingAttention", "SortingMapping", "sorted_words"]

MARKS = "marks"
"""Region: a byte for each row of the cache."""
BOTH_MARKS = "both marks"
"""Region of the launch's input: DIM zeros, DIM ones."""
STAYING, WHOLE, PAIRS, WHOLE_LINES, PAIR_LINES, HALVED = range(6)
"""Halves of the parameter memory: rows that stay; those of 8 bits; pairs of the others; rows of DRAM that lists of
these two take; rows of 4 bits."""


def sorted_words(config: Config, kept: int, pairs: int) -> Command:
    """PARAMS with how many rows each list gets; a launch's first command."""
    whole = kept - 2 * pairs
    halves = (kept, whole, pairs, ceil_div(2 * whole, config.dim), ceil_div(2 * pairs, config.dim), 2 * pairs)
    words = [low | high << 16 for low, high in zip(halves[::2], halves[1::2], strict=True)]
    return params(config.parameter_words - PARAMS_WORDS, *words, *(PARAMS_WORDS - len(words)) * (0,),
                  note="rows that are chosen")


@dataclass(frozen=True, kw_only=True)
class SortingMapping(SelectingMapping):
    """How attention is cut into blocks; a head is done before the next one begins."""

    def scratchpad_rows(self, node: Attention, dim: int, rows: int) -> int:
        """Marks too, as 16-bit numbers."""
        return super().scratchpad_rows(node, dim, rows) + 2 * ceil_div(self.context, dim) + 2


class SortingAttention(SelectingAttention):
    """One layer, head by head."""

    def __init__(self, b: Builder, node: Attention, mapping: SortingMapping, number: int, masks: At, nobody: At,
                 ring: tuple[Buffer, ...]) -> None:
        super().__init__(b, node, mapping, number, masks, nobody, ring)
        self.marked = mapping.context + node.prefix
        self.lines = ceil_div(self.marked, b.config.dim)
        self.half = pair_half(b.config, mapping.context)
        b.reserve(PAIR_LISTS, 2 * (number + 1) * node.kv_heads * self.half)
        b.reserve(MARKS, (self.lines + 1) * b.config.dim)
        b.reserve(BOTH_MARKS, 2 * b.config.dim)

    def _head(self, kv: int, statistics: int, sequence: int) -> BlockHead:
        return _SortingHead(self, kv, statistics, sequence)


class _SortingHead(SelectingHead):
    """One KV head with the heads that share it."""

    kernel: SortingAttention

    def _choose(self) -> None:
        b, kernel, seen, listed = self.b, self.kernel, LengthReg.SEEN, 2 * self.b.rows
        every, most = self._every(), self.rows.buffer.rows * b.config.dim // 2
        marks = At(Buffer(f"{self.name} marks", 2 * kernel.lines, Bank.STATE))
        both = At(Buffer(f"{self.name} both marks", 2, Bank.STATE))
        b.add(Unit.LOAD, f"{self.name}: both marks", region=BOTH_MARKS, bytes=2 * b.config.dim, row=both,
              block_stride=1, rows=1)
        b.add(Unit.LOAD, f"{self.name}: no mark", region=MARKS, bytes=2 * kernel.lines * b.config.dim, row=marks,
              block_stride=1, rows=1, flags={MoveFlag.ZERO})
        self._mark("no marks", both, Length(kernel.lines), b.config.dim)
        self._select(SOp.COMMIT, "importance is complete", first=self.k.prefix, n=every)
        self._select(SOp.KEYS, "keys of importance", KeysFlag.FROM_IMPORTANCE, first=self.k.prefix, dst=0, n=every,
                     aux=kernel.mapping.first | kernel.mapping.last << 8)
        self._take(STAYING)
        self._select(SOp.TOP_K, "rows that stay", TopKFlag.KEEP, n=every, k=Length(most, seen), dst=listed)
        self._mark("rows that stay are marked", both + 1, Length(most, seen), 1, flags={MoveFlag.INDEXED}, list=listed,
                   last_index=kernel.marked - 1)
        self._take(WHOLE)
        self._select(SOp.TOP_K, "rows of 8 bits", TopKFlag.KEEP, n=every, k=Length(most, seen), dst=listed)
        # The load that follows waits until these rows are read, so until the marks are there.
        self._mark("rows of 8 bits are not", marks, Length(most, seen), 1, flags={MoveFlag.INDEXED}, list=listed,
                   last_index=kernel.marked - 1)
        self._select(SOp.LIST_STORE, "their list", first=listed, dst=self.rows, n=Length(most, seen))
        self._store_list(self._half(WHOLE_LINES), LISTS, self.number * kernel.list_bytes)
        b.add(Unit.LOAD, f"{self.name}: marks", region=MARKS, offset=self.k.prefix, bytes=b.config.dim,
              stride=b.config.dim, row=marks, row_stride=2, block_stride=1, rows=kernel.lines)
        every = self._every()
        self._select(SOp.KEYS, "keys of marks", first=self.k.prefix, dst=0, n=every, src0=marks, src0_stride=2)
        self._take(HALVED)
        self._select(SOp.TOP_K, "rows of 4 bits", n=every, k=Length(most, seen), dst=listed)
        for side in range(2):
            self._take(PAIRS)
            self._select(SOp.LIST_STORE, ("low nibbles", "high nibbles")[side], first=listed, dst=self.rows,
                         n=Length(most // 2, seen), dyn=(Dyn.SRC1, seen, side))
            self._store_list(self._half(PAIR_LINES), PAIR_LISTS, (2 * self.number + side) * kernel.half)
        b.control(set_length(seen, amount=b.each - 1, note="the row that is answered"))

    def _half(self, which: int) -> int:
        return 2 * (self.b.config.parameter_words - PARAMS_WORDS) + which

    def _take(self, which: int) -> None:
        """A number of the launch's to the register of sizes."""
        self.b.control(set_length(LengthReg.SEEN, Source.HALF, index=self._half(which)))

    def _mark(self, what: str, row: At, rows: Length, size: int, **fields: Any) -> None:
        """Bytes of one row to as many rows of ``size`` bytes."""
        self.b.add(Unit.STORE, f"{self.name}: {what}", region=stored(MARKS), bytes=size, stride=size, row=row,
                   row_stride=0, block_stride=1, rows=rows, **fields)
