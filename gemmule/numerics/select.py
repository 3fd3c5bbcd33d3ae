"""Selection: top-K with stable order, argmax, importance of positions."""

from __future__ import annotations

import numpy as np

from .fixed import rshr, saturate

__all__ = [
    "HEAVY_SHIFT", "IMPORTANCE_MAX", "KEY_BITS", "KEY_MAX", "MAX_IMPORTANCE_SHIFT", "MOST_COUNTED", "MOST_GUARDED",
    "accumulate_importance", "argmax_rows", "counted", "heavy_keys", "importance_keys", "nonzero_first",
    "radix_threshold", "top_k",
]

KEY_BITS = 24
KEY_MAX = (1 << KEY_BITS) - 1
MOST_GUARDED = 255
"""Guarded first positions, and last ones, at most: a command has eight bits for either."""
IMPORTANCE_MAX = (1 << 32) - 1
MAX_IMPORTANCE_SHIFT = 31
"""A key shifts importance by at most so much; larger shifts count as this."""
MOST_COUNTED = 255 * 256
"""Of a probability of 1, what running sums count."""
HEAVY_SHIFT = 7
"""Right shift of running sums for 16-bit keys: steps of 1/510, up to 64 probabilities of 1."""
_DIGIT = 4


def radix_threshold(keys: np.ndarray, k: int) -> tuple[int, int]:
    """(T, need): the k-th largest of the unsigned ``keys`` and how many equal to T are kept.

    Radix-16 selection from the most significant digit, as the hardware does it: six passes over
    all keys, each of which fixes four bits of T by counting keys per digit among those that share T's
    prefix. All passes always run. k is from 1 to len(keys).
    """
    threshold, need = 0, k
    for level in range(KEY_BITS // _DIGIT - 1, -1, -1):
        low = _DIGIT * level
        alike = keys[keys >> (low + _DIGIT) == threshold >> (low + _DIGIT)] if low + _DIGIT < KEY_BITS else keys
        counts = np.bincount(alike >> low & 15, minlength=16)
        digit = 15
        while counts[digit] < need:
            need -= int(counts[digit])
            digit -= 1
        threshold |= digit << low
    return threshold, need


def top_k(keys: np.ndarray, k: int) -> np.ndarray:
    """Positions of the k largest keys (unsigned, 24 bits), ascending; of equal keys the first are kept.

    Equals ``sort(argsort(-keys, stable)[:k])``. k >= len(keys) keeps all, k = 0 none. int64 out.
    """
    keys = np.asarray(keys, dtype=np.int64)
    if k <= 0 or not len(keys):
        return np.zeros(0, dtype=np.int64)
    if k >= len(keys):
        return np.arange(len(keys), dtype=np.int64)
    threshold, need = radix_threshold(keys, k)
    equal = keys == threshold
    return np.flatnonzero((keys > threshold) | (equal & (np.cumsum(equal) <= need)))


def nonzero_first(keys: np.ndarray) -> np.ndarray:
    """Positions of the keys that are not 0, ascending, then of the others; int64 ``[n]``."""
    found = np.asarray(keys) != 0
    return np.concatenate([np.flatnonzero(found), np.flatnonzero(~found)])


def argmax_rows(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(index, value) of each row's maximum; the lowest index of equal ones. ``x[rows, n]``, n >= 1."""
    index = np.argmax(x, axis=1)
    return index, np.asarray(x, dtype=np.int64)[np.arange(len(x)), index]


def accumulate_importance(importance: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """``min(importance + column sums of probabilities, 2**32 - 1)``; unsigned 32 bits ``[n]``.

    Probabilities ``[rows, n]`` are normalised and unsigned; saturation does not depend on the order of
    rows because every partial sum only grows.
    """
    total = np.asarray(importance, dtype=np.int64) + np.asarray(probabilities, dtype=np.int64).sum(axis=0)
    return np.minimum(total, IMPORTANCE_MAX)


def importance_keys(importance: np.ndarray, shift: int, first: int, last: int) -> np.ndarray:
    """Keys of positions, int64 ``[n]`` of 24 bits: ``min(importance >> shift, 2**24 - 1)``.

    The ``first`` and the ``last`` positions, which are guarded, have the largest key. ``importance``: unsigned 32 bits.
    """
    keys = np.minimum(np.asarray(importance, dtype=np.int64) >> min(shift, MAX_IMPORTANCE_SHIFT), KEY_MAX)
    place = np.arange(len(keys))
    keys[(place < first) | (place >= len(keys) - last)] = KEY_MAX
    return keys


def counted(probabilities: np.ndarray) -> np.ndarray:
    """``p - (p >> 8)`` of unsigned 16-bit probabilities, int64: what running sums count, 255 and 1 times the bytes."""
    p = np.asarray(probabilities, dtype=np.int64)
    found: np.ndarray = p - (p >> 8)
    return found


def heavy_keys(sums: np.ndarray, first: int, last: int) -> np.ndarray:
    """Keys of positions by running sums, int64 ``[n]`` of 24 bits: 16 bits, saturated, then 8 zeros.

    The ``first`` and the ``last`` positions, which are guarded, have the largest key. ``sums``: int32, not negative.
    """
    keys = saturate(rshr(sums, HEAVY_SHIFT), 16) + (1 << 15)
    return importance_keys(keys << 8, 0, first, last)
