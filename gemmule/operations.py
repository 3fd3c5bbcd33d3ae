"""Units, their operations, and the flags of each operation with their legal combinations.

A flag is a bit of the header field ``flags``. The same bit means different things to different operations, so
each group of operations has its own enumeration. :data:`OPERATIONS` states which flags an operation knows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any

__all__ = [
    "CONTROL", "EXCLUSIVE_LOADS", "EXPONENTIALS", "FEATURES", "ISSUE_PRIORITY", "OPERATIONS", "SOFTMAX_OPS",
    "AddFlag", "ArgmaxFlag", "COp", "ColumnFlag", "CommitFlag", "CompareFlag", "FrontEnd", "ImportanceFlag", "KeysFlag",
    "ListFlag", "MatrixFlag", "MoveFlag", "NormFlag", "Operation", "ProductFlag", "RequantFlag", "SOp", "SoftmaxFlag",
    "Source", "Target", "TopKFlag", "Unit", "VOp", "field_name", "flag_name", "legal_flags", "needs",
]


class Unit(IntEnum):
    """The five in-order units; the value is also the index of the unit's wait field."""

    LOAD = 0
    STORE = 1
    MATRIX = 2
    VECTOR = 3
    SELECT = 4

    @property
    def label(self) -> str:
        """The unit's name as listings, reports and ports write it."""
        return self.name.lower()


class FrontEnd(IntEnum):
    """Value of the unit field of control commands. They go to no unit and act where registers are read."""

    CONTROL = 5

    @property
    def label(self) -> str:
        """The name, as listings write it."""
        return self.name.lower()


CONTROL = FrontEnd.CONTROL


class COp(IntEnum):
    """Control commands."""

    SET = 0
    PARAMS = 1
    REPEAT = 2


class Target(IntEnum):
    """What SET writes."""

    LENGTH = 0
    DISPLACEMENT = 1


class Source(IntEnum):
    """What SET starts from."""

    ZERO = 0
    LENGTH = 1
    DISPLACEMENT = 2
    WORD = 3  # a parameter, signed
    HALF = 4  # the low (even index) or high half of a parameter, unsigned


ISSUE_PRIORITY = (Unit.MATRIX, Unit.VECTOR, Unit.SELECT, Unit.LOAD, Unit.STORE)
"""Order in which units issue when several heads could issue in one cycle."""


class VOp(IntEnum):
    """Operations of the vector unit (header field ``op``); load, store and matrix have op 0."""

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


FEATURES = ("comparison_modes", "wide_indices", "output_stationary", "transposition", "int4")
"""What a device may lack, see :attr:`gemmule.config.Config.features`."""
SOFTMAX_OPS = (VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM)
EXPONENTIALS = ("table", "i_exp", "softermax")
"""Exponentials of SOFTMAX_EXP and SOFTMAX_NORM, by ``period``; those from 1 on are comparison modes."""


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
    PACK = 8


class MoveFlag(IntEnum):
    """Load and store."""

    ACCUMULATOR = 0  # row counts accumulator rows; DRAM holds int32
    NARROW = 1  # DRAM holds int8: sign-extended by a load, saturated by a store (with ACCUMULATOR)
    ADD = 2  # load: add to the accumulator (wraps)
    ZERO = 3  # load: write zeros, read nothing
    BROADCAST = 4  # load: read one DRAM row, write it to every row
    INDEXED = 5  # DRAM row r is number min(LIST[list + r], last_index) instead of r: gather, scatter


EXCLUSIVE_LOADS = 1 << MoveFlag.ZERO | 1 << MoveFlag.BROADCAST
"""Flags of loads that run alone: they write more rows than they read, and no other load issues while they run."""


class MatrixFlag(IntEnum):
    """The matrix product."""

    A_UNSIGNED = 0
    B_TRANSPOSED = 1
    ACCUMULATE = 2
    OUTPUT_STATIONARY = 3  # sums stay in the mesh while K streams through; without it, weights stay
    A_TRANSPOSED = 4
    B_INT4 = 5  # a scratchpad row holds two rows of B: the even one in the low nibbles
    GROUP_SCALES = 6  # int4 weights times a small integer per column and group of K tiles
    REUSE = 7  # use the weights of the last weight-stationary command, which are still in the mesh


