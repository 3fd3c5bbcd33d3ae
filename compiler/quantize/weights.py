"""Weights as codes: int8 with a step a column, int4 (or 3 bits) with integer scales a group; nearest, or second-order.

Second order is GPTQ (Frantar et al., 2023, algorithm 1): columns of the weight matrix are rounded one after another,
and what each rounding loses is made up for by the columns behind it, weighed by the inverse of the inputs' products.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

__all__ = ["Codes", "codes", "packed"]

CLIPS8 = np.linspace(0.7, 1.0, 13)
CLIPS4 = np.linspace(0.5, 1.0, 21)
MOST_SCALE = 15
DAMPING = 0.01
BLOCK = 128
MOST_WEIGHTS = 1 << 15
"""Weights whose steps are searched at a time: they stay in the processor's cache."""
MOST_ROUNDED = 1 << 22
"""Weights that are rounded at a time otherwise."""


@dataclass(frozen=True)
class Codes:
    """``weight ~ codes * step[column] * scales[group, column]``."""

    codes: np.ndarray
    """int8 [columns, depth]: -127 .. 127, -8 .. 7, or -4 .. 3."""
    step: np.ndarray
    """float64 [columns]."""
    scales: np.ndarray | None = None
    """uint8 [groups, columns], 1 .. 15; None without groups."""

    def sums(self, group: int) -> np.ndarray:
        """Of each column's codes, by the scales of their groups of ``group`` rows  # int64 [columns]."""
        wide = self.codes.astype(np.int64)
        if self.scales is not None:
            wide = wide * np.repeat(self.scales.T.astype(np.int64), group, axis=1)[:, :wide.shape[1]]
        return np.asarray(wide.sum(axis=1))

    def without(self, columns: np.ndarray, step: np.ndarray) -> Codes:
        """With codes of 0 in some columns, bool [columns], whose steps are then ``step``'s  # float64 [columns]."""
        return replace(self, codes=np.where(columns[:, None], np.int8(0), self.codes),
                       step=np.where(columns, step, self.step))


def codes(weight: np.ndarray, squares: np.ndarray, gram: np.ndarray | None, *, bits: int, group: int) -> Codes:
    """Codes of a weight matrix [columns, depth] whose inputs have these sums of squares.

    With ``gram``, the inputs' sums of products, rounding is second-order. ``bits``: 8, 4, or 3, which the device does
    not take.
    """
    upper = None if gram is None else _updates(gram)
    step = max(1, (MOST_WEIGHTS if bits == 8 and upper is None else MOST_ROUNDED) // weight.shape[1])
    parts = [_codes(weight[at:at + step].astype(np.float64), squares, upper, bits, group)
             for at in range(0, len(weight), step)]
    scales = [part.scales for part in parts if part.scales is not None]
    return Codes(np.concatenate([part.codes for part in parts]), np.concatenate([part.step for part in parts]),
                 np.concatenate(scales, axis=1) if scales else None)


def _codes(weight: np.ndarray, squares: np.ndarray, upper: np.ndarray | None, bits: int, group: int) -> Codes:
    """:func:`codes` of some columns."""
    if bits == 8:
        step, scales = _steps8(weight, squares), None
        full = np.broadcast_to(step[:, None], weight.shape)
        most = 127
    else:
        most = (1 << bits - 1) - 1
        step, scales = _steps4(weight, squares, group or weight.shape[1], most)
        full = step[:, None] * np.repeat(scales.T, group or weight.shape[1], axis=1)[:, :weight.shape[1]]
    found = _nearest(weight, full, most) if upper is None else _second_order(weight, full, most, upper)
    return Codes(found.astype(np.int8), step, scales.astype(np.uint8) if scales is not None and group else None)


def packed(found: np.ndarray) -> np.ndarray:
    """Two int4 codes a byte, the even column in the low nibble  # int8 [columns, depth] to uint8."""
    padded = np.pad(found, ((0, 0), (0, found.shape[1] % 2))).astype(np.uint8) & 15
    return padded[:, ::2] | padded[:, 1::2] << 4


def _nearest(weight: np.ndarray, step: np.ndarray, most: int) -> np.ndarray:
    found = weight / step
    np.rint(found, out=found)
    np.maximum(found, -most - (most < 127), out=found)  # np.clip's checks take longer
    return np.minimum(found, most, out=found)


def _error(weight: np.ndarray, step: np.ndarray, most: int, squares: np.ndarray) -> np.ndarray:
    """Squared error of each column's outputs, inputs independent."""
    error = _nearest(weight, step, most)
    error *= step
    error -= weight
    error *= error
    error *= squares
    return np.asarray(error.sum(axis=1))


def _steps8(weight: np.ndarray, squares: np.ndarray) -> np.ndarray:
    peak = np.abs(weight).max(axis=1)
    peak[peak == 0] = 1.0
    best, least = peak / 127, np.full(len(weight), np.inf)
    for clip in CLIPS8:
        step = peak * clip / 127
        error = _error(weight, step[:, None], 127, squares)
        best, least = np.where(error < least, step, best), np.minimum(error, least)
    return best


def _steps4(weight: np.ndarray, squares: np.ndarray, group: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """(base step [columns], integer scales [groups, columns]) of the least error, codes up to ``most``, group by group.

    The base step lets the widest group have the largest scale; a column with one group has scale 1.
    """
    columns, depth = weight.shape
    groups = -(-depth // group)
    peaks = np.stack([np.abs(weight[:, i * group:(i + 1) * group]).max(axis=1) for i in range(groups)])
    largest = peaks.max(axis=0)
    largest[largest == 0] = 1.0
    base = largest / most / (MOST_SCALE if groups > 1 else 1)
    scales = np.ones((groups, columns))
    for i in range(groups):
        part, inputs = weight[:, i * group:(i + 1) * group], squares[i * group:(i + 1) * group]
        least = np.full(columns, np.inf)
        for clip in CLIPS4:
            scale = np.clip(np.rint(peaks[i] * clip / most / base), 1, MOST_SCALE)
            error = _error(part, (base * scale)[:, None], most, inputs)
            scales[i], least = np.where(error < least, scale, scales[i]), np.minimum(error, least)
    if groups == 1:  # then the step itself is searched
        least = np.full(columns, np.inf)
        for clip in CLIPS4:
            step = largest * clip / most
            error = _error(weight, step[:, None], most, squares)
            base, least = np.where(error < least, step, base), np.minimum(error, least)
    return base, scales


def _updates(gram: np.ndarray) -> np.ndarray:
    """The upper Cholesky factor of the inverse of damped products: its rows are the updates of algorithm 1."""
    hessian = gram.astype(np.float64)
    dead = np.diag(hessian) == 0
    hessian[dead, dead] = 1.0
    hessian[np.diag_indices(len(hessian))] += DAMPING * np.diag(hessian).mean()
    inverse = np.linalg.inv(hessian)
    return np.linalg.cholesky((inverse + inverse.T) / 2).T


def _second_order(weight: np.ndarray, step: np.ndarray, most: int, upper: np.ndarray) -> np.ndarray:
    work, found = weight.copy(), np.zeros_like(weight)
    for first in range(0, weight.shape[1], BLOCK):
        last = min(first + BLOCK, weight.shape[1])
        errors = np.zeros((len(weight), last - first))
        for i in range(first, last):
            found[:, i] = _nearest(work[:, i], step[:, i], most)
            errors[:, i - first] = (work[:, i] - found[:, i] * step[:, i]) / upper[i, i]
            work[:, i + 1:last] -= errors[:, i - first, None] * upper[i, i + 1:last]
        work[:, last:] -= errors @ upper[first:last, last:]
    return found
