"""From logits to a token, in integers: weights of a row, a draw by them, and a draw that target and draft share.

A token's weight is the device's softmax in 16 bits (:func:`gemmule.numerics.row_probabilities`, wide) of its int16
logit; temperature is in the multiplier, and what top-k and top-p leave out weighs 0. So a distribution is a list of
integers, the law of every draw is exact, and target and draft are compared without any rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from gemmule.numerics import row_max, row_probabilities, scores
from gemmule.sw.decoding.noise import Noise, Purpose
from gemmule.sw.step import exponent_scaling

__all__ = ["Sampling", "draw", "shared_draw"]


@dataclass(frozen=True)
class Sampling:
    """How logits become weights.

    Attributes:
        temperature: logits are divided by it.
        top_k: only so many of the largest logits, of equal ones the lowest tokens; 0: all.
        top_p: then only the fewest of the largest whose weights reach this share of all; 1: all.

    Raises:
        ValueError: out of range.
    """

    temperature: float
    top_k: int = 0
    top_p: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        if not 1e-3 <= self.temperature <= 1e3:
            raise ValueError(f"a temperature must be from 0.001 to 1000, not {self.temperature}: 0 is greedy decoding")
        if self.top_k < 0:
            raise ValueError(f"top-k must be at least 0 (all tokens), not {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top-p must be above 0 and at most 1, not {float(self.top_p):g}")

    def weights(self, logits: np.ndarray, scale: float) -> np.ndarray:
        """Weights of a row, int64 [vocab], 0 .. 65535; at least one is 65535.

        Args:
            logits: int16 [vocab].
            scale: of a logit: real = number * scale.
        """
        t = scores(logits.astype(np.int64), *exponent_scaling(scale, self.temperature))[None]
        seen = np.array([t.shape[1]])
        found = row_probabilities(t, row_max(t, seen), seen, wide=True)[0][0]
        if self.top_k == 0 and self.top_p == 1:
            return found
        order = np.lexsort((np.arange(len(logits)), -logits.astype(np.int64)))
        kept = order[:self.top_k or len(order)]
        if self.top_p < 1:
            sums = np.cumsum(found[kept])
            # The first place where the sum reaches top_p of the whole, compared as integers.
            reached = sums * self.top_p.denominator >= int(sums[-1]) * self.top_p.numerator
            kept = kept[:int(np.argmax(reached)) + 1]
        cut = np.zeros_like(found)
        cut[kept] = found[kept]
        return cut


def draw(weights: np.ndarray, noise: Noise, position: int, purpose: Purpose) -> int:
    """A token with probability ``weights[token] / sum(weights)``, exactly.

    Args:
        weights: integers [vocab], int64 or Python's.

    Raises:
        ValueError: all are 0.
    """
    sums = np.cumsum(weights)
    total = int(sums[-1])
    if total <= 0:
        raise ValueError("weights to draw by must not all be 0")
    return int(np.searchsorted(sums, noise.below(total, position, purpose), side="right"))


def shared_draw(weights: np.ndarray, noise: Noise, position: int) -> int:
    """A token by the weights, as :func:`draw`, from darts that everybody throws who draws at this position.

    A dart names a token uniformly and a height in [0, 1); the first one below its token's probability is taken. Whoever
    has other weights throws the same darts, so two draws agree with a probability of
    ``sum(min(p, q)) / sum(max(p, q)) >= (1 - d) / (1 + d)``, d their total variation distance: correlated sampling
    (Holenstein 2007; for speculative decoding Daliri, Musco and Suresh 2025, section 3).
    """
    total = int(weights.sum())
    if total <= 0:
        raise ValueError("weights to draw by must not all be 0")
    if int(weights.max()) == total:
        return int(weights.argmax())
    whole, rest = _shares(weights, total)
    for tokens, heights, first in noise.darts(len(weights), position):
        at = whole[tokens]
        for place in np.flatnonzero(heights <= at):
            token = int(tokens[place])
            # A height is a real number of which 64 bits are known: where they do not decide, the rest of it does.
            if heights[place] < at[place] or noise.below(
                    total, position, Purpose.DART, 1 + first + int(place)) < rest.get(token, 0):
                return token
    raise AssertionError("darts end with a hit")


def _shares(weights: np.ndarray, total: int) -> tuple[np.ndarray, dict[int, int]]:
    """``weights * 2**64 / total``: the whole parts, uint64 [vocab], and remainders by token where the weight is not 0.

    In two steps of 32 bits, since a weight has up to 16 bits and a total up to 32.
    """
    high, left = np.divmod(weights.astype(np.uint64) << np.uint64(32), np.uint64(total))
    low, left = np.divmod(left << np.uint64(32), np.uint64(total))
    return high << np.uint64(32) | low, {int(token): int(left[token]) for token in np.flatnonzero(weights)}
