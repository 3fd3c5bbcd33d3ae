"""The numbers of operands: what a command's fields, resolved lengths and first rows say, by name.

:class:`Term` names them, :func:`fill_terms` computes all of one command; the table of operands
(:mod:`gemmule.operands`) is written in these names, so compiled code and pages read the same table.
"""

from __future__ import annotations

from enum import IntEnum

from .isa import TABLE_FIELDS
from .operations import MoveFlag, Unit

__all__ = ["FIELD_TEXT", "OUT", "OUT_FIELDS", "TERM_TEXT", "Term", "fill_terms"]

OUT_FIELDS = (
    "fault", "unit", "op", "flags", "zero", "m", "n", "k", "address", "row0", "row1", "row2",
    "claim0", "claim1", "claim2", "apart", "after", "joined",
    "mult", "shift", "shift2", "aux",
)
"""Columns of a resolved command. m, n, k: lengths (load and store: m = rows). row0, row1, row2: first rows and entries
(load, store: row, list; matrix: a, b, c; vector: src0, src1, dst; select: src0, first, dst). claim0..2: ports of the
unit's streams. apart: two operands share a bank, so their reads must not overlap (matrix: A and B; vector PRODUCT and
ADD: src0 and src1). after: columns of a softmax row behind this piece. joined: the DRAM rows of a load or store follow
each other without a gap, in whole beats, and move as one long row. mult, shift, shift2, aux: scaling of a vector
command, from its fields or from registers."""
OUT = {name: i for i, name in enumerate(OUT_FIELDS)}


class Term(IntEnum):
    """A number of an operand, by the name under which :func:`fill_terms` computes it."""

    ZERO = 0
    ONE = 1
    TWO = 2
    M = 3
    N = 4
    K = 5
    ROW0 = 6
    ROW1 = 7
    ROW2 = 8
    STRIDE0 = 9  # a_stride; src0_stride; row_stride of a move
    STRIDE1 = 10  # b_stride; block_stride of a move
    STRIDE2 = 11  # c_stride; dst_stride
    HALF_STRIDE0 = 12
    HALF_STRIDE2 = 13
    AUX = 14
    ROW_GROUPS = 15  # ceil(m / DIM)
    COLUMN_GROUPS = 16  # ceil(n / DIM)
    DEPTH_GROUPS = 17  # ceil(k / DIM)
    HALF_N = 18  # ceil(n / 2)
    HALF_K = 19  # ceil(k / 2)
    BLOCKS = 20  # of a move: ceil(bytes / bytes of a row)
    ADDRESS = 21
    BYTES = 22
    DRAM_STRIDE = 23
    INDEX_RANGE = 24  # last_index + 1: DRAM rows that an index can name
    LIST = 25
    SCALES_ROW = 26  # b + DEPTH_GROUPS * DIM / 2: behind the block's int4 weights
    SCALE_ROWS = 27
    ANGLE_ROWS = 28  # m * 4 * 2**period
    TABLE_ROWS = 29
    LIST_ROWS = 30  # ceil(n / (DIM / 2)): 16 bits of an entry
    FIRST = 31
    KEPT = 32  # min(n, k)
    NUMBER = 33
    CONTEXT = 34
    HALF_AUX = 35


TERM_TEXT = {
    Term.ZERO: "0", Term.ONE: "1", Term.TWO: "2", Term.M: "m", Term.N: "n", Term.K: "k", Term.AUX: "aux",
    Term.ROW_GROUPS: "⌈m/DIM⌉", Term.COLUMN_GROUPS: "⌈n/DIM⌉", Term.DEPTH_GROUPS: "⌈k/DIM⌉", Term.HALF_N: "⌈n/2⌉",
    Term.HALF_K: "⌈k/2⌉", Term.BLOCKS: "blocks", Term.ADDRESS: "address", Term.BYTES: "bytes",
    Term.DRAM_STRIDE: "stride", Term.INDEX_RANGE: "last_index + 1", Term.LIST: "list",
    Term.SCALES_ROW: "b_row + ⌈k/DIM⌉·DIM/2", Term.SCALE_ROWS: "⌈⌈k/DIM⌉ / 2^group⌉", Term.ANGLE_ROWS: "m·4·2^period",
    Term.TABLE_ROWS: "whole table", Term.LIST_ROWS: "⌈2n/DIM⌉", Term.FIRST: "first", Term.KEPT: "min(n, k)",
    Term.NUMBER: "number", Term.CONTEXT: "context", Term.HALF_AUX: "aux/2",
}
"""Terms as pages write them; rows and strides are called by the unit's own fields (:data:`FIELD_TEXT`)."""
FIELD_TEXT: dict[Unit, dict[Term, str]] = {
    unit: {Term.ROW0: "row", Term.M: "rows", Term.STRIDE0: "row_stride", Term.STRIDE1: "block_stride"}
    for unit in (Unit.LOAD, Unit.STORE)
} | {
    Unit.MATRIX: {Term.ROW0: "a_row", Term.ROW1: "b_row", Term.ROW2: "c_row", Term.STRIDE0: "a_stride",
                  Term.STRIDE1: "b_stride", Term.STRIDE2: "c_stride"},
    Unit.VECTOR: {Term.ROW0: "src0", Term.ROW1: "src1", Term.ROW2: "dst", Term.STRIDE0: "src0_stride",
                  Term.STRIDE2: "dst_stride", Term.HALF_STRIDE0: "src0_stride/2", Term.HALF_STRIDE2: "dst_stride/2"},
    Unit.SELECT: {Term.ROW0: "src0", Term.ROW2: "dst", Term.STRIDE0: "src0_stride",
                  Term.HALF_STRIDE0: "src0_stride/2"},
}

