"""One encoder layer in integers: the golden of the compiled layer, from the device's arithmetic alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmule import numerics
from gemmule.compiler.errors import CompileError
from gemmule.compiler.quantize import to_mult_shift

__all__ = [
    "BiasedLinear", "EncoderLayer", "EncoderShape", "LayerNorm", "attention", "encode", "random_layer",
]


@dataclass(frozen=True, kw_only=True)
class EncoderShape:
    """Sizes of a layer; hidden = heads * head_dim."""

    sequence: int
    heads: int
    head_dim: int
    inner: int

    @property
    def hidden(self) -> int:
        return self.heads * self.head_dim

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one layer."""
        linear = self.hidden * (4 * self.hidden + 2 * self.inner)
        return self.sequence * (linear + 2 * self.sequence * self.hidden)


@dataclass(frozen=True, kw_only=True)
class BiasedLinear:
    """int8 weights [out, in]; int32 bias, u16 mult and shift per column."""

    weight: np.ndarray
    bias: np.ndarray
    mult: np.ndarray
    shift: np.ndarray

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Requantised, not saturated: int64 [rows, out] of int8 x [rows, in]."""
        exact = x.astype(np.float64) @ self.weight.T.astype(np.float64)  # exact: below 2**53
        acc = (exact.astype(np.int64) + self.bias).astype(np.int32)  # wraps
        return numerics.requant(acc, self.mult, self.shift)


@dataclass(frozen=True, kw_only=True)
class LayerNorm:
    """gamma int16, beta int32 (on the scale of Q5.10 times gamma), epsilon ``eps_mult << eps_shift``.

    The same values leave it twice: as int8 with ``shift`` and as int16 with ``wide_shift``.
    """

    gamma: np.ndarray
    beta: np.ndarray
    shift: int
    wide_shift: int
    eps_mult: int
    eps_shift: int

    def __call__(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(int8, int16) rows, as int64, of int16 rows x."""
        statistic = numerics.norm_statistic(x, self.eps_mult, self.eps_shift, mean=True)
        narrow, wide = (
            numerics.normalize(x, *statistic, self.gamma, shift, beta=self.beta, bits=bits)
            for shift, bits in ((self.shift, 8), (self.wide_shift, 16)))
        return narrow, wide


@dataclass(frozen=True, kw_only=True)
class EncoderLayer:
    """A quantised post-norm layer. ``score`` and ``context`` are [heads, 2]: mult and shift; ``table`` uint8[256]."""

    shape: EncoderShape
    q: BiasedLinear
    k: BiasedLinear
    v: BiasedLinear
    score: np.ndarray
    context: np.ndarray
    o: BiasedLinear
    attention_norm: LayerNorm
    up: BiasedLinear
    table: np.ndarray
    down: BiasedLinear
    output_norm: LayerNorm


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, score: np.ndarray, scale: np.ndarray, *,
              causal: bool = False) -> np.ndarray:
    """int8 context, as int64 [heads, queries, head_dim], of int8 q, k, v [heads, rows, head_dim].

    ``score`` and ``scale`` are [heads, 2]: mult and shift of scores and of contexts.
    """
    found = []
    for h in range(len(q)):
        acc = q[h].astype(np.int64) @ k[h].T.astype(np.int64)
        t = numerics.scores(acc, int(score[h, 0]), int(score[h, 1]))
        seen = numerics.visible(len(q[h]), len(k[h]), causal)
        probabilities, total = numerics.row_probabilities(t, numerics.row_max(t, seen), seen)
        context = probabilities @ v[h].astype(np.int64)
        reciprocal, length = numerics.softmax_reciprocal(total)
        found.append(numerics.saturate(
            numerics.requant_row(context, reciprocal, length, int(scale[h, 0]), int(scale[h, 1])), 8))
    return np.stack(found)


def _heads(x: np.ndarray, shape: EncoderShape) -> np.ndarray:
    return x.reshape(len(x), shape.heads, shape.head_dim).transpose(1, 0, 2)  # [heads, rows, head_dim]


