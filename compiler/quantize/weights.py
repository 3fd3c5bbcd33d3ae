"""Weights as codes: int8 with a step a column, int4 with integer scales a group; nearest, or second-order.

Second order is GPTQ (Frantar et al., 2023, algorithm 1): columns of the weight matrix are rounded one after another,
and what each rounding loses is made up for by the columns behind it, weighed by the inverse of the inputs' products.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Codes", "codes", "packed"]

CLIPS8 = np.linspace(0.7, 1.0, 13)
CLIPS4 = np.linspace(0.5, 1.0, 21)
MOST_SCALE = 15
DAMPING = 0.01
BLOCK = 128


@dataclass(frozen=True)
class Codes:
    """``weight ~ codes * step[column] * scales[group, column]``."""

    codes: np.ndarray
    """int8 [columns, depth]: -127 .. 127, or -8 .. 7."""
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


def codes(weight: np.ndarray, squares: np.ndarray, gram: np.ndarray | None, *, bits: int, group: int) -> Codes:
    """Codes of a weight matrix [columns, depth] whose inputs have these sums of squares.

    With ``gram``, the inputs' sums of products, rounding is second-order.
    """
    weight = weight.astype(np.float64)
    if bits == 8:
        step, scales = _steps8(weight, squares), None
        full = np.broadcast_to(step[:, None], weight.shape)
        most = 127
    else:
        step, scales = _steps4(weight, squares, group or weight.shape[1])
        full = step[:, None] * np.repeat(scales.T, group or weight.shape[1], axis=1)[:, :weight.shape[1]]
        most = 7
    found = _nearest(weight, full, most) if gram is None else _second_order(weight, full, most, gram)
    return Codes(found.astype(np.int8), step, scales.astype(np.uint8) if scales is not None and group else None)


def packed(found: np.ndarray) -> np.ndarray:
    """Two int4 codes a byte, the even column in the low nibble  # int8 [columns, depth] to uint8."""
    padded = np.pad(found, ((0, 0), (0, found.shape[1] % 2))).astype(np.uint8) & 15
    return padded[:, ::2] | padded[:, 1::2] << 4


def _nearest(weight: np.ndarray, step: np.ndarray, most: int) -> np.ndarray:
    return np.clip(np.rint(weight / step), -most - (most == 7), most)


def _error(weight: np.ndarray, step: np.ndarray, most: int, squares: np.ndarray) -> np.ndarray:
    """Squared error of each column's outputs, inputs independent."""
    return ((_nearest(weight, step, most) * step - weight) ** 2 * squares).sum(axis=1)


def _steps8(weight: np.ndarray, squares: np.ndarray) -> np.ndarray:
    peak = np.abs(weight).max(axis=1)
    peak[peak == 0] = 1.0
    best, least = peak / 127, np.full(len(weight), np.inf)
    for clip in CLIPS8:
        step = peak * clip / 127
        error = _error(weight, step[:, None], 127, squares)
        best, least = np.where(error < least, step, best), np.minimum(error, least)
    return best


def _steps4(weight: np.ndarray, squares: np.ndarray, group: int) -> tuple[np.ndarray, np.ndarray]:
    """(base step [columns], integer scales [groups, columns]) of the least error, group by group.

    The base step lets the widest group have the largest scale; a column with one group has scale 1.
    """
    columns, depth = weight.shape
    groups = -(-depth // group)
    peaks = np.stack([np.abs(weight[:, i * group:(i + 1) * group]).max(axis=1) for i in range(groups)])
    largest = peaks.max(axis=0)
    largest[largest == 0] = 1.0
    base = largest / 7 / (MOST_SCALE if groups > 1 else 1)
    scales = np.ones((groups, columns))
    for i in range(groups):
        part, inputs = weight[:, i * group:(i + 1) * group], squares[i * group:(i + 1) * group]
        least = np.full(columns, np.inf)
        for clip in CLIPS4:
            scale = np.clip(np.rint(peaks[i] * clip / 7 / base), 1, MOST_SCALE)
            error = _error(part, (base * scale)[:, None], 7, inputs)
            scales[i], least = np.where(error < least, scale, scales[i]), np.minimum(error, least)
    if groups == 1:  # then the step itself is searched
        least = np.full(columns, np.inf)
        for clip in CLIPS4:
            step = largest * clip / 7
            error = _error(weight, step[:, None], 7, squares)
            base, least = np.where(error < least, step, base), np.minimum(error, least)
    return base, scales


def _second_order(weight: np.ndarray, step: np.ndarray, most: int, gram: np.ndarray) -> np.ndarray:
    work, found = weight.copy(), np.zeros_like(weight)
    hessian = gram.copy()
    dead = np.diag(hessian) == 0
    hessian[dead, dead] = 1.0
    hessian += DAMPING * np.diag(hessian).mean() * np.eye(len(hessian))
    # Upper Cholesky factor of the inverse: its rows are the updates of algorithm 1.
    inverse = np.linalg.inv(hessian)
    upper = np.linalg.cholesky((inverse + inverse.T) / 2).T
    for first in range(0, weight.shape[1], BLOCK):
        last = min(first + BLOCK, weight.shape[1])
        errors = np.zeros((len(weight), last - first))
        for i in range(first, last):
            found[:, i] = _nearest(work[:, i], step[:, i], most)
            errors[:, i - first] = (work[:, i] - found[:, i] * step[:, i]) / upper[i, i]
            work[:, i + 1:last] -= errors[:, i - first, None] * upper[i, i + 1:last]
        work[:, last:] -= errors @ upper[first:last, last:]
    return found