class RequantFlag(IntEnum):
    """REQUANT. Bit 6 is RESCALE with RESIDUAL and CLAMP without."""

    COLUMN = 0  # multiplier and shift per column, from scratchpad rows at src1
    ROW = 1  # multiply by the row's softmax reciprocal (statistics context)
    WIDE = 2  # int16 result in two planes
    RESIDUAL = 3  # add the int16 row stored at dst (implies WIDE)
    RELU = 4
    LOOKUP = 5  # pass the int8 result through the byte table
    CLAMP = 6  # int8 result: limit to aux low byte .. aux high byte (both signed)
    RESCALE = 6  # residual times aux, shifted by shift2
    BIAS = 7  # int32 per column, added to the accumulator's value, from rows at src1


class ColumnFlag(IntEnum):
    """ROPE and I_GELU."""

    COLUMN = 0  # multiplier and shift per column, from scratchpad rows at src1
    BIAS = 7  # int32 per column, added to the accumulator's value, from rows at src1


class ProductFlag(IntEnum):
    """PRODUCT."""

    WIDE = 2  # operands and result are int16 in two planes


class AddFlag(IntEnum):
    """ADD."""

    WIDE = 2  # int16 result in two planes
    RELU = 4
    LOOKUP = 5  # pass the int8 result through the byte table


class NormFlag(IntEnum):
    """NORM_STAT and NORM_APPLY."""

    MEAN = 0  # subtract the row's mean (LayerNorm)
    ROUND = 1  # NORM_STAT with MEAN: the mean is rounded to an integer, as in I-BERT (comparison mode)
    WIDE = 2  # apply: int16 result in two planes
    BIAS = 7  # apply: int32 per column (beta), from rows at src1


class SoftmaxFlag(IntEnum):
    """SOFTMAX_MAX, SOFTMAX_EXP and SOFTMAX_NORM."""

    TREE = 0  # of the last m columns, row i sees those set in its bitmap, row src1 + i
    CONTINUE = 1  # max: continue from the context's maximum; exp: continue from its sum
    WIDE = 2  # exp, norm: 16-bit probabilities in two planes
    MORE = 3  # exp: more columns follow, no reciprocal yet
    ONLINE = 5  # max: in whole octaves, store the rise in the context; exp: shift the context's sum by the rise
    CAUSAL = 6  # row i of m sees columns 0 .. n - m + i


class ArgmaxFlag(IntEnum):
    """ARGMAX."""

    CONTINUE = 0  # continue from the row's running maximum


class KeysFlag(IntEnum):
    """KEYS."""

    FROM_IMPORTANCE = 0  # from the committed importance, not from the scratchpad
    KEEP_IDS = 1  # the ids that these keys had stay


class TopKFlag(IntEnum):
    """TOP_K."""

    NONZERO = 0  # every key is listed: first those that are not 0, then the others; the keys stay as they are
    KEEP = 1  # the keys and their ids stay as they are


class ImportanceFlag(IntEnum):
    """IMPORTANCE."""

    WIDE = 1  # 16-bit planes, not bytes


class ListFlag(IntEnum):
    """LIST_LOAD and LIST_STORE."""

    HIGH = 0  # bits 17:16 of the entries; a load leaves their lower bits unchanged


class CommitFlag(IntEnum):
    """COMMIT."""

    DISCARD = 0  # drop the shadow instead of adding it
    FROM_KEYS = 1  # the keys of the same numbers become the committed importance
    CLEAR = 2  # also set the committed importance to 0


class CompareFlag(IntEnum):
    """COMPARE."""

    INVERT = 0  # the predicate is maximum < threshold
    WIDE = 1  # 16-bit planes, not bytes


