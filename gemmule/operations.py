"""Units, their operations and flags, and which flags go together."""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum

__all__ = ["COMPARISON_OPS", "EXPONENTIALS", "MatrixFlag", "MoveFlag", "SOp", "SelectFlag", "Unit", "VOp", "VectorFlag",
           "flag_name", "is_comparison", "legal_flags"]


class Unit(IntEnum):
    """The five in-order units; the value is also the index of the unit's wait field."""

    LOAD = 0
    STORE = 1
    MATRIX = 2
    VECTOR = 3
    SELECT = 4


class VOp(IntEnum):
    """Operations of the vector unit (header field ``op``); other units have op 0."""

    REQUANT = 0
    PRODUCT = 1
    ROPE = 2
    NORM_STAT = 3
    NORM_APPLY = 4
    SOFTMAX_MAX = 5
    SOFTMAX_EXP = 6
    TABLE = 7
    ADD = 8
    SOFTMAX_NORM = 9
    ABSMAX = 10
    WORD_TABLE = 11
    RESCALE = 12
    I_GELU = 13


COMPARISON_OPS = (VOp.I_GELU,)
"""Operations that only a device with ``comparison_modes`` has."""
EXPONENTIALS = ("table", "i_exp", "softermax")
"""How SOFTMAX_EXP and SOFTMAX_NORM make their exponentials, by ``period``; from 1 on they are comparison modes."""


class SOp(IntEnum):
    """Operations of the select unit."""

    ARGMAX = 0
    KEYS = 1
    TOP_K = 2
    IMPORTANCE = 3
    COMMIT = 4
    COMPARE = 5
    LIST_LOAD = 6
    LIST_STORE = 7


class SelectFlag(IntEnum):
    """Bits of the header field ``flags`` for the select unit; bit 0 depends on the operation."""

    CONTINUE = 0  # argmax: go on from the row's running maximum
    FROM_IMPORTANCE = 0  # keys: from the committed importance, not from the scratchpad
    DISCARD = 0  # commit: drop the shadow instead of adding it
    INVERT = 0  # compare: the predicate is maximum < threshold
    WIDE = 1  # importance, compare: 16-bit planes, not bytes
    CLEAR = 2  # commit: the committed importance becomes 0 too


class MoveFlag(IntEnum):
    """Bits of the header field ``flags`` for the load and store units."""

    ACCUMULATOR = 0  # row counts accumulator rows; DRAM holds int32
    NARROW = 1  # DRAM holds int8: sign-extended by a load, saturated by a store (with ACCUMULATOR)
    ADD = 2  # load: add to the accumulator (wraps)
    ZERO = 3  # load: write zeros, read nothing
    BROADCAST = 4  # load: read one DRAM row, write it to every row
    INDEXED = 5  # DRAM row r is number min(LIST[list + r], last_index) instead of r: gather, scatter


class MatrixFlag(IntEnum):
    """Bits of the header field ``flags`` for the matrix unit."""

    A_UNSIGNED = 0
    B_TRANSPOSED = 1
    ACCUMULATE = 2
    OUTPUT_STATIONARY = 3  # sums stay in the mesh while K streams through; else weights stay
    A_TRANSPOSED = 4
    B_INT4 = 5  # a scratchpad row holds two rows of B: the even one in the low nibbles
    GROUP_SCALES = 6  # int4 weights times a small integer per column and group of K tiles
    REUSE = 7  # the weights of the last weight-stationary command, which stand in the mesh


