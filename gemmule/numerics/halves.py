"""Halves of bytes: the upper four bits of an int8 number, rounded, and how two of them share a byte."""

from __future__ import annotations

import numpy as np

from .fixed import requant

__all__ = ["HALF_BITS", "LEAST_HALF", "MOST_HALF", "pack_halves", "upper_half"]

HALF_BITS, LEAST_HALF, MOST_HALF = 4, -8, 7


def upper_half(x: np.ndarray) -> np.ndarray:
    """``requant(x, 1, 4)`` within -8 .. 7, int64: the nearest number of 16ths, at most 7, so of 120 .. 127 too."""
    return np.clip(requant(np.asarray(x, dtype=np.int64), 1, HALF_BITS), LEAST_HALF, MOST_HALF)


def pack_halves(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """uint8: numbers of -8 .. 7 in the low and in the high nibbles."""
    return (low & 15 | (high & 15) << HALF_BITS).astype(np.uint8)
