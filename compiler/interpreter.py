"""Integer interpreter of a quantised decoder: the golden for every compiled program.

Row by row the arithmetic is the device's (``gemmule.numerics``); rows are only vectorised.
"""

from __future__ import annotations

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.qmodel import Linear, Norm, QuantLayer, QuantModel
from gemmule.compiler.quantize import ROPE_SHIFT
from gemmule.numerics import (
    lookup,
    norm_statistic,
    normalize,
    product,
    requant,
    requant_row,
    requant_store,
    rope,
    row_max,
    row_probabilities,
    saturate,
    scores,
    softmax_reciprocal,
    visible,
)

__all__ = ["Interpreter", "KvCache"]


class KvCache:
    """int8 keys (rotated) and values of every position  # each [layers, positions, width]."""

    def __init__(self, model: QuantModel) -> None:
        size = (model.shape.layers, model.shape.max_positions, model.shape.width)
        self.keys = np.zeros(size, dtype=np.int8)
        self.values = np.zeros(size, dtype=np.int8)


def _matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Exact integer product a @ b of 8-bit operands through BLAS: sums stay below 2**24 or 2**53."""
    kind = np.float32 if a.shape[-1] <= 512 else np.float64
    return np.rint(a.astype(kind) @ b.astype(kind)).astype(np.int64)


class Interpreter:
    """Runs a :class:`QuantModel` on the host."""

    def __init__(self, model: QuantModel) -> None:
        self.model = model
        pairs = model.shape.heads
        # Both lanes of a pair hold the same value  # [positions, width]
        self.cosine = np.tile(np.repeat(model.cosine.astype(np.int64), 2, axis=1), (1, pairs))
        self.sine = np.tile(np.repeat(model.sine.astype(np.int64), 2, axis=1), (1, pairs))

    def forward(self, tokens: np.ndarray | list[int], position: int, kv: KvCache) -> np.ndarray:
        """int16 logits [rows, vocab] of new tokens at ``position``; their keys and values enter ``kv``."""
        shape = self.model.shape
        ids = np.asarray(tokens, dtype=np.int64)
        if ids.ndim != 1 or len(ids) == 0 or ids.min() < 0 or ids.max() >= shape.vocab:
            raise CompileError(f"tokens must be a non-empty list of ids from 0 to {shape.vocab - 1}")
        if position < 0 or position + len(ids) > shape.max_positions:
            raise CompileError(
                f"position + tokens must be at most {shape.max_positions}, not {position} + {len(ids)}")
        x = self.model.embedding(ids)  # [rows, hidden]
        for index, layer in enumerate(self.model.layers):
            y = self._norm(x, layer.attention_norm)
            x = self._residual(self._attention(y, index, layer, position, kv), layer.o, x)
            x = self._residual(self._mlp(self._norm(x, layer.mlp_norm), layer), layer.down, x)
        logits = self._requant(self._norm(x, self.model.norm), self.model.head)
        return requant_store(logits, wide=True).astype(np.int16)

    def _norm(self, x: np.ndarray, norm: Norm) -> np.ndarray:
        statistic = norm_statistic(x, norm.eps_mult, norm.eps_shift, mean=False)
        return normalize(x, *statistic, norm.gamma, norm.shift)

    def _requant(self, a: np.ndarray, linear: Linear) -> np.ndarray:
        return requant(_matmul(a, linear.weight.T), linear.mult, linear.shift)

    def _residual(self, a: np.ndarray, linear: Linear, x: np.ndarray) -> np.ndarray:
        return requant_store(self._requant(a, linear), residual=x)

    def _attention(self, y: np.ndarray, index: int, layer: QuantLayer, position: int,
                   kv: KvCache) -> np.ndarray:
        """Context rows int8 [rows, width]."""
        rows, end = len(y), position + len(y)
        cosine, sine = self.cosine[position:end], self.sine[position:end]
        q, k = (rope(saturate(self._requant(y, linear), 16), cosine, sine, ROPE_SHIFT)
                for linear in (layer.q, layer.k))
        kv.keys[index, position:end] = k
        kv.values[index, position:end] = requant_store(self._requant(y, layer.v))
        count = visible(rows, end, True)
        context = np.empty((rows, self.model.shape.width), dtype=np.int64)
        size = self.model.shape.head_dim
        for head in range(self.model.shape.heads):
            at = slice(head * size, (head + 1) * size)
            keys, values = kv.keys[index, :end, at], kv.values[index, :end, at]
            t = scores(_matmul(q[:, at], keys.T), *(int(v) for v in layer.score[head]))
            p, total = row_probabilities(t, row_max(t, count), count)
            reciprocal, length = softmax_reciprocal(total)
            mult, shift = (int(v) for v in layer.context[head])
            context[:, at] = requant_store(requant_row(_matmul(p, values), reciprocal, length, mult, shift))
        return context

    def _mlp(self, y: np.ndarray, layer: QuantLayer) -> np.ndarray:
        """The down projection's input, int8 [rows, inner]."""
        up = requant_store(self._requant(y, layer.up))
        if layer.gate is None:
            return lookup(up, layer.table)
        gate = requant_store(self._requant(y, layer.gate), table=layer.table)
        return product(gate, up, *layer.product)