class VectorFlag(IntEnum):
    """Bits of the header field ``flags`` for the vector unit; bit 6 depends on the operation."""

    COLUMN = 0  # multiplier and shift per column, from scratchpad rows at src1
    ROW = 1  # multiply by the row's softmax reciprocal (statistics context)
    WIDE = 2  # int16 result in two planes
    RESIDUAL = 3  # add the int16 row that stands at dst (implies WIDE)
    RELU = 4
    LOOKUP = 5  # pass the int8 result through the byte table
    TREE = 0  # softmax: among the last m columns row i sees those of its bitmap, row src1 + i
    MEAN = 0  # norm: subtract the row's mean (LayerNorm)
    ROUND = 1  # norm statistic with MEAN: the mean is a rounded integer, as I-BERT's (comparison mode)
    CONTINUE = 1  # softmax max, exp: go on from the context's maximum, sum
    MORE = 3  # softmax exp: more columns follow, no reciprocal yet
    ONLINE = 5  # softmax max: whole octaves, the rise goes to the context; exp: the context's sum is shifted by it
    CAUSAL = 6  # softmax: row i of m sees columns 0 .. n - m + i
    CLAMP = 6  # requant to int8: limit to aux low byte .. aux high byte (both signed)
    RESCALE = 6  # requant with RESIDUAL: residual times aux, shifted by shift2
    BIAS = 7  # int32 per column, added to the accumulator's value, from rows at src1


def _bits(*flags: int) -> int:
    return sum(1 << flag for flag in set(flags))


_OPERATIONS: dict[int, int] = {
    Unit.LOAD: 1, Unit.STORE: 1, Unit.MATRIX: 1, Unit.VECTOR: len(VOp), Unit.SELECT: len(SOp)}
_V = VectorFlag
_FLAGS: dict[tuple[Unit, int], int] = {
    (Unit.LOAD, 0): _bits(*MoveFlag),
    (Unit.STORE, 0): _bits(MoveFlag.ACCUMULATOR, MoveFlag.NARROW, MoveFlag.INDEXED),
    (Unit.MATRIX, 0): _bits(*MatrixFlag),
    (Unit.VECTOR, VOp.REQUANT): _bits(*_V),
    (Unit.VECTOR, VOp.ROPE): _bits(_V.COLUMN, _V.BIAS),
    (Unit.VECTOR, VOp.NORM_STAT): _bits(_V.MEAN, _V.ROUND),
    (Unit.VECTOR, VOp.NORM_APPLY): _bits(_V.MEAN, _V.BIAS, _V.WIDE),
    (Unit.VECTOR, VOp.SOFTMAX_MAX): _bits(_V.CAUSAL, _V.TREE, _V.CONTINUE, _V.ONLINE),
    (Unit.VECTOR, VOp.SOFTMAX_EXP): _bits(
        _V.CAUSAL, _V.TREE, _V.CONTINUE, _V.MORE, _V.WIDE, _V.ONLINE),
    (Unit.VECTOR, VOp.SOFTMAX_NORM): _bits(_V.CAUSAL, _V.TREE, _V.WIDE),
    (Unit.SELECT, SOp.ARGMAX): _bits(SelectFlag.CONTINUE),
    (Unit.SELECT, SOp.KEYS): _bits(SelectFlag.FROM_IMPORTANCE),
    (Unit.SELECT, SOp.IMPORTANCE): _bits(SelectFlag.WIDE),
    (Unit.SELECT, SOp.COMMIT): _bits(SelectFlag.DISCARD, SelectFlag.CLEAR),
    (Unit.SELECT, SOp.COMPARE): _bits(SelectFlag.INVERT, SelectFlag.WIDE),
    (Unit.VECTOR, VOp.ADD): _bits(_V.WIDE, _V.RELU, _V.LOOKUP),
    (Unit.VECTOR, VOp.I_GELU): _bits(_V.COLUMN, _V.BIAS),
}
# Pairs that exclude each other, and flags that need another one: (unit, bit, other bit).
_EXCLUDED: tuple[tuple[Unit, int, int], ...] = (
    (Unit.LOAD, MoveFlag.ZERO, MoveFlag.ADD), (Unit.LOAD, MoveFlag.ZERO, MoveFlag.BROADCAST),
    (Unit.LOAD, MoveFlag.ZERO, MoveFlag.INDEXED), (Unit.LOAD, MoveFlag.BROADCAST, MoveFlag.INDEXED),
    *((Unit.MATRIX, MatrixFlag.OUTPUT_STATIONARY, other)
      for other in (MatrixFlag.B_INT4, MatrixFlag.GROUP_SCALES, MatrixFlag.REUSE)),
    *((Unit.MATRIX, MatrixFlag.REUSE, other) for other in (
        MatrixFlag.B_TRANSPOSED, MatrixFlag.A_TRANSPOSED, MatrixFlag.B_INT4, MatrixFlag.GROUP_SCALES)),
    (Unit.MATRIX, MatrixFlag.GROUP_SCALES, MatrixFlag.B_TRANSPOSED),
)
_SOFTMAX = (VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM)
_NEEDED: tuple[tuple[Unit, int, int], ...] = (
    (Unit.LOAD, MoveFlag.NARROW, MoveFlag.ACCUMULATOR), (Unit.LOAD, MoveFlag.ADD, MoveFlag.ACCUMULATOR),
    (Unit.STORE, MoveFlag.NARROW, MoveFlag.ACCUMULATOR),
    (Unit.MATRIX, MatrixFlag.GROUP_SCALES, MatrixFlag.B_INT4),
)


