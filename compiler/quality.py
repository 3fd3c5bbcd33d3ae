"""Bits per byte of the float and the integer model on the same text."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gemmule.compiler.checkpoint import Checkpoint
from gemmule.compiler.interpreter import Interpreter, KvCache
from gemmule.compiler.qmodel import QuantModel
from gemmule.compiler.reference import float_forward

__all__ = ["bits_per_byte", "float_predictor", "integer_predictor"]

Predictor = Callable[[np.ndarray], np.ndarray]
"""Token ids [batch, length] from position 0 to real-valued logits [batch, length, vocab]."""


def float_predictor(model: Checkpoint) -> Predictor:
    """Logits of the float checkpoint."""
    return lambda ids: float_forward(model, ids)


def integer_predictor(model: QuantModel) -> Predictor:
    """Logits of the integer interpreter, scaled to real values."""
    interpreter = Interpreter(model)

    def predict(ids: np.ndarray) -> np.ndarray:
        cache = KvCache(model)
        rows = [interpreter.forward(window, 0, cache) for window in ids]
        return np.stack(rows).astype(np.float64) * model.logit_scale

    return predict


def bits_per_byte(predict: Predictor, tokens: np.ndarray, byte_count: int, *, window: int = 256) -> float:
    """Code length of a token stream in bits over its bytes of text.

    Windows of ``window`` predictions do not overlap: each starts without context, an upper bound.
    """
    tokens = np.asarray(tokens, dtype=np.int64)
    if byte_count < 1 or len(tokens) < 2:
        raise ValueError(f"quality needs at least 2 tokens and 1 byte, not {len(tokens)} and {byte_count}")
    nats = 0.0
    for start in range(0, len(tokens) - 1, window):
        part = tokens[start:start + window + 1]
        logits = predict(part[None, :-1])[0].astype(np.float64)  # [length, vocab]
        logits -= logits.max(-1, keepdims=True)
        wanted = np.take_along_axis(logits, part[1:, None], -1)[:, 0]
        nats += float((np.log(np.exp(logits).sum(-1)) - wanted).sum())
    return nats / np.log(2) / byte_count
