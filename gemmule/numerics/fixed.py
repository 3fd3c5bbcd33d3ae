"""Rounding shift, saturation, requantisation."""

from __future__ import annotations

import numpy as np

__all__ = ["MAX_SHIFT", "bit_length", "requant", "requant_row", "row_multiplier", "rshr", "saturate"]

MAX_SHIFT = 47
"""Requantisation shifts are taken modulo 64 and then limited to this."""


def rshr(x: np.ndarray | int, s: np.ndarray | int) -> np.ndarray:
    """Rounding arithmetic right shift, half up: ``(x + 2**(s-1)) >> s``; s = 0 returns x.

    int64 in and out; |x| < 2**62, 0 <= s <= 62. Equals TFLite's single rounding and CMSIS-NN's.
    """
    x = np.asarray(x, dtype=np.int64)
    if isinstance(s, int):  # of a command: numpy's own scalars take as long as a row
        return (x + (1 << s >> 1)) >> s
    s = np.asarray(s, dtype=np.int64)
    return (x + ((np.int64(1) << s) >> 1)) >> s


def bit_length(x: np.ndarray) -> np.ndarray:
    """Bits of each number of 0 .. 2**63 - 1, int64; 0 has none."""
    x = np.asarray(x, dtype=np.int64)
    high = x >> 32  # both halves are exact as float64
    return np.where(high > 0, 32 + np.frexp(high)[1], np.frexp(x & 0xFFFFFFFF)[1]).astype(np.int64)


def saturate(x: np.ndarray, bits: int) -> np.ndarray:
    """Clamp to signed ``bits``: [-2**(bits-1), 2**(bits-1) - 1]; int64 out."""
    # not np.clip, whose checks take longer than the work on a row
    return np.minimum(np.maximum(np.asarray(x, dtype=np.int64), -(1 << (bits - 1))), (1 << (bits - 1)) - 1)


def requant(acc: np.ndarray, mult: np.ndarray | int, shift: np.ndarray | int) -> np.ndarray:
    """``rshr(acc * mult, min(shift % 64, 47))``, not saturated.

    acc int32, mult unsigned 16 bits (17 bits from :func:`row_multiplier`), result int64 (at most 49
    bits). One rounding. Against exact scaling with a 16-bit mantissa: at most 1 LSB, on less than
    4e-4 of int8 results.
    """
    if isinstance(shift, int):
        shift = min(shift & 63, MAX_SHIFT)
    else:
        shift = np.minimum(np.asarray(shift, dtype=np.int64) & 63, MAX_SHIFT)
    mult = mult if isinstance(mult, int) else np.asarray(mult, dtype=np.int64)
    return rshr(np.asarray(acc, dtype=np.int64) * mult, shift)


def row_multiplier(reciprocal: np.ndarray, length: np.ndarray, mult: np.ndarray | int,
                   shift: np.ndarray | int) -> tuple[np.ndarray, np.ndarray]:
    """Fold a softmax reciprocal (R, L) into a multiplier and shift.

    The context is ``acc * R * 2**(12 - 15 - L) * mult * 2**-shift``. Z = R * mult (33 bits) is rounded
    to a mantissa: ``e = 16 if Z >= 2**31 else 15; m = rshr(Z, e)`` (at most 17 bits) and the shift is
    ``shift + 3 + L - e`` limited to 0..47.
    """
    z = np.asarray(reciprocal, dtype=np.int64) * mult
    e = np.where(z >= 1 << 31, 16, 15)
    total = (shift & 63) + 3 + np.asarray(length, dtype=np.int64) - e
    return rshr(z, e), np.clip(total, 0, MAX_SHIFT)


def requant_row(acc: np.ndarray, reciprocal: np.ndarray, length: np.ndarray, mult: np.ndarray | int,
                shift: np.ndarray | int) -> np.ndarray:
    """Requantise ``acc[rows, columns]`` with each row's softmax reciprocal, not saturated.

    ``mult`` and ``shift`` are all rows' or int64 [rows].
    """
    m, s = row_multiplier(reciprocal, length, mult, shift)
    return rshr(np.asarray(acc, dtype=np.int64) * m[:, None], s[:, None])
