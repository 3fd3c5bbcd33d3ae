"""Measurements that hold for any implementation of the models: bits per byte, ranges, agreement.

The functions see a model only as a predictor from token ids to logits in numpy, so the same
yardstick serves the float models here and the integer models of the device.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int64]
Predictor = Callable[[Tokens], NDArray[np.float32]]
"""Token ids [batch, tokens] to next-token logits [batch, tokens, vocab]."""

CONTEXT = 256
EVAL_BATCH = 16


def code_length(logits: NDArray[np.float32], wanted: Tokens) -> float:
    """Nats to code `wanted` [batch, tokens] under softmax(logits) [batch, tokens, vocab]."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(-1, keepdims=True)
    chosen = np.take_along_axis(shifted, wanted[..., None], -1)[..., 0]  # [batch, tokens]
    return float((np.log(np.exp(shifted).sum(-1)) - chosen).sum())


def bits_per_byte(predict: Predictor, stream: Tokens, byte_count: int) -> float:
    """Code length of the whole stream over its bytes of text, in bits.

    Windows of 256 predictions do not overlap, so each begins without context: an upper bound.
    The <eos> between files costs bits but adds no bytes.
    """
    if byte_count < 1 or len(stream) < 2:
        raise ValueError(f"nothing to measure: {len(stream)} tokens, {byte_count} bytes")
    full = (len(stream) - 1) // CONTEXT
    inputs = stream[: full * CONTEXT].reshape(full, CONTEXT)
    wanted = stream[1 : full * CONTEXT + 1].reshape(full, CONTEXT)
    nats = 0.0
    for start in range(0, full, EVAL_BATCH):
        batch = slice(start, start + EVAL_BATCH)
        nats += code_length(predict(inputs[batch]), wanted[batch])
    tail = stream[full * CONTEXT :]
    if len(tail) > 1:
        nats += code_length(predict(tail[None, :-1]), tail[None, 1:])
    return nats / math.log(2) / byte_count


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
