"""What the launches of a pass gave back, row by row in the order of the pass."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gemmule import numerics
from gemmule.compiler.program import ReadDram
from gemmule.compiler.programs.general_program import GeneralProgram
from gemmule.sim.result import Result
from gemmule.sw.step import Exponents, Forward, Hidden, TopK, Want, exponent_scaling

__all__ = ["Collected", "exponents_of", "largest"]


def largest(logits: np.ndarray, count: int) -> TopK:
    """The largest logits of each row  # int [rows, vocab]"""
    vocab = logits.shape[1]
    kept = min(count, vocab)
    keys = logits.astype(np.int64) * vocab - np.arange(vocab)  # of equal logits the lowest token comes first
    found = np.argpartition(-keys, kept - 1, axis=1)[:, :kept]
    order = np.argsort(-np.take_along_axis(keys, found, axis=1), axis=1)
    tokens = np.take_along_axis(found, order, axis=1)
    return TopK(tokens, np.take_along_axis(logits, tokens, axis=1).astype(np.int64))


def exponents_of(logits: np.ndarray, scale: float, temperature: float) -> Exponents:
    """Maxima of rows of logits, and the sums of all tokens' 16-bit weights, as the device adds them up.

    ``logits``: int [rows, vocab], real = number * ``scale``.
    """
    mult, shift = exponent_scaling(scale, temperature)
    t = numerics.scores(logits.astype(np.int64), mult, shift)
    weights, _ = numerics.row_probabilities(t, t.max(axis=1), np.full(len(t), t.shape[1]), wide=True)
    return Exponents(logits.max(axis=1).astype(np.int64), weights.sum(axis=1), mult, shift)


class Collected:
    """Answers of the answered rows of a pass, filled launch by launch."""

    def __init__(self, want: Want, answered: np.ndarray, vocab: int, scale: tuple[int, int] | None) -> None:
        """``answered``: which rows of the pass are, bool [rows]; ``scale``: multiplier and shift of exponents."""
        self.want, self.scale, count = want, scale, int(answered.sum())
        self.place = np.cumsum(answered) - 1
        """Of each answered row among them."""
        self.argmax = np.zeros(count, dtype=np.int64)
        self.logits = np.zeros((count, vocab), dtype=np.int16) if want.logits else None
        self.top = TopK(*np.zeros((2, count, min(want.top, vocab)), dtype=np.int64)) if want.top else None
        self.maximum, self.total = np.zeros((2, count), dtype=np.int64)

    def take(self, general: GeneralProgram, read: ReadDram, index: np.ndarray, rows: np.ndarray, count: int) -> None:
        """Of a launch of the general program: row ``rows[i]`` of its ``count`` answered ones is row ``index[i]``."""
        to = self.place[index]
        self.argmax[to] = general.read_tokens(read, count)[rows]
        if self.logits is not None:
            self.logits[to] = general.read_logits(read, count)[rows]
        if self.top is not None:
            tokens = general.read_top(read, count)
            logits = general.read_logits_of(read, tokens)
            order = np.lexsort((tokens, -logits), axis=1)[:, :self.top.tokens.shape[1]]
            self.top.tokens[to] = np.take_along_axis(tokens, order, axis=1)[rows]
            self.top.logits[to] = np.take_along_axis(logits, order, axis=1)[rows]
        if self.scale:
            self.maximum[to] = general.read_logits_of(read, general.read_tokens(read, count)[:, None])[rows, 0]
            self.total[to] = general.read_totals(read, count)[rows]

    def forward(self, results: tuple[Result, ...], hidden: Mapping[int, Hidden]) -> Forward:
        """All of it."""
        exponents = Exponents(self.maximum, self.total, *self.scale) if self.scale else None
        return Forward(self.argmax.tolist(), results, self.logits, self.top, exponents, hidden)
