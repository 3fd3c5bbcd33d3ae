"""Products of rows that are mostly zero: only those weights are loaded that meet something else.

The weights of such a linear lie row by row in DRAM, one row for each column of its input. Column sums of the input say
which columns are zero in every row of the pass (importance); the select unit lists the others, and packs the input's
columns in the order of the list. Blocks of the list are gathered and multiplied while a comparison still finds
something in the packed columns, so what is not loaded is multiplied by zero: the result is that of all weights, bit for
bit. A block's predicate is computed ahead of it, so blocks take turns in all predicates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Linear
from gemmule.compiler.kernels.constants import ColumnRows, ListedWeights
from gemmule.compiler.kernels.layout import Span
from gemmule.compiler.kernels.linear import Ring, Tile
from gemmule.compiler.kernels.virtual import STATIC, At, Bank, Buffer, Builder
from gemmule.compiler.place import Cut, cut_evenly
from gemmule.isa import NUM_PREDICATES, CommitFlag, KeysFlag, MatrixFlag, MoveFlag, SOp, TopKFlag, Unit
from gemmule.timing import ceil_div

__all__ = ["LISTED", "nonzero_tiles"]

LISTED = "listed weights"
"""Region of the weights, [column of the input][column of the result]."""
BLOCK = 32
"""Rows of weights of a block at most: half a block more than needed is loaded on average."""


def nonzero_tiles(b: Builder, ring: Ring, node: Linear, span: Span, lanes: np.ndarray) -> Iterator[Tile]:
    """:func:`gemmule.compiler.kernels.linear.linear_tiles` of int8 rows in one piece.

    Raises:
        CompileError: the device's list is too short, or a slot of the ring takes no block.
    """
    dim, config = b.config.dim, b.config
    depth, total = span.groups(dim) * dim, len(lanes) // dim
    parts = [range(first, min(first + config.select_keys, depth)) for first in range(0, depth, config.select_keys)]
    most = min(total, max(1, ring.acc_rows // b.rows), ring.rows // dim)
    if not most:
        raise CompileError(f"{node.name}: a ring slot of {ring.rows} rows must hold {dim} rows of weights of {dim} "
                           "columns: use a larger scratchpad (spm_kib)")
    columns = cut_evenly(total, ceil_div(total, most))
    offset = b.constant(LISTED, ListedWeights(node, lanes, span.columns[:depth]))
    parameters = Buffer(f"{node.name} parameters", ColumnRows.rows(node) * total, Bank.STATE)
    b.load_constants(STATIC, [ColumnRows.of(node, lanes)], At(parameters), f"{node.name}: parameters")
    sums = [At(Buffer(f"{node.name} sums", groups * b.rows, Bank.ACCUMULATOR)) for _, groups in columns]
    for part in parts:
        _Part(b, ring, node, span, part, offset, len(lanes)).write(columns, sums)
    for acc, (first, groups) in zip(sums, columns, strict=True):
        yield Tile(acc, b.rows, first, groups, At(parameters, first * ColumnRows.rows(node)))


class _Part:
    """As many columns of the input as the select unit takes."""

    def __init__(self, b: Builder, ring: Ring, node: Linear, span: Span, part: range, offset: int, size: int) -> None:
        """``size``: bytes of a row of weights, from ``offset`` on."""
        self.b, self.ring, self.node, self.span, self.part = b, ring, node, span, part
        self.offset, self.size = offset + part.start * size, size
        self.first = b.config.list_entries - len(part)
        if self.first < 2 * b.rows:
            raise CompileError(
                f"{node.name}: the index list must hold {2 * b.rows + len(part)} entries, tokens, positions and "
                f"columns that are not zero, not {b.config.list_entries}: raise list_entries, or load all weights")
        self.source = span.at + part.start // b.config.dim * span.stride
        self.packed = At(Buffer(f"{node.name} packed", len(part) // b.config.dim * span.stride, Bank.OPERAND))

    def write(self, columns: Sequence[Cut], sums: Sequence[At]) -> None:
        """List, pack, and multiply what is there with every cut of the columns."""
        self._list()
        b, dim, depth = self.b, self.b.config.dim, len(self.part)
        predicate = count()
        for acc, (first, groups) in zip(sums, columns, strict=True):
            block = min(max(dim, BLOCK), self.ring.rows // groups // dim * dim)
            for at in range(0, depth, block):
                rows = min(block, depth - at)
                number = 1 + next(predicate) % (NUM_PREDICATES - 1) if at or self.part.start else 0
                packed = self.packed + at // dim * self.span.stride
                if number:
                    self._select(SOp.COMPARE, "is there more", src0=packed, src0_stride=self.span.stride, m=b.m, n=rows,
                                 aux=1, number=number)
                slot = At(self.ring.take())
                b.add(Unit.LOAD, f"{self.node.name}: weights by list", region=LISTED, flags={MoveFlag.INDEXED},
                      offset=self.offset + first * dim, stride=self.size, bytes=groups * dim, row=slot, row_stride=1,
                      block_stride=rows, rows=rows, list=self.first + at, last_index=depth - 1, predicate=number)
                b.add(Unit.MATRIX, f"{self.node.name}: {groups} groups of weights by list",
                      flags={MatrixFlag.ACCUMULATE} if at or self.part.start else set(), a_row=packed,
                      a_stride=self.span.stride, b_row=slot, b_stride=rows, c_row=acc, c_stride=b.rows, m=b.m,
                      n=groups * dim, k=rows, predicate=number)

    def _list(self) -> None:
        """Numbers of the columns that are not zero, then of the others; and the rows' columns in this order."""
        n, stride, m = len(self.part), self.span.stride, self.b.m
        self._select(SOp.COMMIT, "no importance yet", CommitFlag.CLEAR, n=n)
        self._select(SOp.IMPORTANCE, "columns that are not zero", src0=self.source, src0_stride=stride, m=m, n=n)
        self._select(SOp.COMMIT, "their sums", n=n)
        self._select(SOp.KEYS, "keys of sums", KeysFlag.FROM_IMPORTANCE, n=n)
        self._select(SOp.TOP_K, "their list", TopKFlag.NONZERO, n=n, k=1, dst=self.first)
        self._select(SOp.PACK, "packed columns", src0=self.source, src0_stride=stride, m=m, n=n, dst=self.packed)

    def _select(self, op: SOp, note: str, *flags: int, **fields: Any) -> None:
        self.b.add(Unit.SELECT, f"{self.node.name}: {note}", op=op, flags=flags, **fields)
