"""Exact two-pass softmax: base-2 exponential, unnormalised 8-bit weights, one reciprocal a row.

The row sum is kept at full precision and folded into the context's requantisation, because weights
normalised to 8 bits lose 54 to 88 % of the context on rows of 1024 to 4096 columns.
"""

from __future__ import annotations

import numpy as np

from .fixed import requant, rshr, saturate

__all__ = ["EXP2_TABLE", "exp2", "row_max", "row_weights", "scores", "softmax_reciprocal", "visible"]

EMPTY = -(1 << 23)
"""Maximum of a row without visible columns."""
CLAMP = 40 << 10
EXP2_TABLE = np.array([round(65536 * 2.0 ** (-i / 32)) for i in range(33)], dtype=np.int64)
"""2**16 * 2**(-i/32), 17 bits; interpolated linearly (relative error 8.1e-5)."""


def exp2(d: np.ndarray) -> np.ndarray:
    """``2**(-d)`` for d >= 0 in UQ.10 (clamped to 0..40.0), result UQ1.20 (21 bits).

    n = d >> 10; i = (d & 1023) >> 5; w = d & 31; m = B[i] - rshr((B[i] - B[i+1]) * w, 5);
    p = rshr(m << 4, n). Absolute error at most 1e-4 (of 1.0).
    """
    d = np.clip(np.asarray(d, dtype=np.int64), 0, CLAMP)
    i, w = (d & 1023) >> 5, d & 31
    m = EXP2_TABLE[i] - rshr((EXP2_TABLE[i] - EXP2_TABLE[i + 1]) * w, 5)
    return rshr(m << 4, d >> 10)


def scores(acc: np.ndarray, mult: int, shift: int) -> np.ndarray:
    """Scores in base-2 exponent units, int24 Q13.10: ``sat24(requant(acc, mult, shift))``."""
    return saturate(requant(acc, mult, shift), 24)


def visible(rows: int, columns: int, causal: bool) -> np.ndarray:
    """Visible columns per row: causal row i of m sees ``columns - rows + 1 + i``, within 0..columns."""
    if not causal:
        return np.full(rows, columns, dtype=np.int64)
    return np.clip(columns - rows + 1 + np.arange(rows, dtype=np.int64), 0, columns)


def row_max(t: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Maximum of each row's first ``count`` scores ``t[rows, columns]``; -2**23 when there is none."""
    mask = np.arange(t.shape[1]) < count[:, None]
    return np.where(mask, t, EMPTY).max(axis=1, initial=EMPTY)


def row_weights(t: np.ndarray, maximum: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Unsigned 8-bit weights ``min(255, rshr(p, 12))`` and the sum of the full p, per row.

    p = exp2(max - t) is 0 on masked columns, which are outside the maximum too. Weights are
    ``[rows, columns]`` int64 in 0..255, sums int64 (37 bits).
    """
    mask = np.arange(t.shape[1]) < count[:, None]
    p = np.where(mask, exp2(maximum[:, None] - t), 0)
    return np.minimum(255, rshr(p, 12)), p.sum(axis=1)


def softmax_reciprocal(total: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """R = floor(2**(15 + L) / S) and L = bit length of S; both 0 for S = 0. 2**15 <= R <= 2**16."""
    values = [int(s) for s in np.asarray(total)]
    lengths = [s.bit_length() for s in values]
    ratios = [(1 << (15 + n)) // s if s else 0 for s, n in zip(values, lengths)]
    return np.array(ratios, dtype=np.int64), np.array(lengths, dtype=np.int64)
