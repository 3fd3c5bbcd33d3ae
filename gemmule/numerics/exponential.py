"""Exponentials of softmax probabilities: the device's own, and two from the literature for comparison.

All take the distance ``d`` of a score from its row's maximum (int64; negative counts as 0) and return UQ1.20
(21 bits, 1.0 is 2**20). ``EXPONENTIAL[kind]`` is the one that the value ``kind`` of a command's ``period`` chooses.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .fixed import rshr

__all__ = ["EXP2_TABLE", "EXPONENTIAL", "I_EXP_SCALE", "exp2", "i_exp_probabilities", "softermax"]

CLAMP = 40 << 10
EXP2_TABLE = np.array([round(65536 * 2.0 ** (-i / 32)) for i in range(33)], dtype=np.int64)
"""2**16 * 2**(-i/32), 17 bits; interpolated linearly (relative error 8.1e-5)."""
SEGMENTS = EXP2_TABLE[::8]
I_EXP_LN2, I_EXP_B = 425, 1659
I_EXP_SCALE = (0.35815147 * 2 ** 20) ** -0.5
"""Natural units of one step of ``d``: with this scale I-BERT's constants are c = 2**20, b = 1659, ln 2 = 425."""


def _interpolated(d: np.ndarray, table: np.ndarray, bits: int) -> np.ndarray:
    """Base-2 exponential from a table of 2**(10 - bits) segments, linear in between, half up twice."""
    d = np.minimum(np.maximum(np.asarray(d, dtype=np.int64), 0), CLAMP)  # np.clip's checks take longer
    i, w = (d & 1023) >> bits, d & (1 << bits) - 1
    m = table[i] - rshr((table[i] - table[i + 1]) * w, bits)
    return rshr(m << 4, d >> 10)


def exp2(d: np.ndarray) -> np.ndarray:
    """``2**(-d)`` for d >= 0 in UQ.10 (clamped to 0..40.0), result UQ1.20 (21 bits).

    n = d >> 10; i = (d & 1023) >> 5; w = d & 31; m = B[i] - rshr((B[i] - B[i+1]) * w, 5);
    p = rshr(m << 4, n). Absolute error at most 1e-4 (of 1.0).
    """
    return _interpolated(d, EXP2_TABLE, 5)


def softermax(d: np.ndarray) -> np.ndarray:
    """``2**(-d)`` as Softermax makes it (Stevens et al., DAC 2021, section 4): four linear segments an octave.

    As :func:`exp2` with B[8 i] and w = d & 255. Relative error 0.38 %, and an LSB of the result.
    """
    return _interpolated(d, SEGMENTS, 8)


def i_exp_probabilities(d: np.ndarray) -> np.ndarray:
    """``exp(-d * I_EXP_SCALE)`` as I-BERT makes it (Kim et al., ICML 2021, algorithm 2), on a scale with c = 2**20.

    d is limited to 30 * 425; z = d // 425; r = 425 * z - d; p = (r * (r + 1659) + 2**20) >> z (floor).
    Absolute error 1.9e-3.
    """
    d = np.clip(np.asarray(d, dtype=np.int64), 0, 30 * I_EXP_LN2)
    z = d // I_EXP_LN2
    r = I_EXP_LN2 * z - d
    return (r * (r + I_EXP_B) + (1 << 20)) >> z


EXPONENTIAL: tuple[Callable[[np.ndarray], np.ndarray], ...] = (exp2, i_exp_probabilities, softermax)
