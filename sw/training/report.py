"""Measurements that hold for any implementation of the models: ranges, agreement, repetition.

The functions see a model only as a predictor from token ids to logits in numpy, so the same
yardstick serves the float models here and the integer models of the device.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int64]
Predictor = Callable[[Tokens], NDArray[np.float32]]
"""Token ids [batch, tokens] to next-token logits [batch, tokens, vocab]."""

CONTEXT = 256
EVAL_BATCH = 16


class RangeRecorder:
    """Keeps the largest magnitude seen at each named tap of a model, in dataflow order."""

    def __init__(self) -> None:
        self.largest: dict[str, float] = {}

    def observe(self, name: str, value: NDArray[np.float32]) -> None:
        """Take one activation of any shape."""
        self.largest[name] = max(self.largest.get(name, 0.0), float(np.abs(value).max()))

    def rounded(self) -> dict[str, float]:
        """Largest magnitudes with three decimals."""
        return {name: round(value, 3) for name, value in self.largest.items()}


def full_windows(stream: Tokens) -> Tokens:
    """Non-overlapping windows; a tail that fills no window is left out  # [windows, CONTEXT]."""
    count = len(stream) // CONTEXT
    return stream[: count * CONTEXT].reshape(count, CONTEXT)


def agreement(draft: Predictor, text: Tokens, prompt_tokens: int) -> float:
    """Share of positions where the draft's best token is the one in the text  # [rows, tokens].

    On text that the target wrote greedily this is the acceptance rate of speculative decoding.
    The first `prompt_tokens` of each row are given, not judged.
    """
    best = draft(text[:, :-1]).argmax(-1)  # [rows, tokens - 1]
    return float((best[:, prompt_tokens - 1 :] == text[:, prompt_tokens:]).mean())


def distinct_share(text: Tokens, length: int = 4) -> float:
    """Distinct n-grams over all n-grams of each row, averaged: low values mean looping text."""
    shares = []
    for row in text:
        grams = np.lib.stride_tricks.sliding_window_view(row, length)
        shares.append(len(np.unique(grams, axis=0)) / len(grams))
    return float(np.mean(shares))