Pairs = tuple[tuple[IntEnum, IntEnum], ...]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """The name of an operation and the flags that it takes."""

    unit: Unit
    number: int = 0
    name: str = ""
    flags: tuple[IntEnum, ...] = ()
    """Every flag that the operation knows."""
    excluded: Pairs = ()
    """Pairs of flags that exclude each other."""
    needed: Pairs = ()
    """Pairs of flags; the first needs the second."""
    feature: str = ""
    """Of :data:`FEATURES`, the one that a device must have for the operation."""
    features: Mapping[IntEnum, str] = field(default_factory=dict)
    """The same of its flags."""

    @property
    def label(self) -> str:
        """``load``, ``vector.rope``."""
        return f"{self.unit.label}.{self.name}" if self.name else self.unit.label

    @cached_property
    def known(self) -> int:
        """The bits of all flags."""
        return _bits(*self.flags)

    def needs(self, flags: int) -> frozenset[str]:
        """Features that a device must have for the operation with these flags."""
        return frozenset({self.feature} - {""} | {name for flag, name in self.features.items() if flags >> flag & 1})

    def legal(self, flags: int) -> bool:
        """Whether the operation allows these flags in this combination."""
        if flags & ~self.known:
            return False
        if any(flags >> a & 1 and flags >> b & 1 for a, b in self.excluded):
            return False
        if any(flags >> a & 1 and not flags >> b & 1 for a, b in self.needed):
            return False
        # A clamp is for int8 results; with RESIDUAL the same bit means RESCALE.
        clamp = RequantFlag.CLAMP in self.flags and isinstance(self.flags[0], RequantFlag)
        wide, residual = flags >> RequantFlag.WIDE & 1, flags >> RequantFlag.RESIDUAL & 1
        return not (clamp and flags >> RequantFlag.CLAMP & 1 and wide and not residual)


def _bits(*flags: int) -> int:
    return sum(1 << flag for flag in set(flags))


def _vector(op: VOp, *flags: IntEnum, **more: Any) -> Operation:
    return Operation(unit=Unit.VECTOR, number=op, name=op.name.lower(), flags=flags, **more)


def _select(op: SOp, *flags: IntEnum, **more: Any) -> Operation:
    return Operation(unit=Unit.SELECT, number=op, name=op.name.lower(), flags=flags, **more)


_M, _X, _N, _S = MoveFlag, MatrixFlag, NormFlag, SoftmaxFlag
_MASKS: Pairs = ((_S.CAUSAL, _S.TREE),)
_EVERY = (
    Operation(unit=Unit.LOAD, flags=tuple(_M),
              excluded=((_M.ZERO, _M.ADD), (_M.ZERO, _M.BROADCAST), (_M.ZERO, _M.INDEXED), (_M.BROADCAST, _M.INDEXED)),
              needed=((_M.NARROW, _M.ACCUMULATOR), (_M.ADD, _M.ACCUMULATOR))),
    Operation(unit=Unit.STORE, flags=(_M.ACCUMULATOR, _M.NARROW, _M.INDEXED), needed=((_M.NARROW, _M.ACCUMULATOR),)),
    Operation(unit=Unit.MATRIX, flags=tuple(_X),
              excluded=(*((_X.OUTPUT_STATIONARY, other) for other in (_X.B_INT4, _X.GROUP_SCALES, _X.REUSE)),
                        *((_X.REUSE, other) for other in (
                            _X.B_TRANSPOSED, _X.A_TRANSPOSED, _X.B_INT4, _X.GROUP_SCALES)),
                        (_X.GROUP_SCALES, _X.B_TRANSPOSED)),
              needed=((_X.GROUP_SCALES, _X.B_INT4),),
              features={_X.OUTPUT_STATIONARY: "output_stationary", _X.A_TRANSPOSED: "transposition",
                        _X.B_TRANSPOSED: "transposition", _X.B_INT4: "int4"}),
    _vector(VOp.REQUANT, *RequantFlag),
    _vector(VOp.PRODUCT, *ProductFlag),
    _vector(VOp.ROPE, *ColumnFlag),
    _vector(VOp.NORM_STAT, _N.MEAN, _N.ROUND, needed=((_N.ROUND, _N.MEAN),),
            features={_N.ROUND: "comparison_modes"}),
    _vector(VOp.NORM_APPLY, _N.MEAN, _N.WIDE, _N.BIAS),
    _vector(VOp.SOFTMAX_MAX, _S.TREE, _S.CONTINUE, _S.ONLINE, _S.CAUSAL, excluded=_MASKS),
    _vector(VOp.SOFTMAX_EXP, _S.TREE, _S.CONTINUE, _S.WIDE, _S.MORE, _S.ONLINE, _S.CAUSAL, excluded=_MASKS),
    _vector(VOp.TABLE),
    _vector(VOp.ADD, *AddFlag),
    _vector(VOp.SOFTMAX_NORM, _S.TREE, _S.WIDE, _S.CAUSAL, excluded=_MASKS),
    _vector(VOp.ABSMAX),
    _vector(VOp.WORD_TABLE),
    _vector(VOp.RESCALE),
    _vector(VOp.I_GELU, *ColumnFlag, feature="comparison_modes"),
    _select(SOp.ARGMAX, *ArgmaxFlag),
    _select(SOp.KEYS, *KeysFlag),
    _select(SOp.TOP_K, *TopKFlag, excluded=((TopKFlag.NONZERO, TopKFlag.KEEP),)),
    _select(SOp.IMPORTANCE, *ImportanceFlag),
    _select(SOp.COMMIT, *CommitFlag, excluded=(
        (CommitFlag.FROM_KEYS, CommitFlag.DISCARD), (CommitFlag.FROM_KEYS, CommitFlag.CLEAR))),
    _select(SOp.COMPARE, *CompareFlag),
    _select(SOp.LIST_LOAD, *ListFlag, features={ListFlag.HIGH: "wide_indices"}),
    _select(SOp.LIST_STORE, *ListFlag, features={ListFlag.HIGH: "wide_indices"}),
    _select(SOp.PACK),
)
OPERATIONS: dict[tuple[int, int], Operation] = {(op.unit, op.number): op for op in _EVERY}
"""Every operation by (unit, number)."""