def legal_flags(unit: int, op: int, flags: int) -> bool:
    """Whether the unit has the operation, and that knows every flag that is set, in this combination."""
    if op >= _OPERATIONS[unit]:
        return False
    if flags & ~_FLAGS.get((Unit(unit), op), 0):
        return False
    for where, bit, other in _EXCLUDED:
        if unit == where and flags >> bit & 1 and flags >> other & 1:
            return False
    for where, bit, other in _NEEDED:
        if unit == where and flags >> bit & 1 and not flags >> other & 1:
            return False
    if unit == Unit.VECTOR and op in _SOFTMAX and flags >> _V.CAUSAL & 1 and flags >> _V.TREE & 1:
        return False
    if unit == Unit.VECTOR and op == VOp.NORM_STAT and flags >> _V.ROUND & 1 and not flags >> _V.MEAN & 1:
        return False
    # A clamp is for int8 results; with RESIDUAL the same bit means RESCALE.
    clamp, wide = flags >> _V.CLAMP & 1, flags >> _V.WIDE & 1
    return not (unit == Unit.VECTOR and op == VOp.REQUANT and clamp and wide
                and not flags >> _V.RESIDUAL & 1)


def is_comparison(op: int, flags: int) -> bool:
    """Whether a vector command needs a device with ``comparison_modes``, whatever its ``period``."""
    return op in COMPARISON_OPS or (op == VOp.NORM_STAT and bool(flags >> _V.ROUND & 1))


_FLAG_NAMES: dict[int, dict[int, str]] = {
    unit: {flag.value: flag.name.lower() for flag in flags}
    for unit, flags in ((Unit.LOAD, MoveFlag), (Unit.STORE, MoveFlag), (Unit.MATRIX, MatrixFlag),
                        (Unit.VECTOR, VectorFlag), (Unit.SELECT, SelectFlag))
}
# Bits whose name depends on the operation: (unit, operation) -> bit -> name.
_OTHER_NAMES: dict[tuple[int, int], dict[int, str]] = {
    **{(Unit.VECTOR, op): {VectorFlag.TREE: "tree", VectorFlag.CONTINUE: "continue", VectorFlag.MORE: "more",
                             VectorFlag.ONLINE: "online"}
       for op in _SOFTMAX},
    **{(Unit.VECTOR, op): {VectorFlag.MEAN: "mean", VectorFlag.ROUND: "round"}
       for op in (VOp.NORM_STAT, VOp.NORM_APPLY)},
    (Unit.SELECT, SOp.KEYS): {SelectFlag.FROM_IMPORTANCE: "from_importance"},
    (Unit.SELECT, SOp.COMMIT): {SelectFlag.DISCARD: "discard"},
    (Unit.SELECT, SOp.COMPARE): {SelectFlag.INVERT: "invert"},
}


def flag_name(unit: int, op: int, flags: Collection[int], bit: int) -> str:
    """Name of a flag bit in listings."""
    if unit == Unit.VECTOR and bit == VectorFlag.CLAMP and op == VOp.REQUANT:
        return "rescale" if VectorFlag.RESIDUAL in flags else "clamp"
    other = _OTHER_NAMES.get((unit, op), {})
    return other.get(bit, _FLAG_NAMES.get(unit, {}).get(bit, f"flag{bit}"))
