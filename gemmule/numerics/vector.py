"""Result stage of the vector unit: saturation, residual, activation, planes."""

from __future__ import annotations

import numpy as np

from .fixed import MAX_SHIFT, requant, rshr, saturate

__all__ = [
    "add", "join_planes", "lookup", "product", "requant_store", "split_planes",
]


def lookup(y: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Byte table on int8 values: ``table[y & 255]`` as int8 (int64 out); table is uint8[256]."""
    return table[np.asarray(y, dtype=np.int64) & 255].astype(np.int8).astype(np.int64)


def product(a: np.ndarray, b: np.ndarray, mult: int, shift: int, *, bits: int = 8) -> np.ndarray:
    """Elementwise product of int8 or int16 operands, requantised: ``sat(requant(a * b, mult, shift))``.

    Saturated to ``bits``. |a * b| of int16 operands is at most 2**30. int64 out.
    """
    return saturate(requant(np.asarray(a, dtype=np.int64) * b, mult, shift), bits)


def add(a: np.ndarray, b: np.ndarray, mult_a: int, mult_b: int, shift: int) -> np.ndarray:
    """Sum of two int8 operands with two scales, one rounding: ``rshr(a * mult_a + b * mult_b, shift)``.

    Multipliers are unsigned 16 bits on one exponent, so the smaller scale has the coarser mantissa;
    the shift is taken modulo 64 and limited to 47. Not saturated; int64 out.
    """
    total = np.asarray(a, dtype=np.int64) * mult_a + np.asarray(b, dtype=np.int64) * mult_b
    return rshr(total, min(shift & 63, MAX_SHIFT))


def requant_store(v: np.ndarray, *, relu: bool = False, wide: bool = False,
                  residual: np.ndarray | None = None, limits: tuple[int, int] | None = None,
                  table: np.ndarray | None = None) -> np.ndarray:
    """From a requantised value to what is stored: ReLU, then int16 (residual, wide) or int8 (+ table).

    ``sat16(max(v, 0)? + residual)`` when there is a residual (the caller has rescaled it) or wide, else
    ``sat8``, the limits (first the lower, then the upper) and the byte table, which do not apply to
    int16 results.
    """
    if relu:
        v = np.maximum(v, 0)
    if residual is not None:
        return saturate(v + residual, 16)
    if wide:
        return saturate(v, 16)
    y = saturate(v, 8)
    if limits is not None:
        y = np.minimum(np.maximum(y, limits[0]), limits[1])
    return y if table is None else lookup(y, table)


def split_planes(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int16 values to (low, high) byte planes, uint8."""
    word = np.asarray(x, dtype=np.int64)
    return (word & 255).astype(np.uint8), (word >> 8 & 255).astype(np.uint8)


def join_planes(low: np.ndarray, high: np.ndarray, *, signed: bool = True) -> np.ndarray:
    """(low, high) uint8 planes to int16 (or uint16) values, int64 out."""
    word = low.astype(np.uint16) | high.astype(np.uint16) << 8
    return (word.view(np.int16) if signed else word).astype(np.int64)
