"""Vector commands on data: operands per docs/numerics.md, arithmetic from gemmule/numerics."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

import numpy as np

from gemmule import numerics
from gemmule.isa import TABLE_FIELDS, AddFlag, NormFlag, ProductFlag, RequantFlag, SoftmaxFlag, VOp
from gemmule.numerics.ibert import i_gelu_unit
from gemmule.numerics.online import rescale
from gemmule.numerics.softmax import EMPTY
from gemmule.operands import BIAS_ROWS, COLUMN_ROWS, GAMMA_ROWS
from gemmule.resolve import OUT
from gemmule.sim.functional.memory import Memory

__all__ = ["vector"]

(_SRC0_STRIDE, _DST_STRIDE, _PERIOD, _CONTEXT) = (
    TABLE_FIELDS.index(name) for name in ("src0_stride", "dst_stride", "period", "context"))
_OP, _FLAGS, _M, _N, _AFTER = (OUT[name] for name in ("op", "flags", "m", "n", "after"))
_MULT, _SHIFT, _SHIFT2, _AUX = (OUT[name] for name in ("mult", "shift", "shift2", "aux"))
_SRC0, _SRC1, _DST = (OUT[name] for name in ("row0", "row1", "row2"))


class _Operands:
    """Reads and writes of one command, as arrays ``[rows, columns]``."""

    def __init__(self, memory: Memory, raw: list[int], row: list[int]) -> None:
        self.memory, self.raw, self.row = memory, raw, row
        self.m, self.n = row[_M], row[_N]
        self.groups = -(-self.n // memory.dim)
        self.width = self.groups * memory.dim
        self.context = (raw[_CONTEXT], slice(0, self.m))

    def flag(self, flag: IntEnum) -> bool:
        return bool(self.row[_FLAGS] >> flag & 1)

    def accumulator(self) -> np.ndarray:
        view = self.memory.acc_view(self.row[_SRC0], self.raw[_SRC0_STRIDE], self.m, self.groups)
        return view.reshape(self.m, self.width)

    def bytes(self, row: int, stride: int, dtype: type = np.int8) -> np.ndarray:
        return self.memory.spm_view(row, stride, self.m, self.groups, dtype).reshape(self.m, self.width)

    def words(self, row: int, stride: int) -> np.ndarray:
        """int16 operand in two planes, the high one half a group stride further on."""
        return numerics.join_planes(
            self.bytes(row, stride, np.uint8), self.bytes(row + stride // 2, stride, np.uint8))

    def parameters(self, count: int) -> np.ndarray:
        """Column parameters (bytes as int64) ``[count, columns]`` from rows src1 + count * g on."""
        view = self.memory.spm_view(self.row[_SRC1], 1, 1, self.groups * count)
        rows = view.reshape(self.groups, count, self.memory.dim)
        return rows.transpose(1, 0, 2).reshape(count, self.width).astype(np.int64)

    def requant(self) -> np.ndarray:
        """The accumulator operand, with bias, scaled per row, per column or by the command."""
        acc, mult, shift = self.accumulator(), self.row[_MULT], self.row[_SHIFT]
        column, bias = self.flag(RequantFlag.COLUMN), self.flag(RequantFlag.BIAS)
        planes = self.parameters(COLUMN_ROWS * column + BIAS_ROWS * bias) if column or bias else None
        if planes is not None and bias:
            acc = acc + _int32(planes[-4:])  # wraps
        if self.flag(RequantFlag.ROW):
            reciprocal, length = self.memory.reciprocal[self.context], self.memory.length[self.context]
            return numerics.requant_row(acc, reciprocal, length, mult, shift)
        if planes is not None and column:
            return numerics.requant(acc, planes[0] | planes[1] << 8, planes[2])
        return numerics.requant(acc, mult, shift)

    def store(self, values: np.ndarray, wide: bool = False) -> None:
        """Write ``values[rows, n or more]`` as whole rows, wide results in two planes; lanes beyond n hold 0."""
        if self.n != self.width:
            whole = np.zeros((self.m, self.width), dtype=values.dtype)
            whole[:, :self.n] = values[:, :self.n]
            values = whole
        stride = self.raw[_DST_STRIDE]
        planes: tuple[np.ndarray, ...] = numerics.split_planes(values) if wide else (values,)
        for i, plane in enumerate(planes):
            view = self.memory.spm_view(self.row[_DST] + i * (stride // 2), stride, self.m, self.groups, mode="w")
            view[...] = plane.reshape(view.shape)


def vector(memory: Memory, raw: list[int], row: list[int]) -> None:
    """Run one vector command of non-zero length."""
    _OPS[row[_OP]](_Operands(memory, raw, row))


def _requant(x: _Operands) -> None:
    residual, limits, aux, memory = None, None, x.row[_AUX], x.memory
    if x.flag(RequantFlag.RESIDUAL):
        residual = x.words(x.row[_DST], x.raw[_DST_STRIDE])
        if x.flag(RequantFlag.RESCALE):
            residual = numerics.requant(residual, aux, x.row[_SHIFT2])
    elif x.flag(RequantFlag.CLAMP):
        limits = _signed(aux & 255), _signed(aux >> 8)
    wide, look = x.flag(RequantFlag.WIDE) or residual is not None, x.flag(RequantFlag.LOOKUP)
    result = numerics.requant_store(
        x.requant(), relu=x.flag(RequantFlag.RELU), wide=wide, residual=residual, limits=limits,
        table=memory.table[:] if look and not wide else None)
    x.store(numerics.interpolate(result, memory.words[:]) if look and wide and residual is None else result, wide)


def _signed(byte: int) -> int:
    return byte - (byte >> 7 << 8)


def _product(x: _Operands) -> None:
    wide = x.flag(ProductFlag.WIDE)
    read = x.words if wide else x.bytes
    a, b = read(x.row[_SRC0], x.raw[_SRC0_STRIDE]), read(x.row[_SRC1], x.row[_AUX])
    x.store(numerics.product(a, b, x.row[_MULT], x.row[_SHIFT], bits=16 if wide else 8), wide)


def _add(x: _Operands) -> None:
    a, b = (x.bytes(x.row[src], x.raw[_SRC0_STRIDE]) for src in (_SRC0, _SRC1))
    total = numerics.add(a, b, x.row[_MULT], x.row[_AUX], x.row[_SHIFT])
    wide = x.flag(AddFlag.WIDE)
    x.store(numerics.requant_store(
        total, relu=x.flag(AddFlag.RELU), wide=wide,
        table=x.memory.table[:] if x.flag(AddFlag.LOOKUP) and not wide else None), wide)


def _i_gelu(x: _Operands) -> None:
    x.store(i_gelu_unit(numerics.saturate(x.requant(), 16), x.row[_SHIFT2]))


def _rescale(x: _Operands) -> None:
    """Whole rows of the accumulator, the lanes beyond n too."""
    view = x.memory.acc_view(x.row[_DST], x.raw[_DST_STRIDE], x.m, x.groups, mode="w")
    view[...] = rescale(x.accumulator(), x.memory.rise[x.context][:, None]).reshape(view.shape)


def _rope(x: _Operands) -> None:
    period, dim = 1 << x.raw[_PERIOD], x.memory.dim
    # table rows [m, period, 4 planes, dim], repeated along the column groups
    planes = x.memory.spm_view(x.row[_AUX], 1, 1, x.m * period * 4).reshape(x.m, period, 4, dim)
    planes = planes[:, np.arange(x.groups) % period]
    cosine, sine = (
        numerics.join_planes(planes[:, :, at], planes[:, :, at + 1]).reshape(x.m, x.width) for at in (0, 2))
    value = numerics.saturate(x.requant(), 16)
    x.store(numerics.rope(value, cosine, sine, x.row[_SHIFT2]))


def _int32(planes: np.ndarray) -> np.ndarray:
    """Four byte planes, the lowest first, to int32."""
    return (planes[0] | planes[1] << 8 | planes[2] << 16 | planes[3] << 24).astype(np.int32)


def _norm_stat(x: _Operands) -> None:
    value, memory, at = x.words(x.row[_SRC0], x.raw[_SRC0_STRIDE])[:, :x.n], x.memory, x.context
    memory.center[at], memory.root[at], memory.half[at] = numerics.norm_statistic(
        value, x.row[_MULT], x.row[_SHIFT], mean=x.flag(NormFlag.MEAN), round_mean=x.flag(NormFlag.ROUND))


def _norm_apply(x: _Operands) -> None:
    value, memory, bias = x.words(x.row[_SRC0], x.raw[_SRC0_STRIDE]), x.memory, x.flag(NormFlag.BIAS)
    planes = x.parameters(GAMMA_ROWS + BIAS_ROWS * bias)[:, :x.n]
    center = memory.center[x.context] * x.flag(NormFlag.MEAN)
    wide = x.flag(NormFlag.WIDE)
    x.store(numerics.normalize(
        value[:, :x.n], center, memory.root[x.context], memory.half[x.context], numerics.join_planes(*planes[:2]),
        x.row[_SHIFT], beta=_int32(planes[2:]) if bias else None, bits=16 if wide else 8), wide)


def _scores(x: _Operands) -> tuple[np.ndarray, np.ndarray]:
    """Scores ``[m, n]`` and what the rows see of them."""
    value, after = numerics.scores(x.accumulator()[:, :x.n], x.row[_MULT], x.row[_SHIFT]), x.row[_AFTER]
    if x.flag(SoftmaxFlag.TREE):
        bitmaps = x.memory.spm_view(x.row[_SRC1], 1, x.m, 1)[:, 0]
        return value, numerics.tree_mask(bitmaps, x.m, x.n, after)
    return value, numerics.visible(x.m, x.n, x.flag(SoftmaxFlag.CAUSAL), after)


def _softmax_max(x: _Operands) -> None:
    memory, at = x.memory, x.context
    before = memory.maximum[at] if x.flag(SoftmaxFlag.CONTINUE) else EMPTY
    if x.flag(SoftmaxFlag.ONLINE):
        memory.maximum[at], memory.rise[at] = numerics.octave_max(*_scores(x), before)
    else:
        memory.maximum[at] = numerics.row_max(*_scores(x), before)


def _softmax_exp(x: _Operands) -> None:
    (value, seen), memory, wide = _scores(x), x.memory, x.flag(SoftmaxFlag.WIDE)
    before: np.ndarray | int = 0
    if x.flag(SoftmaxFlag.CONTINUE):
        before = memory.total[x.context]
        if x.flag(SoftmaxFlag.ONLINE):
            before = rescale(before, memory.rise[x.context])
    probabilities, total = numerics.row_probabilities(
        value, memory.maximum[x.context], seen, wide=wide, before=before, kind=x.raw[_PERIOD])
    if x.flag(SoftmaxFlag.MORE):
        memory.total[x.context] = total
    else:
        memory.reciprocal[x.context], memory.length[x.context] = numerics.softmax_reciprocal(total)
    x.store(probabilities, wide)


def _softmax_norm(x: _Operands) -> None:
    (value, seen), memory, wide = _scores(x), x.memory, x.flag(SoftmaxFlag.WIDE)
    reciprocal, length = memory.reciprocal[x.context], memory.length[x.context]
    x.store(numerics.row_normalized(
        value, memory.maximum[x.context], seen, reciprocal, length, wide=wide, kind=x.raw[_PERIOD]), wide)


def _absmax(x: _Operands) -> None:
    largest, (context, rows) = numerics.row_absmax(x.accumulator()[:, :x.n]), x.context
    for at, (ratio, length) in enumerate((numerics.softmax_reciprocal(largest), numerics.own_scale(largest))):
        x.memory.reciprocal[context + at, rows], x.memory.length[context + at, rows] = ratio, length


def _table(x: _Operands) -> None:
    entries = numerics.BYTE_TABLE_ENTRIES
    x.memory.table[:] = x.memory.spm_view(x.row[_SRC0], 1, 1, -(-entries // x.memory.dim)).reshape(-1)[:entries]


def _word_table(x: _Operands) -> None:
    entries, rows = numerics.WORD_TABLE_ENTRIES, -(-numerics.WORD_TABLE_ENTRIES // x.memory.dim)
    planes = x.memory.spm_view(x.row[_SRC0], 1, 1, 2 * rows).reshape(2, -1)[:, :entries]
    x.memory.words[:] = numerics.join_planes(*planes)


_OPS: dict[int, Callable[[_Operands], None]] = {
    VOp.REQUANT: _requant, VOp.PRODUCT: _product, VOp.ROPE: _rope, VOp.NORM_STAT: _norm_stat,
    VOp.NORM_APPLY: _norm_apply, VOp.SOFTMAX_MAX: _softmax_max, VOp.SOFTMAX_EXP: _softmax_exp,
    VOp.TABLE: _table, VOp.ADD: _add, VOp.SOFTMAX_NORM: _softmax_norm, VOp.ABSMAX: _absmax,
    VOp.WORD_TABLE: _word_table, VOp.RESCALE: _rescale, VOp.I_GELU: _i_gelu,
}
