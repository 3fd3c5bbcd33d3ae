"""Which rows, bytes and entries every operation touches: one table of operations and operands.

An operand is a block of runs in one memory: ``run`` consecutive rows, repeated ``count`` times ``stride`` rows apart,
all of it again ``planes`` times ``plane_stride`` rows apart. Its numbers are :class:`Term` s, values that
:func:`fill_terms` computes from a command's fields, resolved lengths and rows. :data:`OPERANDS` has the operands of
each operation with the flags on which they depend; :data:`CLASSES` is the same as integers, for compiled code.

From here come resolving (rows out of range, ports to claim), the access lists and the verifier, the footprints by
which the compiler places waits, what the fuzzer draws, and the tables of ``docs/isa.md``. The RTL states rows and
ports again, by hand (``hw/command/hulls.py``, ``entries.py``), and is tested against this table: what is derived
from one source cannot contradict it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, partial

import numpy as np

from .isa import TABLE_FIELDS, Dyn
from .operations import (
    OPERATIONS,
    AddFlag,
    ArgmaxFlag,
    ColumnFlag,
    CommitFlag,
    CompareFlag,
    ImportanceFlag,
    KeysFlag,
    MatrixFlag,
    MoveFlag,
    NormFlag,
    RequantFlag,
    SoftmaxFlag,
    SOp,
    Unit,
    VOp,
)

__all__ = [
    "BIAS_ROWS", "CLASSES", "CLASS_OF", "COLUMN_ROWS", "DYNAMIC", "FIELD_TEXT", "GAMMA_ROWS", "OPERANDS", "OUT",
    "OUT_FIELDS", "STREAMS", "STREAM_UNIT", "TERM_TEXT", "Class", "Memory", "Operand", "Term", "fill_terms",
    "operands_of", "parameter_rows",
]

STREAMS = ("load.w", "store.r", "matrix.A", "matrix.B", "matrix.C", "vector.r0", "vector.r1", "vector.w",
           "select.r", "select.w")
"""What claims memory ports; a unit's streams stand together, in the order of ``claim0`` .. ``claim2``."""
STREAM_UNIT = (0, 1, 2, 2, 2, 3, 3, 3, 4, 4)

OUT_FIELDS = (
    "fault", "unit", "op", "flags", "zero", "m", "n", "k", "address", "row0", "row1", "row2",
    "claim0", "claim1", "claim2", "apart", "after",
)
"""Columns of a resolved command. m, n, k: lengths (load and store: m = rows). row0, row1, row2: first rows
(load, store: row; matrix: a, b, c; vector: src0, src1, dst; select: src0, -, dst). claim0..2: ports of the unit's
streams. apart: two operands share a bank, so their reads must not overlap (matrix: A and B; vector PRODUCT and ADD:
src0 and src1). after: columns of a softmax row behind this piece."""
OUT = {name: i for i, name in enumerate(OUT_FIELDS)}


class Memory(IntEnum):
    """What an operand lies in. From ``KEYS`` on a unit's own: its commands, in order, are all who touch it."""

    SPM = 0
    ACC = 1
    DRAM = 2
    LIST = 3
    PREDICATE = 4
    KEYS = 5
    COMMITTED = 6
    SHADOW = 7
    RUNNING = 8
    STATISTICS = 9
    BYTE_TABLE = 10
    WORD_TABLE = 11
    WEIGHTS = 12

    @property
    def label(self) -> str:
        """What its places are called in messages and pages."""
        return _LABELS[self]

    @property
    def private(self) -> bool:
        return self >= Memory.KEYS


_LABELS = ("scratchpad rows", "accumulator rows", "DRAM bytes", "list entries", "predicates", "keys",
           "committed importance", "shadow importance", "running maxima", "statistics contexts", "byte table",
           "word table", "weights in the mesh")


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
    LIST_ROWS = 30  # ceil(n / (DIM / 2)): entries have 16 bits
    FIRST = 31
    KEPT = 32  # min(n, k)
    NUMBER = 33
    CONTEXT = 34


