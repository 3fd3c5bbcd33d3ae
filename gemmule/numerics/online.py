"""Online softmax: one pass over blocks of columns with a running maximum in whole octaves.

Softermax's rule (Stevens et al., DAC 2021): the running maximum is an integer power of two, so that
a rise rescales the sum and the context by a shift. The block size changes bits, so it is part of
the definition; results differ from the two-pass softmax by about one LSB of V.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .fixed import rshr
from .softmax import exp2, softmax_reciprocal

__all__ = ["OnlineRow", "online_softmax", "rescale"]

_EMPTY = -(1 << 13)
_FRACTION = 10


def rescale(value: np.ndarray, rise: np.ndarray) -> np.ndarray:
    """``rshr(value, min(rise, 62))``: a sum or a context after the maximum rose by ``rise`` octaves."""
    return rshr(value, np.minimum(rise, 62))


@dataclass
class OnlineRow:
    """State of the rows of one head: running maximum in octaves and sum of the full weights, int64 [rows]."""

    octave: np.ndarray
    total: np.ndarray

    @staticmethod
    def empty(rows: int) -> OnlineRow:
        """No column seen yet: the sum is 0 and any visible score raises the maximum."""
        return OnlineRow(np.full(rows, _EMPTY, dtype=np.int64), np.zeros(rows, dtype=np.int64))

    def block(self, t: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Take a block of scores ``t[rows, columns]`` (Q13.10); (8-bit weights, rise of the octave per row).

        octave' = max(octave, ceil(block maximum)); the sum is shifted by the rise, then the block's full
        weights p = exp2(octave' - t) are added; the context must be shifted by the rise before the block's
        product is added to it. Masked columns count as nothing.
        """
        seen = np.where(mask, t, _EMPTY << _FRACTION).max(axis=1, initial=_EMPTY << _FRACTION)
        high = np.maximum(self.octave, -(-seen >> _FRACTION))
        rise = high - self.octave
        p = np.where(mask, exp2((high << _FRACTION)[:, None] - t), 0)
        self.total = rescale(self.total, rise) + p.sum(axis=1)
        self.octave = high
        return np.minimum(255, rshr(p, 12)), rise


def online_softmax(t: np.ndarray, v: np.ndarray, mask: np.ndarray,
                   block: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(context int32 sums [rows, d], R, L) of scores ``t[rows, n]`` and int8 ``v[n, d]`` in blocks of columns.

    The context is unnormalised like the two-pass one: ``requant_row(context, R, L, mult, shift)`` divides.
    """
    state = OnlineRow.empty(len(t))
    context = np.zeros((len(t), v.shape[1]), dtype=np.int64)
    for at in range(0, t.shape[1], block):
        weights, rise = state.block(t[:, at:at + block], mask[:, at:at + block])
        context = rescale(context, rise[:, None]) + weights @ v[at:at + block].astype(np.int64)
    return context, *softmax_reciprocal(state.total)
