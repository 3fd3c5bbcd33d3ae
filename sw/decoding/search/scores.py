"""Log-probabilities and scores of texts, in integers: the same wherever the logits are.

A token's log-probability is a function of the row's int16 logits alone. With ``mult`` and ``shift`` of the device's
base-2 exponents (Q13.10) at temperature 1, it is ``((logit - maximum) * mult) * 2**14 >> shift``, rounded, less the
logarithm of the sum of all tokens' weights over that of the likeliest. Weights are the device's 16-bit softmax of
``logit - maximum``. The unit is 2**-24 bits. There is no float, so every back end comes to the same scores.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context, Decimal
from functools import lru_cache
from math import log

import numpy as np

from gemmule.numerics import row_probabilities, rshr, scores
from gemmule.sw.step import exponent_scaling

__all__ = ["UNIT_BITS", "log_probabilities", "log_two", "natural", "normalised"]

UNIT_BITS = 24
"""Fraction bits of a log-probability, base 2."""
EXPONENT_BITS = 10
"""Of the device's exponents."""
LARGEST = 65535
"""Weight of the most likely token."""
PRECISION = Context(prec=50)


def log_two(number: int) -> int:
    """log2 of a positive integer in units of 2**-24, rounded down but for the last place, bit by bit in integers.

    Raises:
        ValueError: it is not positive.
    """
    if number <= 0:
        raise ValueError(f"a logarithm must be of a positive integer, not of {number}")
    whole = number.bit_length() - 1
    mantissa, found = number << 62 >> whole, whole  # in [2**62, 2**63)
    for _ in range(UNIT_BITS):
        mantissa = mantissa * mantissa >> 62
        found <<= 1
        if mantissa >> 63:
            mantissa >>= 1
            found += 1
    return found


def log_probabilities(logits: np.ndarray, scale: float) -> np.ndarray:
    """Log-probabilities of each row, int64 [rows, vocab], at most 0, in units of 2**-24 bits.

    Args:
        logits: int16 [rows, vocab].
        scale: of a logit: real = number * scale.
    """
    mult, shift = exponent_scaling(scale, 1.0)
    wide = logits.astype(np.int64)
    behind = wide - wide.max(axis=1, keepdims=True)  # [rows, vocab], 0 for the likeliest
    seen = np.full(len(wide), wide.shape[1])
    weights = row_probabilities(scores(behind, mult, shift), np.zeros(len(wide), dtype=np.int64), seen, wide=True)[0]
    sums = np.array([log_two(int(total)) for total in weights.sum(axis=1)]) - log_two(LARGEST)
    return np.asarray(rshr(behind * mult << UNIT_BITS - EXPONENT_BITS, shift) - sums[:, None])


def natural(units: int) -> float:
    """A log-probability as a natural logarithm, for reports."""
    return units / (1 << UNIT_BITS) * log(2)


@lru_cache(maxsize=4096)
def _divisor(length: int, penalty: Decimal) -> Decimal:
    return PRECISION.power(Decimal(length), penalty)


def normalised(total: int, length: int, penalty: Decimal) -> int:
    """``total / length ** penalty``, rounded to an integer; decimal arithmetic, so the same on every machine."""
    found = PRECISION.divide(Decimal(total), _divisor(length, penalty))
    return int(found.to_integral_value(rounding=ROUND_HALF_EVEN))
