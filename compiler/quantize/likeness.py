"""How like two networks predict a text: perplexity of each, divergence, agreement on the best token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

__all__ = ["Likeness", "LikenessSums", "nats"]


@dataclass(frozen=True)
class Likeness:
    """A network in integers beside its float one, over all predicted tokens of a text."""

    tokens: int
    """Predicted ones."""
    perplexity_float: float
    perplexity_int: float
    kl_mean: float
    """Mean Kullback-Leibler divergence of the integers' predictions from the float ones, in nats."""
    top1_agreement: float
    """Share of tokens at which both have the same best token."""

    @property
    def ratio(self) -> float:
        """Perplexity in integers over that in float."""
        return self.perplexity_int / self.perplexity_float


def nats(logits: np.ndarray, tokens: np.ndarray) -> float:
    """Cross-entropy of tokens [rows] by logits [rows, vocab], summed."""
    return float(-np.take_along_axis(_log_softmax(logits), tokens[:, None], -1).sum())


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


class LikenessSums:
    """Adds up a :class:`Likeness` some rows at a time."""

    def __init__(self) -> None:
        self.tokens, self.alike = 0, 0
        self.real, self.integer, self.divergence = 0.0, 0.0, 0.0

    def add(self, real: np.ndarray, integer: np.ndarray, tokens: np.ndarray) -> None:
        """Logits of both networks, float64 [rows, vocab], and the token that follows each row."""
        if not len(tokens):
            return
        a, b = _log_softmax(real), _log_softmax(integer)
        self.real -= float(np.take_along_axis(a, tokens[:, None], -1).sum())
        self.integer -= float(np.take_along_axis(b, tokens[:, None], -1).sum())
        self.divergence += float((np.exp(a) * (a - b)).sum())
        self.alike += int((a.argmax(axis=-1) == b.argmax(axis=-1)).sum())
        self.tokens += len(tokens)

    def __add__(self, other: Self) -> LikenessSums:
        found = LikenessSums()
        for name in vars(found):
            setattr(found, name, getattr(self, name) + getattr(other, name))
        return found

    def result(self) -> Likeness:
        """Of all rows so far, at least one."""
        with np.errstate(over="ignore"):  # hopeless ones are infinite
            real, integer = (float(np.exp(total / self.tokens)) for total in (self.real, self.integer))
        return Likeness(self.tokens, real, integer, self.divergence / self.tokens, self.alike / self.tokens)
