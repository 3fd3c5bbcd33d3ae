"""Halves of bytes: the upper four bits of an int8 number, rounded, and how two of them share a byte."""

from __future__ import annotations

import numpy as np

from .fixed import requant

__all__ = ["HALF_BITS", "LEAST_HALF", "MOST_HALF", "halved", "pack_halves", "pack_rows", "upper_half"]

HALF_BITS, LEAST_HALF, MOST_HALF = 4, -8, 7


def upper_half(x: np.ndarray) -> np.ndarray:
    """``requant(x, 1, 4)`` within -8 .. 7, int64: the nearest number of 16ths, at most 7, so of 120 .. 127 too."""
    return np.clip(requant(np.asarray(x, dtype=np.int64), 1, HALF_BITS), LEAST_HALF, MOST_HALF)


def halved(x: np.ndarray) -> np.ndarray:
    """int8 numbers with lower halves of 0: what is left of them with 4 bits."""
    return (upper_half(x) << HALF_BITS).astype(np.int8)


def pack_rows(x: np.ndarray, pairs: int) -> np.ndarray:
    """int8 rows of which the first ``2 * pairs`` become ``pairs``: row i and row ``pairs + i`` share bytes.

    Of these rows the lower halves are 0.
    """
    low, high = (x[at:at + pairs].astype(np.int64) >> HALF_BITS for at in (0, pairs))
    return np.concatenate([pack_halves(low, high).view(np.int8), x[2 * pairs:]])


def pack_halves(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """uint8: numbers of -8 .. 7 in the low and in the high nibbles."""
    return (low & 15 | (high & 15) << HALF_BITS).astype(np.uint8)
