"""Columns of byte rows that are not 0: which they are, the rows packed in their order, products with what they meet.

Column sums say which columns are 0 in every row (importance). The select unit lists the others first, and packs the
rows' columns in the order of the list. The other operand has a row in DRAM for each column; blocks of these rows are
gathered by the list and multiplied while a comparison still finds something in the block's first packed column. So what
is not loaded is multiplied by zero. A block's predicate is computed ahead of it, so blocks take turns in all
predicates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gemmule.compiler.kernels.virtual import NO_DYN, At, Builder
from gemmule.isa import CommitFlag, Dyn, KeysFlag, Length, MoveFlag, SOp, TopKFlag, Unit

__all__ = ["BLOCK", "NonzeroColumns"]

BLOCK = 32
"""Rows of the other operand of a block at most: half a block more than needed is loaded on average."""


class NonzeroColumns:
    """Rows of bytes 0 .. 255, of which as many columns are looked at as the select unit takes at once."""

    def __init__(self, b: Builder, name: str, *, source: At, packed: At, stride: int, m: Length, list_at: int) -> None:
        """``source``: the ``m`` rows; ``packed``: where their packed columns go; ``stride``: of both, rows from a
        group of columns to the next. ``list_at``: first entry of the list.
        """
        self.b, self.name, self.source, self.packed, self.stride = b, name, source, packed, stride
        self.m, self.list_at = m, list_at

    def list_columns(self, n: int | Length, runs: int = 1, run: Length | None = None) -> None:
        """Numbers of the ``n`` columns, those that are not 0 before the others; and the rows' columns in this order.

        ``runs``: the rows are so many runs of ``stride // runs`` rows, and columns count that are not 0 in the first
        ``run`` rows of one.
        """
        self._select(SOp.COMMIT, "no importance yet", CommitFlag.CLEAR, n=n)
        for i in range(runs):
            self._select(SOp.IMPORTANCE, "columns that are not zero", src0=self.source + i * self.stride // runs,
                         src0_stride=self.stride, m=run or self.m, n=n)
        self._select(SOp.COMMIT, "their sums", n=n)
        self._select(SOp.KEYS, "keys of sums", KeysFlag.FROM_IMPORTANCE, n=n)
        self._select(SOp.TOP_K, "their list", TopKFlag.NONZERO, n=n, k=1, dst=self.list_at)
        self._select(SOp.PACK, "packed columns", src0=self.source, src0_stride=self.stride, m=self.m, n=n,
                     dst=self.packed)

    def multiply(self, at: int, rows: int | Length, number: int, slot: At, pitch: int, what: str,
                 load: Mapping[str, Any], product: Mapping[str, Any], turn: tuple[int, int] | None = None) -> None:
        """Gather the other operand's rows of the list from column ``at`` on, and multiply the packed columns with them.

        ``number`` of the predicate by which nothing of it happens if all these columns are 0; 0: it always does.
        ``slot``: where the rows go, groups of their columns ``pitch`` rows apart. ``load``, ``product``: other fields.
        ``turn``: a register that counts turns of a loop, and columns by which a turn moves on.
        """
        b, packed = self.b, self.packed + at // self.b.config.dim * self.stride
        rows_dyn = entries_dyn = NO_DYN
        if turn:
            register, columns = turn
            rows_dyn = Dyn.SRC0, register, columns // b.config.dim * self.stride
            entries_dyn = Dyn.SRC1, register, columns
        if number:  # where the block's first column has nothing, neither have the others
            first = replace(rows, cap=1) if isinstance(rows, Length) else 1
            self._select(SOp.COMPARE, "is there more", dyn=rows_dyn, src0=packed, src0_stride=self.stride, m=self.m,
                         n=first, aux=1, number=number)
        b.add(Unit.LOAD, f"{self.name}: {what} by list", flags={MoveFlag.INDEXED}, dyn=entries_dyn, row=slot,
              row_stride=1, block_stride=pitch, rows=rows, list=self.list_at + at, predicate=number, **load)
        b.add(Unit.MATRIX, f"{self.name}: {what} by list", dyn=rows_dyn, a_row=packed, a_stride=self.stride, b_row=slot,
              b_stride=pitch, m=self.m, k=rows, predicate=number, **product)

    def _select(self, op: SOp, note: str, *flags: int, dyn: tuple[Dyn, int, int] = NO_DYN, **fields: Any) -> None:
        self.b.add(Unit.SELECT, f"{self.name}: {note}", op=op, flags=flags, dyn=dyn, **fields)