def encode(layer: EncoderLayer, x8: np.ndarray, x16: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(int8, int16) output rows, as int64 [sequence, hidden].

    ``x8`` and ``x16`` are the layer's input on two scales, as the layer before leaves them: the products
    take int8, the residual stream is int16.
    """
    shape = layer.shape
    q, k, v = (_heads(numerics.requant_store(linear(x8)), shape) for linear in (layer.q, layer.k, layer.v))
    context = attention(q, k, v, layer.score, layer.context).transpose(1, 0, 2).reshape(len(x8), -1)
    y8, y16 = layer.attention_norm(numerics.requant_store(layer.o(context), residual=np.asarray(x16, dtype=np.int64)))
    inner = numerics.requant_store(layer.up(y8), table=layer.table)
    return layer.output_norm(numerics.requant_store(layer.down(inner), residual=y16))


NARROW_STEP, WIDE_STEP = 1 / 32, 1 / 4096
"""int8 and int16 values of a unit of the normalised stream."""
GAMMA_STEP = 1 / 8192


def _gelu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-1.702 * x))


def random_layer(shape: EncoderShape, seed: int) -> tuple[EncoderLayer, np.ndarray, np.ndarray]:
    """A random layer and its input (x8, x16), scaled so that every tensor fills its range and few values saturate.

    Weights are normal with a spread of column scales, as trained layers have; requantisation is set from the
    standard deviation that each product has on this very input.

    Raises:
        CompileError: a size is not positive.
    """
    if min(shape.sequence, shape.heads, shape.head_dim, shape.inner) < 1:
        raise CompileError(f"sizes of a layer must be positive, not {shape}")
    random = np.random.default_rng(seed)
    hidden = shape.hidden
    stream = random.standard_normal((shape.sequence, hidden))
    x16 = numerics.saturate(np.rint(stream / WIDE_STEP).astype(np.int64), 16)
    x8 = numerics.saturate(np.rint(stream / NARROW_STEP).astype(np.int64), 8)

    def linear(x: np.ndarray, out: int, deviation: float) -> BiasedLinear:
        weight = np.clip(np.rint(random.standard_normal((out, x.shape[1])) * 40), -127, 127).astype(np.int8)
        acc = x.astype(np.float64) @ weight.T.astype(np.float64)
        spread = acc.std() + 1.0
        bias = np.rint(random.standard_normal(out) * spread / 4).astype(np.int32)
        mult, shift = to_mult_shift(deviation / spread * np.exp(random.standard_normal(out) / 5))
        return BiasedLinear(weight=weight, bias=bias, mult=mult, shift=shift)

    def norm() -> LayerNorm:
        unit = 1024 / GAMMA_STEP  # of Q5.10 times gamma
        return LayerNorm(
            gamma=np.rint(random.uniform(0.7, 1.3, hidden) / GAMMA_STEP).astype(np.int64),
            beta=np.rint(random.standard_normal(hidden) * unit / 10).astype(np.int64),
            shift=round(np.log2(unit * NARROW_STEP)), wide_shift=round(np.log2(unit * WIDE_STEP)), eps_mult=17,
            eps_shift=4)

    q, k, v = (linear(x8, hidden, 32) for _ in range(3))
    of_q, of_k, of_v = (_heads(numerics.requant_store(part(x8)), shape) for part in (q, k, v))
    # Scores with a deviation of two octaves, contexts with one of 32.
    spreads = [float((a.astype(np.float64) @ b.T).std()) + 1 for a, b in zip(of_q, of_k)]
    score = np.stack(to_mult_shift(2 * 1024 / np.array(spreads)), axis=1)
    scale = np.stack(to_mult_shift(np.full(shape.heads, 1.0)), axis=1)
    narrow = attention(of_q, of_k, of_v, score, scale)
    scale = np.stack(to_mult_shift(32 / (narrow.std(axis=(1, 2)) + 1)), axis=1)
    context = attention(of_q, of_k, of_v, score, scale).transpose(1, 0, 2).reshape(shape.sequence, -1)
    o = linear(context, hidden, 0.5 / WIDE_STEP)
    attention_norm = norm()
    y8, y16 = attention_norm(numerics.requant_store(o(context), residual=x16))
    up = linear(y8, shape.inner, 40)
    codes = np.arange(numerics.BYTE_TABLE_ENTRIES).astype(np.uint8).view(np.int8).astype(np.float64)
    table = np.clip(np.rint(_gelu(codes / 40) * 48), -128, 127).astype(np.int8).view(np.uint8)
    inner = numerics.requant_store(up(y8), table=table)
    layer = EncoderLayer(
        shape=shape, q=q, k=k, v=v, score=score, context=scale, o=o, attention_norm=attention_norm, up=up, table=table,
        down=linear(inner, hidden, 0.5 / WIDE_STEP), output_norm=norm())
    return layer, x8, x16
