"""Online softmax: one pass over blocks of columns with a running maximum in whole octaves.

Softermax's rule (Stevens et al., DAC 2021): the running maximum is an integer power of two, so that
a rise rescales the sum and the context by a shift. The block size changes bits, so it is part of
the definition; results differ from the two-pass softmax by about one LSB of V.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .fixed import rshr
from .products import exact_matmul
from .softmax import EMPTY, kept_sum, octave_max, row_probabilities, softmax_reciprocal

__all__ = ["Met", "online_softmax", "prefixed_softmax", "rescale"]

Met = Callable[[np.ndarray], np.ndarray]
"""Of 8-bit probabilities, what values meet."""


def rescale(value: np.ndarray, rise: np.ndarray) -> np.ndarray:
    """``rshr(value, rise)``: a sum, or a row of the context (int32), after a rise of the maximum by 0..40 octaves."""
    return rshr(value, rise)


def prefixed_softmax(t: np.ndarray, v: np.ndarray, mask: np.ndarray, first: int, *,
                     kind: int = 0, met: Met | None = None,
                     whole_sum: bool = True) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(context, R, L) as of :func:`online_softmax`, of a piece behind ``first`` columns and then of these.

    The two-pass softmax of the columns behind, about their own maximum in whole octaves; then the first columns come, a
    constant prefix that most attention goes to, and the sum and the context are shifted by the rise. Were the prefix'
    maximum that of all, 8 bits of probability would tell little of the others. ``met``: what the
    values of the columns behind meet in the place of their 8-bit probabilities; without ``whole_sum`` the sum
    is :func:`kept_sum` of what all values meet.
    """
    mask = np.broadcast_to(mask, t.shape)
    octave, _ = octave_max(t[:, first:], mask[:, first:])
    probabilities, total = row_probabilities(t[:, first:], octave, mask[:, first:], kind=kind)
    kept = met(probabilities) if met else probabilities
    context = exact_matmul(kept, v[first:])
    octave, rise = octave_max(t[:, :first], mask[:, :first], octave)
    probabilities, total = row_probabilities(t[:, :first], octave, mask[:, :first], before=rescale(total, rise),
                                             kind=kind)
    context = rescale(context, rise[:, None]) + exact_matmul(probabilities, v[:first])
    if not whole_sum:
        total = rescale(kept_sum(kept), rise) + kept_sum(probabilities)
    return context, *softmax_reciprocal(total)


def online_softmax(t: np.ndarray, v: np.ndarray, mask: np.ndarray, block: int, *,
                   kind: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(context int32 sums [rows, d], R, L) of scores ``t[rows, n]`` (Q13.10) and int8 ``v[n, d]`` in blocks of columns.

    A block: octave' = max(octave, ceil(block maximum)); the sum and the context are shifted by the rise, half up; then
    the block's full probabilities p = 2**(t - octave') are added to the sum and its 8-bit ones times v to the context.
    Masked columns count as nothing. The context is unnormalised like the two-pass one: ``requant_row(context, R, L,
    mult, shift)`` divides. ``kind`` chooses the exponential.
    """
    octave = np.full(len(t), EMPTY, dtype=np.int64)
    total = np.zeros(len(t), dtype=np.int64)
    context = np.zeros((len(t), v.shape[1]), dtype=np.int64)
    for at in range(0, t.shape[1], block):
        piece, seen = t[:, at:at + block], mask[:, at:at + block]
        octave, rise = octave_max(piece, seen, octave)
        probabilities, total = row_probabilities(piece, octave, seen, before=rescale(total, rise), kind=kind)
        context = rescale(context, rise[:, None]) + exact_matmul(probabilities, v[at:at + block])
    return context, *softmax_reciprocal(total)
