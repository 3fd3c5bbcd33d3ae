"""The float decoder in numpy: what calibration observes and what quality is measured against."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gemmule.compiler.checkpoint import Checkpoint, DecoderShape

__all__ = ["activate", "float_forward", "rope_angles"]

Observer = Callable[[str, np.ndarray], None]


def rope_angles(shape: DecoderShape) -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine per position and pair  # each float64 [max_positions, head_dim / 2]."""
    exponent = np.arange(0, shape.head_dim, 2) / shape.head_dim
    angle = np.outer(np.arange(shape.max_positions), shape.rope_theta ** -exponent)
    return np.cos(angle), np.sin(angle)


def activate(name: str, x: np.ndarray) -> np.ndarray:
    """The activation function of the MLP by its Hugging Face name."""
    if name in ("gelu_pytorch_tanh", "gelu_new"):
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))
    if name == "silu":
        return x / (1 + np.exp(-np.clip(x, -80, None)))
    rectified: np.ndarray = np.maximum(x, 0)
    return rectified * rectified if name == "relu2" else rectified


def _norm(x: np.ndarray, gamma: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(eps)) * gamma


def _rotate(x: np.ndarray, cosine: np.ndarray, sine: np.ndarray) -> np.ndarray:
    even, odd = x[..., 0::2], x[..., 1::2]
    return np.stack((even * cosine - odd * sine, even * sine + odd * cosine), -1).reshape(x.shape)


def float_forward(model: Checkpoint, tokens: np.ndarray, observe: Observer | None = None) -> np.ndarray:
    """Logits of ``tokens[batch, length]``, from position 0  # float32 [batch, length, vocab].

    ``observe`` receives named activations: ``x`` (residual), ``{layer}.norm1``, ``q``, ``k``, ``v``
    (heads apart), ``ctx``, ``norm2``, ``gate``, ``up``, ``h``, and ``norm``, ``logits``.
    """
    shape = model.shape
    see: Observer = observe or (lambda name, value: None)
    batch, length = tokens.shape
    cosine, sine = (t[:length].astype(np.float32) for t in rope_angles(shape))
    mask = np.triu(np.full((length, length), -np.inf, dtype=np.float32), 1)
    x = model.embedding[tokens]  # [batch, length, hidden]
    see("x", x)
    for index, layer in enumerate(model.layers):
        y = _norm(x, layer.attention_norm, shape.rms_eps)
        see(f"{index}.norm1", y)
        q, k, v = ((y @ w.T).reshape(batch, length, shape.heads, shape.head_dim).transpose(0, 2, 1, 3)
                   for w in (layer.q, layer.k, layer.v))  # [batch, heads, length, head_dim]
        q, k = _rotate(q, cosine, sine), _rotate(k, cosine, sine)
        for name, value in (("q", q), ("k", k), ("v", v)):
            see(f"{index}.{name}", value)
        scores = q @ k.transpose(0, 1, 3, 2) / np.float32(np.sqrt(shape.head_dim)) + mask
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        context = (powers / powers.sum(-1, keepdims=True)) @ v
        context = context.transpose(0, 2, 1, 3).reshape(batch, length, shape.width)
        see(f"{index}.ctx", context)
        x = x + context @ layer.o.T
        see("x", x)
        y = _norm(x, layer.mlp_norm, shape.rms_eps)
        see(f"{index}.norm2", y)
        up = y @ layer.up.T
        see(f"{index}.up", up)
        if layer.gate is None:
            h = activate(shape.activation, up)
        else:
            gate = y @ layer.gate.T
            see(f"{index}.gate", gate)
            h = activate(shape.activation, gate)
            see(f"{index}.act", h)
            h = h * up
        see(f"{index}.h", h)
        x = x + h @ layer.down.T
        see("x", x)
    y = _norm(x, model.norm, shape.rms_eps)
    see("norm", y)
    logits = y @ model.head.T
    see("logits", logits)
    return logits
