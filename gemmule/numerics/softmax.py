"""Exact two-pass softmax: base-2 exponential, unnormalised 8-bit probabilities, one reciprocal a row.

The row sum is kept at full precision and folded into the context's requantisation, because probabilities
normalised to 8 bits lose 54 to 88 % of the context on rows of 1024 to 4096 columns.
"""

from __future__ import annotations

import numpy as np

from .exponential import EXPONENTIAL
from .fixed import bit_length, requant, rshr, saturate

__all__ = [
    "EMPTY", "KEPT_BITS", "KEPT_UNIT", "at_least", "kept_sum", "octave_max", "own_scale", "row_absmax", "row_max",
    "row_normalized", "row_probabilities", "scores", "softmax_reciprocal", "tree_mask", "visible",
]

EMPTY = -(1 << 23)
"""Maximum of a row without visible columns."""
SUM_BITS = 37
MAX_RISE = 40
KEPT_UNIT, KEPT_BITS = 64, 6
"""What sums of 8-bit probabilities are multiplied by, and the bits that they lack of those of the full p."""


def scores(acc: np.ndarray, mult: np.ndarray | int, shift: np.ndarray | int) -> np.ndarray:
    """Scores in base-2 exponent units, int24 Q13.10: ``sat24(requant(acc, mult, shift))``."""
    return saturate(requant(acc, mult, shift), 24)


def visible(rows: int, columns: int, causal: bool, after: int = 0) -> np.ndarray:
    """Visible columns per row of a piece of ``columns`` columns with ``after`` columns of the row behind it.

    Causal row i of m sees ``columns + after - rows + 1 + i``, within 0..columns.
    """
    if not causal:
        return np.full(rows, columns, dtype=np.int64)
    return np.clip(columns + after - rows + 1 + np.arange(rows, dtype=np.int64), 0, columns)


def tree_mask(bitmaps: np.ndarray, rows: int, columns: int, after: int = 0) -> np.ndarray:
    """Visible columns bool ``[rows, columns]`` of a piece, ``after`` columns of the row behind it.

    Of the row's last ``rows`` columns (new tokens) row i sees column j where bit j % 8 of byte j // 8 of
    ``bitmaps[i]`` (uint8 ``[rows, bytes]``, rows <= 8 * bytes) is 1, and all columns before them.
    """
    bits = np.unpackbits(bitmaps.astype(np.uint8), axis=1, bitorder="little")[:rows]
    token = np.arange(columns) - (columns + after - rows)
    return (token < 0) | (bits[:, np.minimum(np.maximum(token, 0), bits.shape[1] - 1)] == 1)


def _mask(seen: np.ndarray, columns: int) -> np.ndarray:
    """Counts of visible columns ``[rows]`` as a mask; a mask ``[rows, columns]`` as it is."""
    return seen if seen.ndim == 2 else np.arange(columns) < seen[:, None]


def row_max(t: np.ndarray, count: np.ndarray, before: np.ndarray | int = EMPTY) -> np.ndarray:
    """Maximum of each row's visible scores ``t[rows, columns]``; -2**23 when there is none.

    ``count``: visible columns int64 ``[rows]``, or a mask bool ``[rows, columns]``. ``before``: maximum of the
    row's pieces before this one.
    """
    found = np.where(_mask(count, t.shape[1]), t, EMPTY).max(axis=1, initial=EMPTY)
    return np.maximum(found, before)


def octave_max(t: np.ndarray, count: np.ndarray,
               before: np.ndarray | int = EMPTY) -> tuple[np.ndarray, np.ndarray]:
    """(running maximum in whole octaves, its rise in octaves) of the online softmax (Softermax's rule).

    maximum = max(before, ceil(row_max / 1024) * 1024, at most 8191 * 1024); rise = (maximum - before) >> 10, at most 40
    (everything that a rise shifts is 0 by then). ``before`` is a multiple of 1024, or -2**23 for none.
    """
    found = row_max(t, count)
    high = np.maximum(np.minimum(-(-found >> 10), 8191) << 10, before)
    return high, np.minimum(high - before >> 10, MAX_RISE)