_T = {name: i for i, name in enumerate(TABLE_FIELDS)}
(_ZERO, _ONE, _TWO, _TM, _TN, _TK, _ROW0, _ROW1, _ROW2, _STRIDE0, _STRIDE1, _STRIDE2, _HALF_STRIDE0, _HALF_STRIDE2,
 _AUX, _ROW_GROUPS, _COLUMN_GROUPS, _DEPTH_GROUPS, _HALF_N, _HALF_K, _BLOCKS, _ADDRESS, _BYTES, _DRAM_STRIDE,
 _INDEX_RANGE, _LIST, _SCALES_ROW, _SCALE_ROWS, _ANGLE_ROWS, _TABLE_ROWS, _LIST_ROWS, _FIRST, _KEPT, _NUMBER,
 _CONTEXT, _HALF_AUX) = map(int, Term)
_O_UNIT, _O_FLAGS, _O_M, _O_N, _O_K = OUT["unit"], OUT["flags"], OUT["m"], OUT["n"], OUT["k"]
_O_ADDRESS, _O_ROW0, _O_ROW1 = OUT["address"], OUT["row0"], OUT["row1"]
_F_BYTES, _F_STRIDE, _F_ROW_STRIDE, _F_BLOCK_STRIDE = _T["bytes"], _T["stride"], _T["row_stride"], _T["block_stride"]
_F_LAST_INDEX, _F_A_STRIDE, _F_B_STRIDE = _T["last_index"], _T["a_stride"], _T["b_stride"]
_F_C_STRIDE, _F_GROUP, _F_SRC0_STRIDE, _F_DST_STRIDE = _T["c_stride"], _T["group"], _T["src0_stride"], _T["dst_stride"]
_F_AUX, _F_PERIOD, _F_CONTEXT, _F_NUMBER = _T["aux"], _T["period"], _T["context"], _T["number"]
_STORE, _MATRIX_UNIT, _SELECT_UNIT = int(Unit.STORE), int(Unit.MATRIX), int(Unit.SELECT)
_WORDS, _INT8 = 1 << MoveFlag.ACCUMULATOR, 1 << MoveFlag.NARROW


def fill_terms(row, out, dim, terms):  # type: ignore[no-untyped-def]
    """Every :class:`Term` of one command into ``terms`` (int64): decoded ``row``, ``out`` with lengths and first rows.

    Terms that the unit does not have are 0. Plain integers throughout: the model compiles it.
    """
    terms[:] = 0
    terms[_ONE], terms[_TWO] = 1, 2
    m, n, k, unit = out[_O_M], out[_O_N], out[_O_K], out[_O_UNIT]
    terms[_TM], terms[_TN], terms[_TK] = m, n, k
    for i in range(3):
        terms[_ROW0 + i] = out[_O_ROW0 + i]
    if unit <= _STORE:
        size = row[_F_BYTES]
        width = 4 * dim if out[_O_FLAGS] & (_WORDS | _INT8) == _WORDS else dim  # DRAM holds int32
        terms[_BLOCKS] = (size + width - 1) // width
        terms[_STRIDE0], terms[_STRIDE1] = row[_F_ROW_STRIDE], row[_F_BLOCK_STRIDE]
        terms[_ADDRESS], terms[_BYTES], terms[_DRAM_STRIDE] = out[_O_ADDRESS], size, row[_F_STRIDE]
        terms[_LIST], terms[_INDEX_RANGE] = out[_O_ROW1], row[_F_LAST_INDEX] + 1
        return
    terms[_ROW_GROUPS] = (m + dim - 1) // dim
    terms[_COLUMN_GROUPS] = (n + dim - 1) // dim
    if unit == _MATRIX_UNIT:
        depth = (k + dim - 1) // dim
        terms[_DEPTH_GROUPS] = depth
        terms[_HALF_N], terms[_HALF_K] = (n + 1) // 2, (k + 1) // 2
        terms[_STRIDE0], terms[_STRIDE1], terms[_STRIDE2] = row[_F_A_STRIDE], row[_F_B_STRIDE], row[_F_C_STRIDE]
        terms[_SCALES_ROW] = terms[_ROW1] + depth * (dim // 2)
        terms[_SCALE_ROWS] = ((depth - 1) >> row[_F_GROUP]) + 1
        return
    terms[_STRIDE0], terms[_HALF_STRIDE0] = row[_F_SRC0_STRIDE], row[_F_SRC0_STRIDE] // 2
    if unit == _SELECT_UNIT:
        half = dim // 2
        terms[_LIST_ROWS] = (n + half - 1) // half
        terms[_FIRST], terms[_KEPT], terms[_NUMBER] = out[_O_ROW1], min(n, k), row[_F_NUMBER]
        return
    terms[_STRIDE2], terms[_HALF_STRIDE2] = row[_F_DST_STRIDE], row[_F_DST_STRIDE] // 2
    terms[_AUX], terms[_HALF_AUX], terms[_CONTEXT] = row[_F_AUX], row[_F_AUX] // 2, row[_F_CONTEXT]
    terms[_ANGLE_ROWS] = m << (row[_F_PERIOD] + 2)
    terms[_TABLE_ROWS] = m * terms[_COLUMN_GROUPS]
