"""Halves of bytes: the upper four bits of an int8 number, rounded, and how two of them share a byte."""

from __future__ import annotations

import numpy as np

from .fixed import requant, requant_row, saturate

__all__ = [
    "FLAT", "HALF_BITS", "LEAST_HALF", "MOST_HALF", "flat_rows", "flat_scaling", "halved", "lower_half", "pack_halves",
    "pack_rows", "upper_half", "whole_planes",
]

HALF_BITS, LEAST_HALF, MOST_HALF = 4, -8, 7


def upper_half(x: np.ndarray) -> np.ndarray:
    """``requant(x, 1, 4)`` within -8 .. 7, int64: the nearest number of 16ths, at most 7, so of 120 .. 127 too."""
    return np.clip(requant(np.asarray(x, dtype=np.int64), 1, HALF_BITS), LEAST_HALF, MOST_HALF)


def whole_planes(x: np.ndarray) -> np.ndarray:
    """What both halves hold of int8 numbers: the numbers, but at most 119, as lower halves are of -8 .. 7."""
    return np.minimum(np.asarray(x, dtype=np.int64), (MOST_HALF << HALF_BITS) + MOST_HALF)


def lower_half(x: np.ndarray) -> np.ndarray:
    """What the upper half lacks of :func:`whole_planes`, -8 .. 7, int64."""
    return whole_planes(x) - (upper_half(x) << HALF_BITS)


FLAT = 64
"""A row's largest probability in units of a threshold's 64th, below which the row is flat."""


def flat_scaling(below: float) -> tuple[int, int]:
    """(mult, shift) with which ``requant_row(FLAT, R, L, ..)`` is a row's largest probability in such units."""
    shift = 0
    while (mult := round(256 / below * 2**shift)) < 1 << 15:
        shift += 1
    return mult, shift


def flat_rows(reciprocal: np.ndarray, length: np.ndarray, below: float) -> np.ndarray:
    """Whether each row's largest probability is below a threshold, bool; (R, L) about the row's own maximum."""
    units = np.full((len(reciprocal), 1), FLAT, dtype=np.int64)
    return saturate(requant_row(units, reciprocal, length, *flat_scaling(below)), 8)[:, 0] < FLAT


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
