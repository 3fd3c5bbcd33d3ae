"""LayerNorm and RMSNorm on int16 rows: exact sums, one reciprocal root a row."""

from __future__ import annotations

import numpy as np

from .fixed import MAX_SHIFT, bit_length, rshr, saturate

__all__ = ["norm_fraction", "norm_statistic", "normalize"]

MAX_EPSILON_SHIFT = 40


def norm_statistic(x: np.ndarray, mult: int, shift: int, *,
                   mean: bool, round_mean: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sum and reciprocal root of each row ``x[rows, n]`` (int16): (s, r, h).

    s = sum x with ``mean`` (LayerNorm; 29 bits for n = 8192), else 0 (RMSNorm). Q = sum x**2;
    V = n * Q - s**2 + (mult << min(shift, 40)), at least 1 (63 bits; the added term is the epsilon,
    eps * n**2 / scale**2). n * Q - s**2 is n**2 times the variance, exact: adding a constant to a row changes
    nothing. An even shift 2h brings V to a mantissa in [2**30, 2**32) (floor); r = floor(2**32 /
    isqrt(mantissa)), in (2**16, 2**17], 18 bits; h in -15..16.

    ``round_mean`` (with ``mean``): I-BERT's integer mean, for comparison (Kim et al., ICML 2021, algorithm 4). mu =
    sat16(rshr(sum x * mult, min(shift, 47))) with mult / 2**shift = 1 / n, s = n * mu, and V = n * Q - (sum x)**2
    + sat18(s - sum x)**2, which is n * sum (x - mu)**2; no epsilon.
    """
    n = x.shape[1]
    wide = np.asarray(x, dtype=np.int64)
    sums = wide.sum(axis=1) if mean else np.zeros(len(wide), dtype=np.int64)
    centres, more = sums, np.full(len(wide), mult << min(shift, MAX_EPSILON_SHIFT), dtype=np.int64)
    if round_mean:
        centres = n * saturate(rshr(sums * mult, min(shift, MAX_SHIFT)), 16)
        more = saturate(centres - sums, 18) ** 2
    v = np.maximum(n * (wide ** 2).sum(axis=1) - sums ** 2 + more, 1)
    half = (bit_length(v) + 1) // 2 - 16
    mantissa = v >> np.maximum(2 * half, 0) << np.maximum(-2 * half, 0)
    root = np.sqrt(mantissa.astype(np.float64)).astype(np.int64)  # exact: below 2**52 no root rounds up to the next
    return centres, (1 << 32) // root, half


def norm_fraction(n: int) -> int:
    """Fraction bits of a normalised value in a row of ``n``, of 16: it reaches sqrt(n), at most 32, 64 or 128."""
    return 10 - (n > 1 << 10) - (n > 1 << 12)


def normalize(x: np.ndarray, s: np.ndarray, r: np.ndarray, h: np.ndarray, gamma: np.ndarray, shift: int, *,
              beta: np.ndarray | None = None, bits: int = 8) -> np.ndarray:
    """``sat(rshr(xh * gamma + beta, min(shift, 47)))`` with ``xh = sat16(rshr((n * x - s) * r, 32 - f + h))``.

    x int16 ``[rows, n]``, gamma int16 ``[n]``, beta int32 ``[n]`` (on the scale of xh * gamma); int64 out,
    saturated to ``bits``. xh has f = ``norm_fraction(n)`` fraction bits (Q5.10 up to 1,024 columns) and is (x - mean) /
    sigma to 8e-5 of itself and 5.5e-4 with 10 of them, 1.1e-3 with 9, 2.1e-3 with 8.
    """
    n = x.shape[1]
    centred = n * np.asarray(x, dtype=np.int64) - s[:, None]
    xh = saturate(rshr(centred * r[:, None], 32 - norm_fraction(n) + h[:, None]), 16)
    scaled = xh * np.asarray(gamma, dtype=np.int64)
    if beta is not None:
        scaled = scaled + np.asarray(beta, dtype=np.int64)
    return saturate(rshr(scaled, min(shift, MAX_SHIFT)), bits)
