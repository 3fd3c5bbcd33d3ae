"""Which rows, bytes and entries every operation touches: one table of operations and operands.

An operand is a block of runs in one memory: ``run`` consecutive rows, repeated ``count`` times ``stride`` rows apart,
all of it again ``planes`` times ``plane_stride`` rows apart. Its numbers are terms (:mod:`gemmule.terms`).
:data:`OPERANDS` has the operands of each operation with the flags on which they depend; :data:`CLASSES` is the same as
integers, for compiled code.

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

from .isa import Dyn
from .operations import (
    OPERATIONS,
    AddFlag,
    ArgmaxFlag,
    ColumnFlag,
    CommitFlag,
    CompareFlag,
    ImportanceFlag,
    KeysFlag,
    ListFlag,
    MatrixFlag,
    MoveFlag,
    NormFlag,
    ProductFlag,
    RequantFlag,
    SoftmaxFlag,
    SOp,
    TopKFlag,
    Unit,
    VOp,
)
from .terms import Term

__all__ = [
    "BIAS_ROWS", "CLASSES", "CLASS_OF", "COLUMN_ROWS", "DYNAMIC", "GAMMA_ROWS", "OPERANDS", "STREAMS", "STREAM_UNIT",
    "Class", "Memory", "Operand", "operands_of", "parameter_rows",
]

STREAMS = ("load.w", "store.r", "matrix.A", "matrix.B", "matrix.C", "vector.r0", "vector.r1", "vector.w",
           "select.r", "select.w")
"""What claims memory ports; a unit's streams stand together, in the order of ``claim0`` .. ``claim2``."""
STREAM_UNIT = (0, 1, 2, 2, 2, 3, 3, 3, 4, 4)

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
    MASK = 13

    @property
    def label(self) -> str:
        """What its places are called in messages and pages."""
        return _LABELS[self]

    @property
    def private(self) -> bool:
        return self >= Memory.KEYS


_LABELS = ("scratchpad rows", "accumulator rows", "DRAM bytes", "list entries", "predicates", "keys",
           "committed importance", "shadow importance", "running maxima", "statistics contexts", "byte table",
           "word table", "weights in the mesh", "mask bits")


DYNAMIC: dict[int, dict[Dyn, tuple[Term, ...]]] = {
    Unit.LOAD: {Dyn.DST: (Term.ROW0,), Dyn.SRC1: (Term.LIST,)},
    Unit.STORE: {Dyn.SRC0: (Term.ROW0,), Dyn.SRC1: (Term.LIST,)},
    Unit.MATRIX: {Dyn.SRC0: (Term.ROW0,), Dyn.SRC1: (Term.ROW1, Term.SCALES_ROW), Dyn.DST: (Term.ROW2,)},
    Unit.VECTOR: {Dyn.SRC0: (Term.ROW0,), Dyn.SRC1: (Term.ROW1,), Dyn.DST: (Term.ROW2,)},
    Unit.SELECT: {Dyn.SRC0: (Term.ROW0,), Dyn.SRC1: (Term.FIRST,), Dyn.DST: (Term.ROW2,)},
}
"""First rows and entries that ``dyn_which`` makes dynamic."""


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
_R, _P, _C, _A, _N, _S = RequantFlag, ProductFlag, ColumnFlag, AddFlag, NormFlag, SoftmaxFlag
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


def _src0(memory: Memory, planes: bool = False, *, when: tuple[IntEnum, ...] = (),
          unless: tuple[IntEnum, ...] = ()) -> Operand:
    """The first operand of a vector command: m rows of each column group, one plane or two."""
    return Operand(name="src0", memory=memory, stream="vector.r0", in_place=True, first=T.ROW0, run=T.M,
                   count=T.COLUMN_GROUPS, stride=T.STRIDE0, planes=T.TWO if planes else T.ONE,
                   plane_stride=T.HALF_STRIDE0 if planes else T.ZERO, when=when, unless=unless)


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
    VOp.PRODUCT: (
        _src0(_SPM, unless=(_P.WIDE,)), _src0(_SPM, planes=True, when=(_P.WIDE,)),
        _src1(stride=T.AUX, unless=(_P.WIDE,)),
        _src1(stride=T.AUX, planes=T.TWO, plane_stride=T.HALF_AUX, when=(_P.WIDE,)), *_dst(((_P.WIDE,),))),
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


