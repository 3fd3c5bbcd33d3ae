"""How sure a layer is of the next token, and how sure it must be to be believed (CALM, Schuster et al. 2022)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import exp

import numpy as np

from gemmule.numerics import row_probabilities, scores
from gemmule.sw.models.drafting.exit_heads import ExitHeads
from gemmule.sw.step import Exponents, Forward, TopK, Want

__all__ = ["Classified", "Confidence", "Saturation", "SoftmaxGap", "decayed", "gap", "similarity"]


def decayed(threshold: float, token: int, decay: float, span: int) -> float:
    """The threshold of a new token, which falls from token to token (equation 5 of the paper): early errors cost more,
    for all tokens behind them read what they leave.

    ``decay``: the temperature tau; 0: the threshold is constant. ``span``: the paper's N.
    """
    return min(1.0, max(0.0, 0.9 * threshold + 0.1 * exp(-decay * token / span))) if decay else threshold


def similarity(before: np.ndarray, row: np.ndarray) -> float:
    """Cosine of two rows of the residual stream, int16 [columns]; of integer sums, rounded once."""
    first, second = before.astype(np.int64), row.astype(np.int64)
    lengths = float(first @ first) * float(second @ second)
    return float(first @ second) / lengths ** 0.5 if lengths else 0.0


def gap(top: TopK, exponents: Exponents) -> float:
    """The likeliest token's probability less that of the next one, of a single row: 16-bit weights over their sum."""
    t = scores(top.logits[0], exponents.mult, exponents.shift)[None]
    weights = row_probabilities(t, t.max(axis=1), np.array([t.shape[1]]), wide=True)[0][0]
    return float(int(weights[0]) - int(weights[1])) / float(exponents.total[0])


class Confidence(ABC):
    """One of the paper's three measures.

    Attributes:
        want: what it wants of a pass, besides hidden rows.
        reads: whether the host reads a row of the residual stream for it.
    """

    want = Want(last=0)
    reads = True

    @abstractmethod
    def of(self, out: Forward, depth: int, row: np.ndarray, before: np.ndarray | None) -> float:
        """From 0 to 1, behind ``depth`` layers. ``row``, ``before``: the stream there and at the exit before, int16
        [columns]; None: there is none.
        """


class SoftmaxGap(Confidence):
    """Difference of the two largest probabilities: the head runs at every exit."""

    want = Want(last=1, top=2, temperature=1.0)
    reads = False

    def of(self, out: Forward, depth: int, row: np.ndarray, before: np.ndarray | None) -> float:
        assert out.top is not None
        assert out.exponents is not None
        return gap(out.top, out.exponents)


class Saturation(Confidence):
    """How little the stream turned since the exit before; the first exit is never taken."""

    def of(self, out: Forward, depth: int, row: np.ndarray, before: np.ndarray | None) -> float:
        return 0.0 if before is None else similarity(before, row)


class Classified(Confidence):
    """A trained linear head for each depth."""

    def __init__(self, heads: ExitHeads) -> None:
        self.heads = heads

    def of(self, out: Forward, depth: int, row: np.ndarray, before: np.ndarray | None) -> float:
        return self.heads.confidence(depth, row)
