"""Matrix commands on data: both dataflows give the same sums, int4 weights are unpacked and scaled, or shifted."""

from __future__ import annotations

from functools import cache

import numpy as np

from gemmule.isa import TABLE_FIELDS, MatrixFlag
from gemmule.resolve import OUT
from gemmule.sim.compiled import kept
from gemmule.sim.functional.memory import Memory

__all__ = ["matrix"]

_A_STRIDE, _B_STRIDE, _C_STRIDE, _GROUP = (
    TABLE_FIELDS.index(name) for name in ("a_stride", "b_stride", "c_stride", "group"))
_MOST_SHIFT = 4
"""Of a nibble, which then is the upper half of a byte."""
_M, _N, _K, _A, _B, _C, _FLAGS = (OUT[name] for name in ("m", "n", "k", "row0", "row1", "row2", "flags"))


def matrix(memory: Memory, raw: list[int], row: list[int]) -> None:
    """C[M, N] (+)= A[M, K] . B[K, N] in int32 with wrap; whole C rows are written, lanes beyond N as 0.

    A weight-stationary command leaves its last tile in ``memory.weights``; REUSE multiplies whole rows
    of A by that.
    """
    dim, m, n = memory.dim, row[_M], row[_N]
    flags = _flags(row[_FLAGS])
    groups = -(-n // dim)
    total = np.zeros((m, groups * dim), dtype=np.int32)
    a = _left(memory, raw, row, flags)
    if MatrixFlag.REUSE in flags:
        _multiply(a, memory.weights[:], total)
    else:
        b = _right(memory, raw, row, flags)
        if MatrixFlag.B_TRANSPOSED in flags:
            _multiply_transposed(a, b, total)
        else:
            _multiply(a, b, total)
            total[:, n:] = 0
        if MatrixFlag.OUTPUT_STATIONARY not in flags:
            _keep(memory, b.T if MatrixFlag.B_TRANSPOSED in flags else b, row[_K], n)
    add = MatrixFlag.ACCUMULATE in flags
    c = memory.acc_view(row[_C], raw[_C_STRIDE], m, groups, mode="rw" if add else "w")
    result = total.reshape(m, groups, dim)
    if add:
        c += result
    else:
        c[...] = result


@cache
def _flags(bits: int) -> frozenset[MatrixFlag]:
    return frozenset(flag for flag in MatrixFlag if bits >> flag & 1)


def _left(memory: Memory, raw: list[int], row: list[int], flags: frozenset[MatrixFlag]) -> np.ndarray:
    """A as int32 ``[M, K]``; with REUSE whole rows ``[M, DIM]``."""
    dim, m, k = memory.dim, row[_M], row[_K]
    dtype = np.uint8 if MatrixFlag.A_UNSIGNED in flags else np.int8
    if MatrixFlag.A_TRANSPOSED in flags:
        view = memory.spm_view(row[_A], raw[_A_STRIDE], k, -(-m // dim), dtype)
        return np.ascontiguousarray(view.reshape(k, -1)[:, :m].T, dtype=np.int32)
    view = memory.spm_view(row[_A], raw[_A_STRIDE], m, -(-k // dim), dtype).reshape(m, -1)
    return view[:, :dim if MatrixFlag.REUSE in flags else k].astype(np.int32)


def _right(memory: Memory, raw: list[int], row: list[int], flags: frozenset[MatrixFlag]) -> np.ndarray:
    """B as int8 ``[K, whole blocks of N]``, or ``[N, whole blocks of K]`` when it is transposed."""
    dim, rows, width = memory.dim, row[_K], row[_N]
    if MatrixFlag.B_TRANSPOSED in flags:
        rows, width = width, rows
    groups, stride = -(-width // dim), raw[_B_STRIDE]
    if MatrixFlag.B_INT4 not in flags:
        return memory.spm_view(row[_B], stride, rows, groups, np.int8).reshape(rows, -1)
    packed = memory.spm_view(row[_B], stride, -(-rows // 2), groups)
    b = np.empty((rows, groups * dim), dtype=np.int8)
    _unpack(packed.reshape(len(packed), -1), b)
    if MatrixFlag.GROUP_SCALES in flags:
        depth = -(-rows // dim)
        first = row[_B] + depth * dim // 2
        scales = memory.spm_view(first, stride, (depth - 1 >> raw[_GROUP]) + 1, groups) & 15
        b *= scales.reshape(len(scales), -1)[np.arange(rows) // dim >> raw[_GROUP]].view(np.int8)
    else:
        b <<= min(raw[_GROUP], _MOST_SHIFT)
    return b


def _keep(memory: Memory, b: np.ndarray, k: int, n: int) -> None:
    """The last tile of B ``[K.., N..]`` stays in the mesh, 0 beyond K and N."""
    dim = memory.dim
    k0, n0 = (k - 1) // dim * dim, (n - 1) // dim * dim
    if k - k0 < dim or n - n0 < dim:
        memory.weights[:] = 0
    memory.weights[:k - k0, :n - n0] = b[k0:k, n0:n]


@kept()
def _unpack(packed, out):  # type: ignore[no-untyped-def]
    """int4 of uint8 ``packed[rows / 2, width]`` to int8 ``out[rows, width]``, the even row in the low nibbles."""
    for i in range(out.shape[0]):
        for lane in range(out.shape[1]):
            nibble = np.int32(packed[i >> 1, lane]) >> 4 * (i & 1) & 15
            out[i, lane] = (nibble ^ 8) - 8


# Compiled loops rather than a BLAS product: exact without a limit on K, and no threads to wake for
# the small products of a decoding step.
@kept()
def _multiply(a, b, out):  # type: ignore[no-untyped-def]
    """out[m, width] += a[m, k] . b[k, width]; int32, int8, int32. Four rows of b at a time."""
    k, width = b.shape
    for i in range(a.shape[0]):
        for j in range(0, k - k % 4, 4):
            x0, x1, x2, x3 = a[i, j], a[i, j + 1], a[i, j + 2], a[i, j + 3]
            for lane in range(width):
                out[i, lane] += (x0 * np.int32(b[j, lane]) + x1 * np.int32(b[j + 1, lane])
                                 + x2 * np.int32(b[j + 2, lane]) + x3 * np.int32(b[j + 3, lane]))
        for j in range(k - k % 4, k):
            for lane in range(width):
                out[i, lane] += a[i, j] * np.int32(b[j, lane])


@kept()
def _multiply_transposed(a, b, out):  # type: ignore[no-untyped-def]
    """out[m, n] = a[m, k] . b[n, whole rows of k].T; columns of ``out`` beyond n stay as they are."""
    m, k = a.shape
    for i in range(m):
        for j in range(b.shape[0]):
            total = np.int32(0)
            for lane in range(k):
                total = np.int32(total + np.int32(a[i, lane] * np.int32(b[j, lane])))
            out[i, j] = total
