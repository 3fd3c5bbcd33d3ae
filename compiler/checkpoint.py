"""Checkpoints in the Hugging Face layout: ``config.json`` + ``model.safetensors`` with Llama names."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from gemmule.compiler.errors import CompileError

__all__ = ["ACTIVATIONS", "Checkpoint", "DecoderShape", "LayerWeights", "load_checkpoint"]

ACTIVATIONS = ("gelu_pytorch_tanh", "gelu_new", "silu", "relu")


@dataclass(frozen=True, kw_only=True)
class DecoderShape:
    """Sizes of one decoder of the supported family (pre-RMSNorm, RoPE, causal MHA, MLP)."""

    hidden: int
    inner: int
    layers: int
    heads: int
    head_dim: int
    vocab: int
    max_positions: int
    rms_eps: float
    rope_theta: float
    activation: str
    gated: bool
    tied: bool

    @property
    def width(self) -> int:
        """Columns of q, of k and of v."""
        return self.heads * self.head_dim


@dataclass(frozen=True, kw_only=True)
class LayerWeights:
    """float32 tensors of one layer; linear weights are [out, in]."""

    attention_norm: np.ndarray
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    o: np.ndarray
    mlp_norm: np.ndarray
    gate: np.ndarray | None
    up: np.ndarray
    down: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A float model: shape, embedding [vocab, hidden], layers, final norm, head [vocab, hidden]."""

    shape: DecoderShape
    embedding: np.ndarray
    layers: tuple[LayerWeights, ...]
    norm: np.ndarray
    head: np.ndarray


_REQUIRED = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
    "max_position_embeddings",
)


def parse_shape(config: dict[str, Any], gated: bool) -> DecoderShape:
    """The shape that the keys of config.json describe, checked."""
    missing = [key for key in _REQUIRED if key not in config]
    if missing:
        raise CompileError(f"config.json lacks {missing[0]!r}: add it (an integer)")
    heads = config["num_attention_heads"]
    if config.get("num_key_value_heads", heads) != heads:
        raise CompileError(
            f"num_key_value_heads must equal num_attention_heads = {heads}, not "
            f"{config['num_key_value_heads']}: grouped-query attention is not supported")
    activation = config.get("hidden_act", "silu")
    if activation not in ACTIVATIONS:
        raise CompileError(f"hidden_act must be one of {', '.join(ACTIVATIONS)}, not {activation!r}")
    for bias in ("attention_bias", "mlp_bias"):
        if config.get(bias):
            raise CompileError(f"{bias} must be false: linear layers with a bias are not supported")
    if config.get("rope_scaling"):
        raise CompileError("rope_scaling must be absent: only plain rotary positions are supported")
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    if head_dim % 2:
        raise CompileError(f"head_dim must be even for rotary positions, not {head_dim}")
    return DecoderShape(
        hidden=config["hidden_size"], inner=config["intermediate_size"], layers=config["num_hidden_layers"],
        heads=heads, head_dim=head_dim, vocab=config["vocab_size"],
        max_positions=config["max_position_embeddings"], rms_eps=float(config.get("rms_norm_eps", 1e-6)),
        rope_theta=float(config.get("rope_theta", 10000.0)), activation=activation, gated=gated,
        tied=bool(config.get("tie_word_embeddings", False)),
    )


def _adjacent_pairs(weight: np.ndarray, shape: DecoderShape) -> np.ndarray:
    """Rows of q or k from the half-split rotary layout (i, i + d/2) to adjacent pairs (2i, 2i + 1)."""
    halves = weight.reshape(shape.heads, 2, shape.head_dim // 2, -1)
    return np.ascontiguousarray(halves.transpose(0, 2, 1, 3).reshape(weight.shape))


def load_checkpoint(folder: str | Path) -> Checkpoint:
    """Read a checkpoint directory; half-split rotary columns are permuted to adjacent pairs.

    Raises:
        CompileError: a file, key or tensor is missing or has the wrong shape.
    """
    folder = Path(folder)
    for name in ("config.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise CompileError(f"{folder} has no {name}: give a directory in the Hugging Face layout")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    tensors = load_file(folder / "model.safetensors")
    shape = parse_shape(config, "model.layers.0.mlp.gate_proj.weight" in tensors)

    def take(name: str, *size: int) -> np.ndarray:
        if name not in tensors:
            raise CompileError(f"{folder / 'model.safetensors'} lacks the tensor {name!r}")
        if tensors[name].shape != size:
            raise CompileError(f"{name} must have shape {size}, not {tensors[name].shape}")
        return np.asarray(tensors[name], dtype=np.float32)

    interleaved = config.get("rope_interleaved", False)

    def rotary(name: str) -> np.ndarray:
        weight = take(name, shape.width, shape.hidden)
        return weight if interleaved else _adjacent_pairs(weight, shape)

    layers = []
    for index in range(shape.layers):
        at = f"model.layers.{index}."
        layers.append(LayerWeights(
            attention_norm=take(at + "input_layernorm.weight", shape.hidden),
            q=rotary(at + "self_attn.q_proj.weight"), k=rotary(at + "self_attn.k_proj.weight"),
            v=take(at + "self_attn.v_proj.weight", shape.width, shape.hidden),
            o=take(at + "self_attn.o_proj.weight", shape.hidden, shape.width),
            mlp_norm=take(at + "post_attention_layernorm.weight", shape.hidden),
            gate=take(at + "mlp.gate_proj.weight", shape.inner, shape.hidden) if shape.gated else None,
            up=take(at + "mlp.up_proj.weight", shape.inner, shape.hidden),
            down=take(at + "mlp.down_proj.weight", shape.hidden, shape.inner),
        ))
    embedding = take("model.embed_tokens.weight", shape.vocab, shape.hidden)
    head = embedding if shape.tied else take("lm_head.weight", shape.vocab, shape.hidden)
    return Checkpoint(shape=shape, embedding=embedding, layers=tuple(layers),
                      norm=take("model.norm.weight", shape.hidden), head=head)
