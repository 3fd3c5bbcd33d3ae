"""Products of rows that are mostly zero: only those weights are loaded that meet something else.

The weights of such a linear lie row by row in DRAM, one row for each column of its input. The columns that are not zero
are listed, and blocks of their weights gathered and multiplied (:mod:`gemmule.compiler.kernels.listed`). What is not
loaded is multiplied by zero: the result is that of all weights, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Linear
from gemmule.compiler.kernels.constants import ColumnRows, ListedWeights
from gemmule.compiler.kernels.layout import Span
from gemmule.compiler.kernels.linear import Ring, Tile
from gemmule.compiler.kernels.listed import BLOCK, NonzeroColumns
from gemmule.compiler.kernels.virtual import STATIC, At, Bank, Buffer, Builder
from gemmule.compiler.place import Cut, cut_evenly
from gemmule.isa import NUM_PREDICATES, MatrixFlag
from gemmule.timing import ceil_div

__all__ = ["LISTED", "nonzero_tiles"]

LISTED = "listed weights"
"""Region of the weights, [column of the input][column of the result]."""


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
        _Columns(b, ring, node, span, part, offset, len(lanes)).write(columns, sums)
    for acc, (first, groups) in zip(sums, columns, strict=True):
        yield Tile(acc, b.rows, first, groups, At(parameters, first * ColumnRows.rows(node)))


class _Columns:
    """As many columns of the input as the select unit takes."""

    def __init__(self, b: Builder, ring: Ring, node: Linear, span: Span, part: range, offset: int, size: int) -> None:
        """``size``: bytes of a row of weights, from ``offset`` on."""
        self.b, self.ring, self.part = b, ring, part
        self.offset, self.size = offset + part.start * size, size
        list_at = b.config.list_entries - len(part)
        if list_at < 2 * b.rows:
            raise CompileError(
                f"{node.name}: the index list must hold {2 * b.rows + len(part)} entries, tokens, positions and "
                f"columns that are not zero, not {b.config.list_entries}: raise list_entries, or load all weights")
        self.columns = NonzeroColumns(
            b, node.name, source=span.at + part.start // b.config.dim * span.stride, stride=span.stride, m=b.m,
            packed=At(Buffer(f"{node.name} packed", len(part) // b.config.dim * span.stride, Bank.OPERAND)),
            list_at=list_at)

    def write(self, columns: Sequence[Cut], sums: Sequence[At]) -> None:
        """List, pack, and multiply what is there with every cut of the columns."""
        b, dim, depth = self.b, self.b.config.dim, len(self.part)
        self.columns.list_columns(depth)
        predicate = count()
        for acc, (first, groups) in zip(sums, columns, strict=True):
            block = min(max(dim, BLOCK), self.ring.rows // groups // dim * dim)
            for at in range(0, depth, block):
                rows, begun = min(block, depth - at), bool(at or self.part.start)
                self.columns.multiply(
                    at, rows, 1 + next(predicate) % (NUM_PREDICATES - 1) if begun else 0, At(self.ring.take()), rows,
                    f"{groups} groups of weights",
                    {"region": LISTED, "offset": self.offset + first * dim, "stride": self.size,
                     "bytes": groups * dim, "last_index": depth - 1},
                    {"c_row": acc, "c_stride": b.rows, "n": groups * dim,
                     "flags": {MatrixFlag.ACCUMULATE} if begun else set()})
