"""What the commands do to data, bit-exact, in program order.

The verifier proves a program free of races, so every legal order gives these bytes. Vector
operations stand in ``functional_vector.py``; all their arithmetic is ``gemmule/numerics``.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from gemmule.isa import TABLE_FIELDS, MatrixFlag
from gemmule.resolve import OUT
from gemmule.sim.functional_vector import vector
from gemmule.sim.memory import Memory

__all__ = ["execute"]

_LENGTHS = ("m", "n", "k", "address", "row0", "row1", "row2")


def execute(memory: Memory, table: np.ndarray, resolved: np.ndarray, count: int) -> None:
    """Run the first ``count`` commands of a decoded and resolved program on ``memory``."""
    units = (_load, _store, _matrix, vector)
    zero, unit = OUT["zero"], OUT["unit"]
    raw_rows, rows = table[:count].tolist(), resolved[:count].tolist()
    for raw, row in zip(raw_rows, rows):
        if not row[zero]:
            units[row[unit]](memory, raw, row)


def _field(name: str) -> int:
    return TABLE_FIELDS.index(name)


_STRIDE, _BYTES, _ROW_STRIDE, _BLOCK_STRIDE = map(_field, ("stride", "bytes", "row_stride", "block_stride"))
_A_STRIDE, _B_STRIDE, _C_STRIDE = map(_field, ("a_stride", "b_stride", "c_stride"))
_M, _N, _K, _ADDRESS, _ROW0, _ROW1, _ROW2 = (OUT[name] for name in _LENGTHS)
_FLAGS = OUT["flags"]


def _move(memory: Memory, raw: list[int], row: list[int]) -> list[tuple[np.ndarray, np.ndarray]]:
    """(DRAM view, scratchpad view) of the whole blocks and of the last partial block of every row."""
    dim, rows, size, stride, address = memory.dim, row[_M], raw[_BYTES], raw[_STRIDE], row[_ADDRESS]
    end = address + (rows - 1) * stride + size
    if end > len(memory.dram):
        raise ValueError(
            f"DRAM addresses must lie below {len(memory.dram)}, not {end}; give the model more dram_bytes")
    whole, rest = divmod(size, dim)
    steps = (raw[_ROW_STRIDE] * dim, raw[_BLOCK_STRIDE] * dim, 1)
    first = row[_ROW0] * dim
    pairs = []
    for blocks, lanes, start in ((whole, dim, 0), (1, rest, whole)):
        if blocks and lanes:
            shape = (rows, blocks, lanes)
            outside = np.ndarray(shape, np.uint8, memory.dram, address + start * dim, (stride, dim, 1))
            inside = np.ndarray(shape, np.uint8, memory.spm, first + start * steps[1], steps)
            pairs.append((outside, inside))
    return pairs


def _load(memory: Memory, raw: list[int], row: list[int]) -> None:
    for outside, inside in _move(memory, raw, row):
        inside[...] = outside


def _store(memory: Memory, raw: list[int], row: list[int]) -> None:
    for outside, inside in _move(memory, raw, row):
        outside[...] = inside


def _matrix(memory: Memory, raw: list[int], row: list[int]) -> None:
    """C[M, N] (+)= A[M, K] . B[K, N] in int32 with wrap; whole C rows are written."""
    dim, m, n, k = memory.dim, row[_M], row[_N], row[_K]
    unsigned, transposed, accumulate = (
        bool(row[_FLAGS] >> flag & 1)
        for flag in (MatrixFlag.A_UNSIGNED, MatrixFlag.B_TRANSPOSED, MatrixFlag.ACCUMULATE))
    depth, groups = -(-k // dim), -(-n // dim)
    a = memory.spm_view(row[_ROW0], raw[_A_STRIDE], m, depth, np.uint8 if unsigned else np.int8)
    a = a.reshape(m, -1)[:, :k].astype(np.int32)
    c = memory.acc_view(row[_ROW2], raw[_C_STRIDE], m, groups)
    total = np.zeros((m, groups * dim), dtype=np.int32)
    if transposed:
        b = memory.spm_view(row[_ROW1], raw[_B_STRIDE], n, depth, np.int8)
        _multiply_transposed(a, b.reshape(n, -1), total)
    else:
        b = memory.spm_view(row[_ROW1], raw[_B_STRIDE], k, groups, np.int8)
        _multiply(a, b.reshape(k, -1), total)
        total[:, n:] = 0
    result = total.reshape(m, groups, dim)
    c[...] = c + result if accumulate else result


# Compiled loops rather than a BLAS product: exact without a limit on K, and no threads to wake for
# the small products of a decoding step.
@njit(cache=True)
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


@njit(cache=True)
def _multiply_transposed(a, b, out):  # type: ignore[no-untyped-def]
    """out[m, n] = a[m, k] . b[n, whole rows of k].T; columns of ``out`` beyond n stay as they are."""
    m, k = a.shape
    for i in range(m):
        for j in range(b.shape[0]):
            total = np.int32(0)
            for lane in range(k):
                total = np.int32(total + np.int32(a[i, lane] * np.int32(b[j, lane])))
            out[i, j] = total
