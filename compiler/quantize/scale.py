"""Real ratios as the integers by which the device scales: a 16-bit multiplier and a shift."""

from __future__ import annotations

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.numerics import MAX_SHIFT

__all__ = ["MULT_MAX", "pair", "to_mult_shift"]

MULT_MAX = (1 << 16) - 1
"""Largest multiplier of a requantisation."""


def to_mult_shift(ratio: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """A positive ratio as ``mult * 2**-shift``, mult in [2**15, 2**16), shift 0..47.

    A ratio below 2**-32 loses mantissa bits, one below 2**-48 is 0; one of 65536 or more cannot be expressed.
    """
    ratio = np.atleast_1d(np.asarray(ratio, dtype=np.float64))
    mantissa, exponent = np.frexp(ratio)
    mult = np.rint(mantissa * (MULT_MAX + 1)).astype(np.int64)
    shift = 16 - exponent.astype(np.int64)
    over = mult > MULT_MAX
    mult, shift = np.where(over, mult // 2, mult), np.where(over, shift - 1, shift)
    if not np.all(np.isfinite(ratio)) or (ratio < 0).any() or (shift < 0).any():
        raise CompileError(
            f"a requantisation ratio must be from 0 to {MULT_MAX}, not {ratio.max()}: check the model's scales")
    excess = np.maximum(shift - MAX_SHIFT, 0)
    mult = mult >> np.minimum(excess, 63)
    return mult, np.where(mult == 0, 0, shift - excess)


def pair(ratio: float) -> tuple[int, int]:
    """One ratio by :func:`to_mult_shift`."""
    mult, shift = to_mult_shift(ratio)
    return int(mult[0]), int(shift[0])
