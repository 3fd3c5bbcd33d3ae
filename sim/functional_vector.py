"""Vector commands on data: operands per docs/numerics.md, arithmetic from gemmule/numerics."""

from __future__ import annotations

import numpy as np

from gemmule import numerics
from gemmule.isa import TABLE_FIELDS, VectorFlag, VOp
from gemmule.resolve import OUT
from gemmule.sim.memory import Memory

__all__ = ["vector"]

(_SRC0_STRIDE, _AUX, _DST_STRIDE, _PERIOD, _CONTEXT, _MULT, _SHIFT, _SHIFT2) = (
    TABLE_FIELDS.index(name) for name in (
        "src0_stride", "aux", "dst_stride", "period", "context", "mult", "shift", "shift2"))
_OP, _FLAGS, _M, _N = (OUT[name] for name in ("op", "flags", "m", "n"))
_SRC0, _SRC1, _DST = (OUT[name] for name in ("row0", "row1", "row2"))


class _Operands:
    """Reads and writes of one command, as arrays ``[rows, columns]``."""

    def __init__(self, memory: Memory, raw: list[int], row: list[int]) -> None:
        self.memory, self.raw, self.row = memory, raw, row
        self.m, self.n = row[_M], row[_N]
        self.groups = -(-self.n // memory.dim)
        self.width = self.groups * memory.dim
        self.context = (raw[_CONTEXT], slice(0, self.m))

    def flag(self, flag: VectorFlag) -> bool:
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
        acc, mult, shift = self.accumulator(), self.raw[_MULT], self.raw[_SHIFT]
        column, bias = self.flag(VectorFlag.COLUMN), self.flag(VectorFlag.BIAS)
        planes = self.parameters(3 * column + 4 * bias) if column or bias else None
        if planes is not None and bias:
            word = planes[-4] | planes[-3] << 8 | planes[-2] << 16 | planes[-1] << 24
            acc = acc + word.astype(np.int32)  # wraps
        if self.flag(VectorFlag.ROW):
            reciprocal, length = self.memory.reciprocal[self.context], self.memory.length[self.context]
            return numerics.requant_row(acc, reciprocal, length, mult, shift)
        if planes is not None and column:
            return numerics.requant(acc, planes[0] | planes[1] << 8, planes[2])
        return numerics.requant(acc, mult, shift)

    def store(self, values: np.ndarray, wide: bool = False) -> None:
        """Write whole rows, int16 results in two planes; lanes beyond n hold 0."""
        if self.n != self.width:
            values = values.copy()
            values[:, self.n:] = 0
        stride = self.raw[_DST_STRIDE]
        planes = numerics.split_planes(values) if wide else (values,)
        for i, plane in enumerate(planes):
            view = self.memory.spm_view(self.row[_DST] + i * (stride // 2), stride, self.m, self.groups)
            view[...] = plane.reshape(view.shape)


def vector(memory: Memory, raw: list[int], row: list[int]) -> None:
    """Run one vector command of non-zero length."""
    _OPS[VOp(row[_OP])](_Operands(memory, raw, row))


def _requant(x: _Operands) -> None:
    residual, limits, aux = None, None, x.raw[_AUX]
    if x.flag(VectorFlag.RESIDUAL):
        residual = x.words(x.row[_DST], x.raw[_DST_STRIDE])
        if x.flag(VectorFlag.RESCALE):
            residual = numerics.requant(residual, aux, x.raw[_SHIFT2])
    elif x.flag(VectorFlag.CLAMP):
        limits = _signed(aux & 255), _signed(aux >> 8)
    wide = x.flag(VectorFlag.WIDE) or residual is not None
    x.store(numerics.requant_store(
        x.requant(), relu=x.flag(VectorFlag.RELU), wide=wide, residual=residual, limits=limits,
        table=x.memory.table if x.flag(VectorFlag.LOOKUP) else None), wide)


def _signed(byte: int) -> int:
    return byte - (byte >> 7 << 8)


def _product(x: _Operands) -> None:
    a = x.bytes(x.row[_SRC0], x.raw[_SRC0_STRIDE])
    b = x.bytes(x.row[_SRC1], x.raw[_AUX])
    x.store(numerics.product(a, b, x.raw[_MULT], x.raw[_SHIFT]))


def _add(x: _Operands) -> None:
    a, b = (x.bytes(x.row[src], x.raw[_SRC0_STRIDE]) for src in (_SRC0, _SRC1))
    total = numerics.add(a, b, x.raw[_MULT], x.raw[_AUX], x.raw[_SHIFT])
    wide = x.flag(VectorFlag.WIDE)
    x.store(numerics.requant_store(
        total, relu=x.flag(VectorFlag.RELU), wide=wide,
        table=x.memory.table if x.flag(VectorFlag.LOOKUP) else None), wide)


def _rope(x: _Operands) -> None:
    period, dim = 1 << x.raw[_PERIOD], x.memory.dim
    # table rows [m, period, 4 planes, dim], repeated along the column groups
    planes = x.memory.spm_view(x.raw[_AUX], 1, 1, x.m * period * 4).reshape(x.m, period, 4, dim)
    planes = planes[:, np.arange(x.groups) % period]
    cosine, sine = (
        numerics.join_planes(planes[:, :, at], planes[:, :, at + 1]).reshape(x.m, x.width) for at in (0, 2))
    value = numerics.saturate(x.requant(), 16)
    x.store(numerics.rope(value, cosine, sine, x.raw[_SHIFT2]))


def _rms_stat(x: _Operands) -> None:
    value = x.words(x.row[_SRC0], x.raw[_SRC0_STRIDE])[:, :x.n]
    x.memory.root[x.context], x.memory.half[x.context] = numerics.rms_statistic(
        value, x.raw[_MULT], x.raw[_SHIFT])


def _rms_apply(x: _Operands) -> None:
    value = x.words(x.row[_SRC0], x.raw[_SRC0_STRIDE])[:, :x.n]
    low, high = x.parameters(2)
    gamma = numerics.join_planes(low, high)[:x.n]
    out = np.zeros((x.m, x.width), dtype=np.int64)
    out[:, :x.n] = numerics.rms_apply(
        value, x.memory.root[x.context], x.memory.half[x.context], gamma, x.raw[_SHIFT])
    x.store(out)


def _scores(x: _Operands) -> tuple[np.ndarray, np.ndarray]:
    value = numerics.scores(x.accumulator()[:, :x.n], x.raw[_MULT], x.raw[_SHIFT])
    return value, numerics.visible(x.m, x.n, x.flag(VectorFlag.CAUSAL))


def _softmax_max(x: _Operands) -> None:
    x.memory.maximum[x.context] = numerics.row_max(*_scores(x))


def _softmax_exp(x: _Operands) -> None:
    value, count = _scores(x)
    weights, total = numerics.row_weights(value, x.memory.maximum[x.context], count)
    x.memory.reciprocal[x.context], x.memory.length[x.context] = numerics.softmax_reciprocal(total)
    out = np.zeros((x.m, x.width), dtype=np.int64)
    out[:, :x.n] = weights
    x.store(out)


def _table(x: _Operands) -> None:
    x.memory.table[:] = x.memory.spm.reshape(-1)[x.row[_SRC0] * x.memory.dim:][:256]


_OPS = {
    VOp.REQUANT: _requant, VOp.PRODUCT: _product, VOp.ROPE: _rope, VOp.RMS_STAT: _rms_stat,
    VOp.RMS_APPLY: _rms_apply, VOp.SOFTMAX_MAX: _softmax_max, VOp.SOFTMAX_EXP: _softmax_exp,
    VOp.TABLE: _table, VOp.ADD: _add,
}