TERM_TEXT = {
    Term.ZERO: "0", Term.ONE: "1", Term.TWO: "2", Term.M: "m", Term.N: "n", Term.K: "k", Term.AUX: "aux",
    Term.ROW_GROUPS: "⌈m/DIM⌉", Term.COLUMN_GROUPS: "⌈n/DIM⌉", Term.DEPTH_GROUPS: "⌈k/DIM⌉", Term.HALF_N: "⌈n/2⌉",
    Term.HALF_K: "⌈k/2⌉", Term.BLOCKS: "blocks", Term.ADDRESS: "address", Term.BYTES: "bytes",
    Term.DRAM_STRIDE: "stride", Term.INDEX_RANGE: "last_index + 1", Term.LIST: "list",
    Term.SCALES_ROW: "b_row + ⌈k/DIM⌉·DIM/2", Term.SCALE_ROWS: "⌈⌈k/DIM⌉ / 2^group⌉", Term.ANGLE_ROWS: "m·4·2^period",
    Term.TABLE_ROWS: "whole table", Term.LIST_ROWS: "⌈2n/DIM⌉", Term.FIRST: "first", Term.KEPT: "min(n, k)",
    Term.NUMBER: "number", Term.CONTEXT: "context",
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


DYNAMIC: dict[Unit, dict[Dyn, tuple[Term, ...]]] = {
    Unit.LOAD: {Dyn.DST: (Term.ROW0,)}, Unit.STORE: {Dyn.SRC0: (Term.ROW0,)},
    Unit.MATRIX: {Dyn.SRC0: (Term.ROW0,), Dyn.SRC1: (Term.ROW1, Term.SCALES_ROW)},
    Unit.VECTOR: {Dyn.SRC0: (Term.ROW0,), Dyn.SRC1: (Term.ROW1,), Dyn.DST: (Term.ROW2,)},
    Unit.SELECT: {Dyn.SRC0: (Term.ROW0,), Dyn.DST: (Term.ROW2,)},
}
"""First rows that ``dyn_which`` makes dynamic."""


@dataclass(frozen=True, kw_only=True)
class Operand:
    """One operand of an operation, under the flags ``when`` and without those of ``unless``."""

    name: str
    memory: Memory
    write: bool = False
    stream: str = ""
    """The claim stream through which it is accessed; empty for what is not banked."""
    both_ports: bool = False
    """The stream claims read and write port of the banks, whichever of them is used."""
    in_place: bool = False
    """A result may take the operand's very place: each row is read before it is written."""
    first: Term = Term.ZERO
    run: Term = Term.ONE
    times: int = 1
    """The run is so many times its term."""
    count: Term = Term.ONE
    stride: Term = Term.ZERO
    planes: Term = Term.ONE
    plane_stride: Term = Term.ZERO
    when: tuple[IntEnum, ...] = ()
    unless: tuple[IntEnum, ...] = ()

    def applies(self, flags: int) -> bool:
        return (all(flags >> flag & 1 for flag in self.when)
                and not any(flags >> flag & 1 for flag in self.unless))


def _plain(name: str, memory: Memory, first: Term = Term.ZERO, run: Term = Term.ONE, *, write: bool = False,
           when: tuple[IntEnum, ...] = (), unless: tuple[IntEnum, ...] = ()) -> Operand:
    """A run of a memory without banks."""
    return Operand(name=name, memory=memory, write=write, first=first, run=run, when=when, unless=unless)


def _update(name: str, memory: Memory, first: Term, run: Term, *, when: tuple[IntEnum, ...] = (),
            unless: tuple[IntEnum, ...] = ()) -> tuple[Operand, Operand]:
    """A run that is read and written again."""
    return (_plain(name, memory, first, run, when=when, unless=unless),
            _plain(name, memory, first, run, write=True, when=when, unless=unless))


T, _F, _X = Term, MoveFlag, MatrixFlag
_R, _C, _A, _N, _S = RequantFlag, ColumnFlag, AddFlag, NormFlag, SoftmaxFlag
COLUMN_ROWS, BIAS_ROWS, GAMMA_ROWS = 3, 4, 2
"""Parameter rows of a column group: multiplier (low, high) and shift; int32 bias; int16 gamma."""


def _move(load: bool) -> tuple[Operand, ...]:
    line = partial(Operand, stream="load.w" if load else "store.r", first=T.ROW0, count=T.M, stride=T.STRIDE0,
                   planes=T.BLOCKS, plane_stride=T.STRIDE1)
    dram = partial(Operand, name="memory", memory=Memory.DRAM, write=not load, first=T.ADDRESS, run=T.BYTES,
                   stride=T.DRAM_STRIDE)
    return (
        line(name="rows", memory=Memory.SPM, write=load, unless=(_F.ACCUMULATOR,)),
        line(name="rows", memory=Memory.ACC, write=load, when=(_F.ACCUMULATOR,)),
        *([line(name="sums", memory=Memory.ACC, in_place=True, when=(_F.ADD,))] if load else []),
        _plain("list", Memory.LIST, T.LIST, T.M, when=(_F.INDEXED,)),
        dram(count=T.M, unless=(_F.ZERO, _F.BROADCAST, _F.INDEXED)),
        dram(count=T.ONE, when=(_F.BROADCAST,)),
        dram(count=T.INDEX_RANGE, when=(_F.INDEXED,)),
    )


def _b(run: Term, count: Term, when: tuple[IntEnum, ...], unless: tuple[IntEnum, ...]) -> Operand:
    return Operand(name="B", memory=Memory.SPM, stream="matrix.B", first=T.ROW1, run=run, count=count,
                   stride=T.STRIDE1, when=when, unless=(_X.REUSE, *unless))


_c = partial(Operand, memory=Memory.ACC, stream="matrix.C", first=T.ROW2, run=T.M, count=T.COLUMN_GROUPS,
             stride=T.STRIDE2)
_MATRIX = (
    Operand(name="A", memory=Memory.SPM, stream="matrix.A", first=T.ROW0, run=T.M, count=T.DEPTH_GROUPS,
            stride=T.STRIDE0, unless=(_X.A_TRANSPOSED,)),
    Operand(name="A", memory=Memory.SPM, stream="matrix.A", first=T.ROW0, run=T.K, count=T.ROW_GROUPS,
            stride=T.STRIDE0, when=(_X.A_TRANSPOSED,)),
    _b(T.K, T.COLUMN_GROUPS, (), (_X.B_TRANSPOSED, _X.B_INT4)),
    _b(T.N, T.DEPTH_GROUPS, (_X.B_TRANSPOSED,), (_X.B_INT4,)),
    _b(T.HALF_K, T.COLUMN_GROUPS, (_X.B_INT4,), (_X.B_TRANSPOSED,)),
    _b(T.HALF_N, T.DEPTH_GROUPS, (_X.B_INT4, _X.B_TRANSPOSED), ()),
    Operand(name="scales", memory=Memory.SPM, stream="matrix.B", first=T.SCALES_ROW, run=T.SCALE_ROWS,
            count=T.COLUMN_GROUPS, stride=T.STRIDE1, when=(_X.GROUP_SCALES,)),
    _c(name="sums", in_place=True, when=(_X.ACCUMULATE,)),
    _c(name="C", write=True, both_ports=True),
    _plain("held", Memory.WEIGHTS, when=(_X.REUSE,)),
    _plain("held", Memory.WEIGHTS, write=True, unless=(_X.REUSE, _X.OUTPUT_STATIONARY)),
)


def _src0(memory: Memory, planes: bool = False) -> Operand:
    """The first operand of a vector command: m rows of each column group, one plane or two."""
    return Operand(name="src0", memory=memory, stream="vector.r0", in_place=True, first=T.ROW0, run=T.M,
                   count=T.COLUMN_GROUPS, stride=T.STRIDE0, planes=T.TWO if planes else T.ONE,
                   plane_stride=T.HALF_STRIDE0 if planes else T.ZERO)


def _dst(wide: Sequence[tuple[IntEnum, ...]] = (), memory: Memory = Memory.SPM) -> tuple[Operand, ...]:
    """The result: one plane, or two where all flags of one set of ``wide`` are set."""
    block = partial(Operand, name="dst", memory=memory, write=True, stream="vector.w", first=T.ROW2, run=T.M,
                    count=T.COLUMN_GROUPS, stride=T.STRIDE2)
    found = [block(unless=tuple(flag for flags in wide for flag in flags))]
    taken: tuple[IntEnum, ...] = ()
    for flags in wide:
        found.append(block(when=flags, unless=taken, planes=T.TWO, plane_stride=T.HALF_STRIDE2))
        taken += flags
    return tuple(found)


def _parameters(column: IntEnum | None, bias: IntEnum, base: int = 0) -> tuple[Operand, ...]:
    """Column parameters behind one another: ``base`` rows a group, with the flags more."""
    def rows(times: int, when: tuple[IntEnum, ...], unless: tuple[IntEnum, ...]) -> Operand:
        return Operand(name="parameters", memory=Memory.SPM, stream="vector.r1", first=T.ROW1, run=T.COLUMN_GROUPS,
                       times=times, when=when, unless=unless)

    if column is None:
        return rows(base, (), (bias,)), rows(base + BIAS_ROWS, (bias,), ())
    return (rows(COLUMN_ROWS, (column,), (bias,)), rows(BIAS_ROWS, (bias,), (column,)),
            rows(COLUMN_ROWS + BIAS_ROWS, (column, bias), ()))


def _statistics(*, write: bool = False, run: Term = Term.ONE, when: tuple[IntEnum, ...] = ()) -> Operand:
    return _plain("statistics", Memory.STATISTICS, T.CONTEXT, run, write=write, when=when)


_src1 = partial(Operand, name="src1", memory=Memory.SPM, stream="vector.r1", in_place=True, first=T.ROW1, run=T.M,
                count=T.COLUMN_GROUPS)
_BITMAPS = Operand(name="bitmaps", memory=Memory.SPM, stream="vector.r1", first=T.ROW1, run=T.M, when=(_S.TREE,))
_TABLE_SOURCE = Operand(name="src0", memory=Memory.SPM, stream="vector.r0", first=T.ROW0, run=T.TABLE_ROWS)
_ACC, _SPM = Memory.ACC, Memory.SPM
_VECTOR: dict[VOp, tuple[Operand, ...]] = {
    VOp.REQUANT: (
        _src0(_ACC), *_parameters(_R.COLUMN, _R.BIAS), _statistics(when=(_R.ROW,)),
        _plain("table", Memory.BYTE_TABLE, when=(_R.LOOKUP,), unless=(_R.WIDE, _R.RESIDUAL)),
        _plain("table", Memory.WORD_TABLE, when=(_R.LOOKUP, _R.WIDE), unless=(_R.RESIDUAL,)),
        Operand(name="residual", memory=_SPM, stream="vector.r1", in_place=True, first=T.ROW2, run=T.M,
                count=T.COLUMN_GROUPS, stride=T.STRIDE2, planes=T.TWO, plane_stride=T.HALF_STRIDE2,
                when=(_R.RESIDUAL,)),
        *_dst(((_R.RESIDUAL,), (_R.WIDE,)))),
    VOp.PRODUCT: (_src0(_SPM), _src1(stride=T.AUX), *_dst()),
    VOp.ADD: (_src0(_SPM), _src1(stride=T.STRIDE0),
              _plain("table", Memory.BYTE_TABLE, when=(_A.LOOKUP,), unless=(_A.WIDE,)), *_dst(((_A.WIDE,),))),
    VOp.ROPE: (_src0(_ACC), *_parameters(_C.COLUMN, _C.BIAS),
               Operand(name="angles", memory=_SPM, stream="vector.r1", first=T.AUX, run=T.ANGLE_ROWS), *_dst()),
    VOp.I_GELU: (_src0(_ACC), *_parameters(_C.COLUMN, _C.BIAS), *_dst()),
    VOp.NORM_STAT: (_src0(_SPM, planes=True), _statistics(write=True)),
    VOp.NORM_APPLY: (_src0(_SPM, planes=True), *_parameters(None, _N.BIAS, GAMMA_ROWS), _statistics(),
                     *_dst(((_N.WIDE,),))),
    VOp.SOFTMAX_MAX: (_src0(_ACC), _BITMAPS, _statistics(when=(_S.CONTINUE,)), _statistics(write=True)),
    VOp.SOFTMAX_EXP: (_src0(_ACC), _BITMAPS, _statistics(), _statistics(write=True), *_dst(((_S.WIDE,),))),
    VOp.SOFTMAX_NORM: (_src0(_ACC), _BITMAPS, _statistics(), *_dst(((_S.WIDE,),))),
    VOp.ABSMAX: (_src0(_ACC), _statistics(write=True, run=T.TWO)),
    VOp.TABLE: (_TABLE_SOURCE, _plain("table", Memory.BYTE_TABLE, write=True)),
    VOp.WORD_TABLE: (_TABLE_SOURCE, _plain("table", Memory.WORD_TABLE, write=True)),
    VOp.RESCALE: (_src0(_ACC), _statistics(), *_dst(memory=_ACC)),
}


def _scan(run: Term, planes: bool, when: tuple[IntEnum, ...] = (), unless: tuple[IntEnum, ...] = ()) -> Operand:
    """The operand of a select command."""
    return Operand(name="src0", memory=_SPM, stream="select.r", first=T.ROW0, run=run, count=T.COLUMN_GROUPS,
                   stride=T.STRIDE0, planes=T.TWO if planes else T.ONE,
                   plane_stride=T.HALF_STRIDE0 if planes else T.ZERO, when=when, unless=unless)


_K, _W, _CW, _D = KeysFlag.FROM_IMPORTANCE, ImportanceFlag.WIDE, CompareFlag.WIDE, CommitFlag
_SELECT: dict[SOp, tuple[Operand, ...]] = {
    SOp.ARGMAX: (_scan(T.M, True), _plain("maxima", Memory.RUNNING, T.ZERO, T.M, when=(ArgmaxFlag.CONTINUE,)),
                 _plain("maxima", Memory.RUNNING, T.ZERO, T.M, write=True),
                 _plain("dst", Memory.LIST, T.ROW2, T.M, write=True)),
    SOp.KEYS: (_scan(T.ONE, True, unless=(_K,)), _plain("importance", Memory.COMMITTED, T.FIRST, T.N, when=(_K,)),
               _plain("dst", Memory.KEYS, T.ROW2, T.N, write=True)),
    SOp.TOP_K: (_plain("keys", Memory.KEYS, T.ZERO, T.N), _plain("keys", Memory.KEYS, T.ZERO, T.KEPT, write=True),
                _plain("dst", Memory.LIST, T.ROW2, T.KEPT, write=True)),
    SOp.IMPORTANCE: (_scan(T.M, False, unless=(_W,)), _scan(T.M, True, when=(_W,)),
                     *_update("shadow", Memory.SHADOW, T.FIRST, T.N)),
    SOp.COMMIT: (_plain("shadow", Memory.SHADOW, T.FIRST, T.N, unless=(_D.DISCARD, _D.CLEAR)),
                 _plain("shadow", Memory.SHADOW, T.FIRST, T.N, write=True),
                 _plain("committed", Memory.COMMITTED, T.FIRST, T.N, unless=(_D.DISCARD, _D.CLEAR)),
                 _plain("committed", Memory.COMMITTED, T.FIRST, T.N, write=True, unless=(_D.DISCARD,)),
                 _plain("committed", Memory.COMMITTED, T.FIRST, T.N, write=True, when=(_D.DISCARD, _D.CLEAR))),
    SOp.COMPARE: (_scan(T.M, False, unless=(_CW,)), _scan(T.M, True, when=(_CW,)),
                  _plain("result", Memory.PREDICATE, T.NUMBER, T.ONE, write=True)),
    SOp.LIST_LOAD: (
        Operand(name="src0", memory=_SPM, stream="select.r", first=T.ROW0, run=T.LIST_ROWS),
        _plain("dst", Memory.LIST, T.ROW2, T.N, write=True)),
    SOp.LIST_STORE: (
        _plain("list", Memory.LIST, T.FIRST, T.N),
        Operand(name="dst", memory=_SPM, write=True, stream="select.w", first=T.ROW2, run=T.LIST_ROWS)),
}
OPERANDS: dict[tuple[int, int], tuple[Operand, ...]] = {
    (Unit.LOAD, 0): _move(True), (Unit.STORE, 0): _move(False), (Unit.MATRIX, 0): _MATRIX,
    **{(Unit.VECTOR, op): found for op, found in _VECTOR.items()},
    **{(Unit.SELECT, op): found for op, found in _SELECT.items()},
}
"""The operands of every operation, by (unit, number): the ones that apply depend on the flags."""


@cache
def operands_of(unit: int, op: int, flags: int) -> tuple[Operand, ...]:
    """The operands of an operation under a legal set of flags, in the order of the table."""
    return tuple(operand for operand in OPERANDS[unit, op] if operand.applies(flags))


def parameter_rows(unit: int, op: int, flags: int) -> int:
    """Scratchpad rows of column parameters for each column group."""
    return sum(operand.times for operand in operands_of(unit, op, flags) if operand.name == "parameters")


class Class(IntEnum):
    """Columns of :data:`CLASSES`: one row an operand."""

    MEMORY = 0
    WRITE = 1
    CLAIM = 2  # which of the unit's streams; -1: none
    BOTH_PORTS = 3
    FIRST = 4
    RUN = 5
    TIMES = 6
    COUNT = 7
    STRIDE = 8
    PLANES = 9
    PLANE_STRIDE = 10
    IN_PLACE = 11


def _row(operand: Operand) -> list[int]:
    claim = -1
    if operand.stream:
        at = STREAMS.index(operand.stream)
        claim = at - STREAM_UNIT.index(STREAM_UNIT[at])
    return [operand.memory, operand.write, claim, operand.both_ports, operand.first, operand.run, operand.times,
            operand.count, operand.stride, operand.planes, operand.plane_stride, operand.in_place]


def _classes() -> tuple[np.ndarray, np.ndarray]:
    every = {key: operands_of(*key) for (unit, op), known in OPERATIONS.items() for flags in range(256)
             if known.legal(flags) for key in ((int(unit), int(op), flags),)}
    distinct = list(dict.fromkeys(every.values()))
    most = max(map(len, distinct))
    table = np.zeros((len(distinct), most, len(Class)), dtype=np.int64)
    table[:, :, Class.MEMORY] = -1
    for i, found in enumerate(distinct):
        for j, operand in enumerate(found):
            table[i, j] = _row(operand)
    of = np.full((len(Unit), 32, 256), -1, dtype=np.int64)
    number = {found: i for i, found in enumerate(distinct)}
    for key, found in every.items():
        of[key] = number[found]
    return table, of


CLASSES, CLASS_OF = _classes()
"""``CLASSES[class, operand, column]``: the table as integers, memory -1 where a class has fewer operands;
``CLASS_OF[unit, op, flags]``: the class, -1 where the command is illegal."""

_T = {name: i for i, name in enumerate(TABLE_FIELDS)}
(_ZERO, _ONE, _TWO, _TM, _TN, _TK, _ROW0, _ROW1, _ROW2, _STRIDE0, _STRIDE1, _STRIDE2, _HALF_STRIDE0, _HALF_STRIDE2,
 _AUX, _ROW_GROUPS, _COLUMN_GROUPS, _DEPTH_GROUPS, _HALF_N, _HALF_K, _BLOCKS, _ADDRESS, _BYTES, _DRAM_STRIDE,
 _INDEX_RANGE, _LIST, _SCALES_ROW, _SCALE_ROWS, _ANGLE_ROWS, _TABLE_ROWS, _LIST_ROWS, _FIRST, _KEPT, _NUMBER,
 _CONTEXT) = map(int, Term)
_O_UNIT, _O_FLAGS, _O_M, _O_N, _O_K = OUT["unit"], OUT["flags"], OUT["m"], OUT["n"], OUT["k"]
_O_ADDRESS, _O_ROW0 = OUT["address"], OUT["row0"]
_F_BYTES, _F_STRIDE, _F_ROW_STRIDE, _F_BLOCK_STRIDE = _T["bytes"], _T["stride"], _T["row_stride"], _T["block_stride"]
_F_LIST, _F_LAST_INDEX, _F_A_STRIDE, _F_B_STRIDE = _T["list"], _T["last_index"], _T["a_stride"], _T["b_stride"]
_F_C_STRIDE, _F_GROUP, _F_SRC0_STRIDE, _F_DST_STRIDE = _T["c_stride"], _T["group"], _T["src0_stride"], _T["dst_stride"]
_F_AUX, _F_PERIOD, _F_CONTEXT, _F_FIRST, _F_NUMBER = (
    _T["aux"], _T["period"], _T["context"], _T["first"], _T["number"])
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
        terms[_LIST], terms[_INDEX_RANGE] = row[_F_LIST], row[_F_LAST_INDEX] + 1
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
        terms[_FIRST], terms[_KEPT], terms[_NUMBER] = row[_F_FIRST], min(n, k), row[_F_NUMBER]
        return
    terms[_STRIDE2], terms[_HALF_STRIDE2] = row[_F_DST_STRIDE], row[_F_DST_STRIDE] // 2
    terms[_AUX], terms[_CONTEXT] = row[_F_AUX], row[_F_CONTEXT]
    terms[_ANGLE_ROWS] = m << (row[_F_PERIOD] + 2)
    terms[_TABLE_ROWS] = m * terms[_COLUMN_GROUPS]
