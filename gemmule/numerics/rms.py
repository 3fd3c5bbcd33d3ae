"""RMSNorm on int16 rows with an exact integer sum of squares."""

from __future__ import annotations

from math import isqrt

import numpy as np

from .fixed import rshr, saturate

__all__ = ["rms_apply", "rms_statistic"]

MAX_EPSILON_SHIFT = 40


def rms_statistic(x: np.ndarray, mult: int, shift: int) -> tuple[np.ndarray, np.ndarray]:
    """Reciprocal root of each row ``x[rows, n]`` (int16): (r, h), r 18 bits, h in -15..16.

    Q = sum x**2; V = n * Q + (mult << min(shift, 40)), at least 1 (63 bits; the added term is the
    epsilon eps * n**2 / scale**2); an even shift 2h brings V to a mantissa in [2**30, 2**32) (floor);
    r = floor(2**32 / isqrt(mantissa)), in (2**16, 2**17].
    """
    n = x.shape[1]
    squares = (np.asarray(x, dtype=np.int64) ** 2).sum(axis=1)
    r, h = [], []
    for q in squares:
        v = max(1, n * int(q) + (mult << min(shift, MAX_EPSILON_SHIFT)))
        half = (v.bit_length() + 1) // 2 - 16
        mantissa = v >> 2 * half if half >= 0 else v << -2 * half
        r.append((1 << 32) // isqrt(mantissa))
        h.append(half)
    return np.array(r, dtype=np.int64), np.array(h, dtype=np.int64)


def rms_apply(x: np.ndarray, r: np.ndarray, h: np.ndarray, gamma: np.ndarray, shift: int) -> np.ndarray:
    """``sat8(rshr(xh * gamma, min(shift, 47)))`` with ``xh = sat16(rshr(n * x * r, 22 + h))`` in Q5.10.

    x int16 ``[rows, n]``, gamma int16 ``[n]``; int64 out. xh is within 5.5e-4 of x / rms(x).
    """
    n = x.shape[1]
    xh = saturate(rshr(n * np.asarray(x, dtype=np.int64) * r[:, None], 22 + h[:, None]), 16)
    return saturate(rshr(xh * np.asarray(gamma, dtype=np.int64), min(shift, 47)), 8)
