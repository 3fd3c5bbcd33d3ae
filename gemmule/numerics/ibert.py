"""I-BERT's integer functions (Kim et al., ICML 2021, algorithms 1 to 4), for comparison with ours.

Written from the paper's equations with its constants; scales are turned into integers by the ``constants``
functions, everything else is integer. Known maximum errors: exp 1.9e-3 absolute, GELU 0.018.
"""

from __future__ import annotations

from math import floor, isqrt

import numpy as np

from .fixed import MAX_SHIFT, rshr, saturate

__all__ = ["GELU_SCALE", "exp_constants", "gelu_constants", "i_exp", "i_gelu", "i_gelu_unit", "i_layernorm"]

_LN2 = -0.6931
_EXP_A, _EXP_B, _EXP_C = 0.35815147, 0.96963238, 1.0
_EXP_SHIFT = 30
_ERF_A, _ERF_B, _ERF_C = -0.2888, -1.769, 1.0
_ERF_SHIFT = 14
GELU_SCALE = 2 ** 0.5 / 1024
"""Scale of :func:`i_gelu_unit`'s input; its result is on the scale GELU_SCALE * 0.2888 / 128 * 2**shift."""


def exp_constants(scale: float) -> tuple[int, int, int]:
    """(q_ln2, b, c) of :func:`i_exp` for logits ``q * scale``; q_ln2 is negative."""
    return floor(_LN2 / scale), floor(_EXP_B / _EXP_A / scale), floor(_EXP_C / _EXP_A / scale ** 2)


def i_exp(q: np.ndarray, constants: tuple[int, int, int]) -> np.ndarray:
    """exp(q * scale) for q <= 0 as an integer on the scale ``0.35815147 * scale**2 / 2**30``.

    q is limited to 30 * q_ln2; z = floor(q / q_ln2) octaves, r = q - q_ln2 * z; ``(r * (r + b) + c) << (30 - z)``.
    """
    ln2, b, c = constants
    q = np.maximum(np.asarray(q, dtype=np.int64), _EXP_SHIFT * ln2)
    z = q // ln2
    r = q - ln2 * z
    return np.maximum((r * (r + b) + c) << (_EXP_SHIFT - z), 0)


def gelu_constants(scale: float) -> tuple[int, int, int]:
    """(b, c, one) of :func:`i_gelu` for inputs ``q * scale``."""
    inner = scale / 2 ** 0.5
    b, c = floor(_ERF_B / inner), floor(_ERF_C / _ERF_A / inner ** 2)
    return b, c, floor(1 / (_ERF_A * inner ** 2 * (1 << _ERF_SHIFT)))


def i_gelu(q: np.ndarray, constants: tuple[int, int, int]) -> np.ndarray:
    """GELU(q * scale) on the scale ``scale * (-0.2888) * scale**2 / 2 * 2**14 / 2`` (negative).

    L = sgn(q) * ((min(|q|, -b) + b)**2 + c) >> 14 is erf; the result is ``q * (L + one)``.
    """
    b, c, one = constants
    q = np.asarray(q, dtype=np.int64)
    erf = np.sign(q) * ((np.minimum(np.abs(q), -b) + b) ** 2 + c) >> _ERF_SHIFT
    return q * (erf + one)


def i_gelu_unit(x: np.ndarray, shift: int) -> np.ndarray:
    """The device's I_GELU: ``sat8(rshr(-i_gelu(x), min(shift, 47)))`` of int16 ``x`` on the scale ``GELU_SCALE``.

    b = -1812, c = -3630804 and one = -222 are then constants of the unit.
    """
    return saturate(rshr(-i_gelu(x, gelu_constants(GELU_SCALE)), min(shift, MAX_SHIFT)), 8)


def i_layernorm(q: np.ndarray, shift: int = 0) -> np.ndarray:
    """(q - mean) / sigma of the rows ``q[rows, n]`` on the scale sqrt(n) / 2**30: rounded mean, integer root.

    ``shift`` is I-BERT's learnt overflow shift of the squares. A row without spread divides by 1.
    """
    q = np.asarray(q, dtype=np.int64)
    n = q.shape[1]
    centred = q - (2 * q.sum(axis=1, keepdims=True) + n) // (2 * n)
    variance = ((centred >> shift) ** 2).sum(axis=1)
    factor = np.array([(1 << 31) // max(1, isqrt(int(v)) << shift) for v in variance], dtype=np.int64)
    return centred * factor[:, None] >> 1
