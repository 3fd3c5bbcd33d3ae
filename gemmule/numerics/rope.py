"""Rotary position embedding on adjacent pairs (RoFormer, equation 34)."""

from __future__ import annotations

import numpy as np

from .fixed import rshr, saturate

__all__ = ["rope"]


def rope(x: np.ndarray, cosine: np.ndarray, sine: np.ndarray, shift: int) -> np.ndarray:
    """Rotate pairs (2i, 2i+1) of ``x[rows, n]`` (int16) and round to int8.

    Even lanes: ``x0 * c - x1 * s``; odd lanes: ``x0 * s + x1 * c``; then ``sat8(rshr(., min(shift, 47)))``.
    cosine and sine are int16 Q1.14 ``[rows, n]`` (each lane uses its own entry; both lanes of a pair
    hold the same value). Sums are 33 bits.
    """
    x = np.asarray(x, dtype=np.int64)
    even, odd = x[:, 0::2], x[:, 1::2]
    out = np.empty_like(x)
    out[:, 0::2] = even * cosine[:, 0::2] - odd * sine[:, 0::2]
    out[:, 1::2] = even * sine[:, 1::2] + odd * cosine[:, 1::2]
    return saturate(rshr(out, min(shift, 47)), 8)