_K, _W, _CW, _D, _Z = KeysFlag.FROM_IMPORTANCE, ImportanceFlag.WIDE, CompareFlag.WIDE, CommitFlag, TopKFlag.NONZERO
_LOADED = Operand(name="entries", memory=Memory.LIST, in_place=True, first=T.ROW2, run=T.N, when=(ListFlag.HIGH,))
_SELECT: dict[SOp, tuple[Operand, ...]] = {
    SOp.ARGMAX: (_scan(T.M, True), _plain("maxima", Memory.RUNNING, T.ZERO, T.M, when=(ArgmaxFlag.CONTINUE,)),
                 _plain("maxima", Memory.RUNNING, T.ZERO, T.M, write=True),
                 _plain("dst", Memory.LIST, T.ROW2, T.M, write=True)),
    SOp.KEYS: (_scan(T.ONE, True, unless=(_K,)), _plain("importance", Memory.COMMITTED, T.FIRST, T.N, when=(_K,)),
               _plain("dst", Memory.KEYS, T.ROW2, T.N, write=True)),
    SOp.TOP_K: (_plain("keys", Memory.KEYS, T.ZERO, T.N),
                _plain("keys", Memory.KEYS, T.ZERO, T.KEPT, write=True, unless=(_Z, TopKFlag.KEEP)),
                _plain("mask", Memory.MASK, T.ZERO, T.N, write=True),
                _plain("dst", Memory.LIST, T.ROW2, T.KEPT, write=True, unless=(_Z,)),
                _plain("dst", Memory.LIST, T.ROW2, T.N, write=True, when=(_Z,))),
    SOp.IMPORTANCE: (_scan(T.M, False, unless=(_W,)), _scan(T.M, True, when=(_W,)),
                     *_update("shadow", Memory.SHADOW, T.FIRST, T.N)),
    SOp.COMMIT: (_plain("keys", Memory.KEYS, T.FIRST, T.N, when=(_D.FROM_KEYS,)),
                 _plain("shadow", Memory.SHADOW, T.FIRST, T.N, unless=(_D.DISCARD, _D.CLEAR, _D.FROM_KEYS)),
                 _plain("shadow", Memory.SHADOW, T.FIRST, T.N, write=True),
                 _plain("committed", Memory.COMMITTED, T.FIRST, T.N, unless=(_D.DISCARD, _D.CLEAR, _D.FROM_KEYS)),
                 _plain("committed", Memory.COMMITTED, T.FIRST, T.N, write=True, unless=(_D.DISCARD,)),
                 _plain("committed", Memory.COMMITTED, T.FIRST, T.N, write=True, when=(_D.DISCARD, _D.CLEAR))),
    SOp.COMPARE: (_scan(T.M, False, unless=(_CW,)), _scan(T.M, True, when=(_CW,)),
                  _plain("result", Memory.PREDICATE, T.NUMBER, T.ONE, write=True)),
    SOp.LIST_LOAD: (
        Operand(name="src0", memory=_SPM, stream="select.r", first=T.ROW0, run=T.LIST_ROWS), _LOADED,
        _plain("dst", Memory.LIST, T.ROW2, T.N, write=True)),
    SOp.LIST_STORE: (
        _plain("list", Memory.LIST, T.FIRST, T.N),
        Operand(name="dst", memory=_SPM, write=True, stream="select.w", first=T.ROW2, run=T.LIST_ROWS)),
    SOp.PACK: (
        _scan(T.M, False), _plain("mask", Memory.MASK, T.ZERO, T.N),
        Operand(name="dst", memory=_SPM, write=True, stream="select.w", first=T.ROW2, run=T.M, count=T.COLUMN_GROUPS,
                stride=T.STRIDE0)),
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
