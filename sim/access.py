"""Which rows and bytes a resolved command touches: exact intervals per operand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmule.config import Config
from gemmule.isa import TABLE_FIELDS, MatrixFlag, MoveFlag, Unit, VectorFlag, VOp
from gemmule.resolve import OUT

__all__ = ["ACC", "DRAM", "SPACES", "SPM", "Access", "accesses", "common"]

SPACES = ("scratchpad rows", "accumulator rows", "DRAM bytes")
SPM, ACC, DRAM = range(3)
_F = {name: i for i, name in enumerate(TABLE_FIELDS)}


@dataclass(frozen=True)
class Access:
    """One operand: merged, sorted half-open intervals ``spans[n, 2]`` of a memory."""

    operand: str
    space: int
    write: bool
    spans: np.ndarray
    twice: bool = False
    """Some row is named more than once."""
    origin: tuple[int, int] = (0, 0)
    """First row and stride: equal origins mean an equal order of rows."""


def _spans(starts: np.ndarray, size: int) -> tuple[np.ndarray, bool]:
    """Merge intervals ``[start, start + size)``; also whether any two of them overlap."""
    starts = np.sort(starts.ravel())
    gaps = np.diff(starts)
    cut = np.flatnonzero(gaps > size)
    low = starts[np.concatenate(([0], cut + 1))]
    high = starts[np.concatenate((cut, [len(starts) - 1]))] + size
    return np.stack((low, high), axis=1), bool((gaps < size).any())


def _access(operand: str, space: int, write: bool, first: int, stride: int, count: int, size: int) -> Access:
    spans, twice = _spans(first + stride * np.arange(count), size)
    return Access(operand, space, write, spans, twice, (first, stride))


def _move(row: np.ndarray, out: np.ndarray, dim: int) -> list[Access]:
    load, flags = bool(out[OUT["unit"]] == Unit.LOAD), int(out[OUT["flags"]])
    accumulator, narrow, add, zero, broadcast = (flags >> flag & 1 for flag in MoveFlag)
    rows, size = int(out[OUT["m"]]), int(row[_F["bytes"]])
    width = 4 * dim if accumulator and not narrow else dim
    blocks = -(-size // width)
    lines = (out[OUT["row0"]] + row[_F["row_stride"]] * np.arange(rows)[:, None]
             + row[_F["block_stride"]] * np.arange(blocks)[None, :])
    spans, twice = _spans(lines, 1)
    found = [Access("rows", ACC if accumulator else SPM, load, spans, twice)]
    if add:
        found.append(Access("sums", ACC, False, spans, twice))
    if not zero:
        found.append(_access("memory", DRAM, not load, int(out[OUT["address"]]), int(row[_F["stride"]]),
                             1 if broadcast else rows, size))
    return found


def _matrix(row: np.ndarray, out: np.ndarray, dim: int) -> list[Access]:
    m, n, k = (int(out[OUT[name]]) for name in ("m", "n", "k"))
    a, b, c = (int(out[OUT[name]]) for name in ("row0", "row1", "row2"))
    flags = int(out[OUT["flags"]])
    columns, depth = -(-n // dim), -(-k // dim)
    a_count, a_size = (-(-m // dim), k) if flags >> MatrixFlag.A_TRANSPOSED & 1 else (depth, m)
    found = [_access("A", SPM, False, a, int(row[_F["a_stride"]]), a_count, a_size)]
    if not flags >> MatrixFlag.REUSE & 1:
        stride = int(row[_F["b_stride"]])
        b_count, b_size = (depth, n) if flags >> MatrixFlag.B_TRANSPOSED & 1 else (columns, k)
        if flags >> MatrixFlag.B_INT4 & 1:
            b_size = -(-b_size // 2)
        found.append(_access("B", SPM, False, b, stride, b_count, b_size))
        if flags >> MatrixFlag.GROUP_SCALES & 1:
            scales = (depth - 1 >> int(row[_F["group"]])) + 1
            found.append(_access("scales", SPM, False, b + depth * dim // 2, stride, columns, scales))
    found.append(_access("C", ACC, True, c, int(row[_F["c_stride"]]), columns, m))
    return found


def _vector(row: np.ndarray, out: np.ndarray, dim: int) -> list[Access]:
    op, flags = int(out[OUT["op"]]), int(out[OUT["flags"]])
    m, n = int(out[OUT["m"]]), int(out[OUT["n"]])
    src0, src1, dst = (int(out[OUT[name]]) for name in ("row0", "row1", "row2"))
    stride0, stride_d = int(row[_F["src0_stride"]]), int(row[_F["dst_stride"]])
    groups = -(-n // dim)
    if op == VOp.TABLE:
        return [_access("src0", SPM, False, src0, 0, 1, -(-256 // dim))]
    found = []
    planes = 2 if op in (VOp.RMS_STAT, VOp.RMS_APPLY) else 1
    space = SPM if op in (VOp.PRODUCT, VOp.ADD, VOp.RMS_STAT, VOp.RMS_APPLY) else ACC
    for plane in range(planes):
        found.append(_access("src0", space, False, src0 + plane * (stride0 // 2), stride0, groups, m))
    parameters = 2 if op == VOp.RMS_APPLY else 0
    if op in (VOp.REQUANT, VOp.ROPE):
        parameters = 3 * (flags >> VectorFlag.COLUMN & 1) + 4 * (flags >> VectorFlag.BIAS & 1)
    if parameters:
        found.append(_access("parameters", SPM, False, src1, 0, 1, parameters * groups))
    if op in (VOp.PRODUCT, VOp.ADD):
        stride1 = int(row[_F["aux"]]) if op == VOp.PRODUCT else stride0
        found.append(_access("src1", SPM, False, src1, stride1, groups, m))
    if op == VOp.ROPE:
        count = m << (int(row[_F["period"]]) + 2)
        found.append(_access("angles", SPM, False, int(row[_F["aux"]]), 0, 1, count))
    if op in (VOp.RMS_STAT, VOp.SOFTMAX_MAX):
        return found
    residual = op == VOp.REQUANT and flags >> VectorFlag.RESIDUAL & 1
    wide = residual or op in (VOp.REQUANT, VOp.ADD) and flags >> VectorFlag.WIDE & 1
    starts = dst + stride_d * np.arange(groups)
    if wide:
        starts = np.stack((starts, starts + stride_d // 2))
    spans, twice = _spans(starts, m)
    if residual:
        found.append(Access("residual", SPM, False, spans, twice, (dst, stride_d)))
    found.append(Access("dst", SPM, True, spans, twice, (dst, stride_d)))
    return found


def accesses(row: np.ndarray, out: np.ndarray, config: Config) -> list[Access]:
    """What one command touches: its row of the decoded table and of :func:`gemmule.resolve.resolve`."""
    if out[OUT["zero"]]:
        return []
    kind = {Unit.LOAD: _move, Unit.STORE: _move, Unit.MATRIX: _matrix, Unit.VECTOR: _vector}
    return kind[Unit(int(out[OUT["unit"]]))](row, out, config.dim)


def common(a: np.ndarray, b: np.ndarray) -> tuple[int, int] | None:
    """First common part of two sorted interval lists."""
    at = np.searchsorted(b[:, 1], a[:, 0], side="right")  # first interval of b that ends after a starts
    inside = at < len(b)
    hit = np.flatnonzero(inside & (b[np.minimum(at, len(b) - 1), 0] < a[:, 1]))
    if not len(hit):
        return None
    i, j = hit[0], at[hit[0]]
    return int(max(a[i, 0], b[j, 0])), int(min(a[i, 1], b[j, 1]))
