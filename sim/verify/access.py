"""Which rows and bytes a resolved command touches: exact intervals per operand."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gemmule.config import Config
from gemmule.isa import TABLE_FIELDS, MatrixFlag, MoveFlag, SelectFlag, SOp, Unit, VectorFlag, VOp
from gemmule.resolve import OUT

__all__ = ["ACC", "DRAM", "SPACES", "SPM", "Access", "accesses", "common"]

SPACES = ("scratchpad rows", "accumulator rows", "DRAM bytes", "list entries", "predicates", "keys",
          "committed importance", "shadow importance", "running maxima")
SPM, ACC, DRAM, LIST, PREDICATE, KEYS, COMMITTED, SHADOW, RUNNING = range(len(SPACES))
_WORD_TABLE_ENTRIES = 513
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


def _access(operand: str, space: int, write: bool, first: int, stride: int, count: int, size: int,
            planes: int = 1) -> Access:
    """``count`` groups of ``size`` rows, a stride apart; the second plane stands half a stride further on."""
    starts = first + stride * np.arange(count)
    if planes == 2:
        starts = np.stack((starts, starts + stride // 2))
    spans, twice = _spans(starts, size)
    return Access(operand, space, write, spans, twice, (first, stride))


def _run(operand: str, space: int, write: bool, first: int, count: int) -> Access:
    """A run of rows or entries."""
    return _access(operand, space, write, first, 0, 1, count)


def _move(row: np.ndarray, out: np.ndarray, dim: int) -> list[Access]:
    load, flags = bool(out[OUT["unit"]] == Unit.LOAD), int(out[OUT["flags"]])
    accumulator, narrow, add, zero, broadcast, indexed = (flags >> flag & 1 for flag in MoveFlag)
    rows, size = int(out[OUT["m"]]), int(row[_F["bytes"]])
    width = 4 * dim if accumulator and not narrow else dim
    blocks = -(-size // width)
    lines = (out[OUT["row0"]] + row[_F["row_stride"]] * np.arange(rows)[:, None]
             + row[_F["block_stride"]] * np.arange(blocks)[None, :])
    spans, twice = _spans(lines, 1)
    found = [Access("rows", ACC if accumulator else SPM, load, spans, twice)]
    if add:
        found.append(Access("sums", ACC, False, spans, twice))
    if indexed:  # any of the rows that the limit allows
        found.append(_run("list", LIST, False, int(row[_F["list"]]), rows))
        rows = int(row[_F["last_index"]]) + 1
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
    if op in (VOp.TABLE, VOp.WORD_TABLE):
        rows = -(-256 // dim) if op == VOp.TABLE else 2 * -(-_WORD_TABLE_ENTRIES // dim)
        return [_run("src0", SPM, False, src0, rows)]
    norm, softmax = op in (VOp.NORM_STAT, VOp.NORM_APPLY), op in (VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM)
    space = SPM if norm or op in (VOp.PRODUCT, VOp.ADD) else ACC
    found = [_access("src0", space, False, src0, stride0, groups, m, 2 if norm else 1)]
    bias = flags >> VectorFlag.BIAS & 1
    parameters = 2 + 4 * bias if op == VOp.NORM_APPLY else 0
    if op in (VOp.REQUANT, VOp.ROPE, VOp.I_GELU):
        parameters = 3 * (flags >> VectorFlag.COLUMN & 1) + 4 * bias
    if parameters:
        found.append(_run("parameters", SPM, False, src1, parameters * groups))
    if op in (VOp.PRODUCT, VOp.ADD):
        stride1 = int(row[_F["aux"]]) if op == VOp.PRODUCT else stride0
        found.append(_access("src1", SPM, False, src1, stride1, groups, m))
    if op == VOp.ROPE:
        found.append(_run("angles", SPM, False, int(row[_F["aux"]]), m << (int(row[_F["period"]]) + 2)))
    if softmax and flags >> VectorFlag.TREE & 1:
        found.append(_run("bitmaps", SPM, False, src1, m))
    if op in (VOp.NORM_STAT, VOp.SOFTMAX_MAX, VOp.ABSMAX):
        return found
    residual = op == VOp.REQUANT and flags >> VectorFlag.RESIDUAL & 1
    wide = residual or flags >> VectorFlag.WIDE & 1  # no operation has another flag on this bit
    target = _access("dst", ACC if op == VOp.RESCALE else SPM, True, dst, stride_d, groups, m, 2 if wide else 1)
    if residual:
        found.append(replace(target, operand="residual", write=False))
    return [*found, target]


def _select(row: np.ndarray, out: np.ndarray, dim: int) -> list[Access]:
    op, flags = int(out[OUT["op"]]), int(out[OUT["flags"]])
    m, n = (int(out[OUT[name]]) for name in ("m", "n"))
    src0, dst = int(out[OUT["row0"]]), int(out[OUT["row2"]])
    stride, first = int(row[_F["src0_stride"]]), int(row[_F["first"]])
    groups, list_rows = -(-n // dim), -(-n // (dim // 2))

    def operand(rows: int, planes: int = 1 + (flags >> SelectFlag.WIDE & 1)) -> Access:
        return _access("src0", SPM, False, src0, stride, groups, rows, planes)

    def update(space: int, low: int, count: int) -> list[Access]:
        return [_run("sums", space, write, low, count) for write in (False, True)]

    if op == SOp.ARGMAX:
        again = flags >> SelectFlag.CONTINUE & 1
        maxima = update(RUNNING, 0, m) if again else [_run("maxima", RUNNING, True, 0, m)]
        return [operand(m, 2), *maxima, _run("dst", LIST, True, dst, m)]
    if op == SOp.KEYS:
        important = flags >> SelectFlag.FROM_IMPORTANCE & 1
        source = _run("importance", COMMITTED, False, first, n) if important else operand(1, 2)
        return [source, _run("dst", KEYS, True, dst, n)]
    if op == SOp.TOP_K:
        kept = min(n, int(out[OUT["k"]]))
        # The survivors move forward, behind what has been read.
        return [_run("sums", KEYS, False, 0, n), _run("sums", KEYS, True, 0, kept), _run("dst", LIST, True, dst, kept)]
    if op == SOp.IMPORTANCE:
        return [operand(m), *update(SHADOW, first, n)]
    if op == SOp.COMMIT:
        return [*update(SHADOW, first, n), *update(COMMITTED, first, n)]
    if op == SOp.COMPARE:
        return [operand(m), _run("result", PREDICATE, True, int(row[_F["number"]]), 1)]
    if op == SOp.LIST_LOAD:
        return [_run("src0", SPM, False, src0, list_rows), _run("dst", LIST, True, dst, n)]
    return [_run("list", LIST, False, first, n), _run("dst", SPM, True, dst, list_rows)]


def accesses(row: np.ndarray, out: np.ndarray, config: Config) -> list[Access]:
    """What one command touches: its row of the decoded table and of :func:`gemmule.resolve.resolve`.

    A command with a predicate reads that; what it may touch counts as touched.
    """
    if out[OUT["zero"]]:
        return []
    kind = {Unit.LOAD: _move, Unit.STORE: _move, Unit.MATRIX: _matrix, Unit.VECTOR: _vector, Unit.SELECT: _select}
    found = kind[Unit(int(out[OUT["unit"]]))](row, out, config.dim)
    predicate = int(row[_F["predicate"]])
    if predicate:
        found.append(_run("predicate", PREDICATE, False, predicate, 1))
    return found


def common(a: np.ndarray, b: np.ndarray) -> tuple[int, int] | None:
    """First common part of two sorted interval lists."""
    if len(a) == len(b) == 1:  # most are one run
        (low, high), (from_, to) = a[0].tolist(), b[0].tolist()
        return (max(low, from_), min(high, to)) if low < to and from_ < high else None
    at = np.searchsorted(b[:, 1], a[:, 0], side="right")  # first interval of b that ends after a starts
    inside = at < len(b)
    hit = np.flatnonzero(inside & (b[np.minimum(at, len(b) - 1), 0] < a[:, 1]))
    if not len(hit):
        return None
    i, j = hit[0], at[hit[0]]
    return int(max(a[i, 0], b[j, 0])), int(min(a[i, 1], b[j, 1]))