def _powers(t: np.ndarray, maximum: np.ndarray, count: np.ndarray, kind: int) -> np.ndarray:
    return np.where(_mask(count, t.shape[1]), EXPONENTIAL[kind](maximum[:, None] - t), 0)


def row_probabilities(t: np.ndarray, maximum: np.ndarray, count: np.ndarray, *, wide: bool = False,
                before: np.ndarray | int = 0, kind: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Unsigned probabilities and the sum of the full p, per row.

    Probabilities are ``min(255, rshr(p, 12))``, wide ``min(65535, rshr(p, 4))``.

    p = EXPONENTIAL[kind](max - t) is 0 on masked columns, which are outside the maximum too. ``count`` as in
    :func:`row_max`; ``before``: sum of the row's pieces before this one (online: shifted by the rise). Weights are
    ``[rows, columns]`` int64 of 8 or 16 bits, sums int64 (37 bits; the sum of pieces wraps).
    """
    p = _powers(t, maximum, count, kind)
    probabilities = np.minimum(65535, rshr(p, 4)) if wide else np.minimum(255, rshr(p, 12))
    return probabilities, p.sum(axis=1) + before & (1 << SUM_BITS) - 1


def row_normalized(t: np.ndarray, maximum: np.ndarray, count: np.ndarray, reciprocal: np.ndarray,
                   length: np.ndarray, *, wide: bool = False, kind: int = 0) -> np.ndarray:
    """Normalised probabilities int64 ``[rows, columns]``: ``min(255, rshr(p * R, L + 7))``, 1.0 is 256.

    Wide: ``min(65535, rshr(p * R, max(L - 1, 0)))``, 1.0 is 65536. (R, L) of :func:`softmax_reciprocal` per row; all 0
    where L is 0. p, ``count`` and ``kind`` as in :func:`row_probabilities`. Half an LSB of rounding; R truncates, so a
    probability is up to 2**-15 of itself too small.
    """
    length = np.asarray(length, dtype=np.int64)
    shift = np.maximum(length - 1, 0) if wide else length + 7
    p = _powers(t, maximum, count, kind) * np.where(length == 0, 0, reciprocal)[:, None]
    return np.minimum(65535 if wide else 255, rshr(p, shift[:, None]))


def at_least(probabilities: np.ndarray, least: int) -> np.ndarray:
    """Those of at least ``least``, and 0 in the place of others; ``least`` 1 changes nothing."""
    return np.where(probabilities < least, 0, probabilities)


def kept_sum(probabilities: np.ndarray) -> np.ndarray:
    """The sum of each row's 8-bit probabilities, times :data:`KEPT_UNIT`; that of the full p is ``2**KEPT_BITS`` times
    as large, about.
    """
    return probabilities.sum(axis=-1) * KEPT_UNIT


def softmax_reciprocal(total: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """R = floor(2**(15 + L) / S) and L = bit length of S; both 0 for S = 0. 2**15 <= R <= 2**16."""
    total = np.asarray(total, dtype=np.int64)
    length = bit_length(total)
    return np.where(total > 0, (1 << 15 + length) // np.maximum(total, 1), 0), length


def row_absmax(acc: np.ndarray) -> np.ndarray:
    """Largest absolute value of each row ``acc[rows, columns]`` (int32): int64 in 0..2**31."""
    return np.abs(np.asarray(acc, dtype=np.int64)).max(axis=1, initial=0)


def own_scale(largest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(R, L) with which ``requant_row`` multiplies by ``largest / 2**19``: R the upper 16 bits (floor), L = 32 - l.

    ``largest`` int64 in 0..2**31, l its bit length: R = A << (16 - l), or A >> (l - 16); both 0 for 0.
    """
    values = [int(a) for a in np.asarray(largest)]
    ratios = [(a << 16) >> a.bit_length() for a in values]
    return (np.array(ratios, dtype=np.int64),
            np.array([32 - a.bit_length() if a else 0 for a in values], dtype=np.int64))