def legal_flags(unit: int, op: int, flags: int) -> bool:
    """Whether the unit has the operation, and the operation allows these flags in this combination."""
    return (unit, op) in OPERATIONS and OPERATIONS[unit, op].legal(flags)


def needs(unit: int, op: int, flags: int) -> frozenset[str]:
    """Of :data:`FEATURES`, those that a device must have for a command, by its header alone."""
    return OPERATIONS[unit, op].needs(flags) if (unit, op) in OPERATIONS else frozenset()


_FIELD_NAMES: dict[tuple[int, int], dict[str, str]] = {
    (Unit.VECTOR, VOp.REQUANT): {"aux": "limits"}, (Unit.VECTOR, VOp.PRODUCT): {"aux": "src1_stride"},
    (Unit.VECTOR, VOp.ROPE): {"aux": "angles"}, (Unit.VECTOR, VOp.ADD): {"aux": "mult1"},
    **{(Unit.VECTOR, op): {"aux": "behind", "period": "exponential"} for op in SOFTMAX_OPS},
    (Unit.SELECT, SOp.KEYS): {"aux": "sure"}, (Unit.SELECT, SOp.COMPARE): {"aux": "threshold"},
}
"""Names of fields whose meaning depends on the operation."""


def field_name(unit: int, op: int, flags: Collection[int], field: str) -> str:
    """Name of a body field in listings; ``aux`` and ``period`` are named after their use by the operation."""
    if (unit, op, field) == (Unit.VECTOR, VOp.REQUANT, "aux") and RequantFlag.RESIDUAL in flags:
        return "residual_mult"
    return _FIELD_NAMES.get((unit, op), {}).get(field, field)


def flag_name(unit: int, op: int, flags: Collection[int], bit: int) -> str:
    """Name of a flag bit in listings."""
    if (unit, op, bit) == (Unit.VECTOR, VOp.REQUANT, RequantFlag.RESCALE) and RequantFlag.RESIDUAL in flags:
        return "rescale"
    known = OPERATIONS[unit, op].flags if (unit, op) in OPERATIONS else ()
    return next((flag.name.lower() for flag in known if flag == bit), f"flag{bit}")
