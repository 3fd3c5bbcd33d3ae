"""Checkpoints in the Hugging Face layout: ``config.json`` + ``model.safetensors`` with Llama names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gemmule.compiler.errors import CompileError
from gemmule.compiler.layout import MOST_DEPTH
from gemmule.compiler.tensors import Expected, TensorFile, open_tensors
from gemmule.io.fields import first_problem
from gemmule.io.reading import ReadError, named, read_json, shown

__all__ = ["Checkpoint", "DecoderShape", "DecoderSizes", "LayerWeights", "load_checkpoint"]

MOST_CONFIG = 1 << 20
"""Bytes of a config.json."""
_Depth = Annotated[int, Field(ge=1, lt=MOST_DEPTH)]


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


class DecoderSizes(BaseModel):
    """A :class:`DecoderShape` as a file states it, checked."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    hidden: _Depth
    inner: _Depth
    layers: int = Field(ge=1, le=1024)
    heads: int = Field(ge=1, le=1024)
    head_dim: int = Field(ge=2, le=8192, multiple_of=2)
    vocab: int = Field(ge=1, le=1 << 16)
    """Token ids have 16 bits on the device."""
    max_positions: int = Field(ge=1, lt=1 << 16)
    rms_eps: float = Field(gt=0, lt=1, allow_inf_nan=False)
    rope_theta: float = Field(ge=1, le=1e12, allow_inf_nan=False)
    activation: Literal["gelu_pytorch_tanh", "gelu_new", "silu", "relu", "relu2"]
    gated: bool
    tied: bool

    @model_validator(mode="after")
    def _check(self) -> DecoderSizes:
        if self.heads * self.head_dim >= MOST_DEPTH:
            raise ValueError(f"heads * head_dim must be less than {MOST_DEPTH:,}, not {self.heads * self.head_dim:,}")
        return self

    @property
    def decoder_shape(self) -> DecoderShape:
        """The checked sizes, as the compiler takes them."""
        return DecoderShape(**self.model_dump())


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


_KEYS = {
    "hidden": "hidden_size", "inner": "intermediate_size", "layers": "num_hidden_layers",
    "heads": "num_attention_heads", "head_dim": "head_dim", "vocab": "vocab_size",
    "max_positions": "max_position_embeddings", "rms_eps": "rms_norm_eps", "rope_theta": "rope_theta",
    "activation": "hidden_act", "tied": "tie_word_embeddings",
}
"""Sizes by their keys in config.json."""
_DEFAULTS = {"rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False}


def parse_shape(config: dict[str, Any], gated: bool) -> DecoderShape:
    """The shape that the keys of config.json describe, checked.

    Raises:
        CompileError: a key is missing, of the wrong type or out of range, or asks for what is not supported.
    """
    for bias in ("attention_bias", "mlp_bias"):
        if config.get(bias):
            raise CompileError(f"{bias} must be false: linear layers with a bias are not supported")
    if config.get("rope_scaling"):
        raise CompileError("rope_scaling must be absent: only plain rotary positions are supported")
    if not isinstance(config.get("rope_interleaved", False), bool):
        raise CompileError(f"rope_interleaved must be true or false, not {shown(config['rope_interleaved'])}")
    known = _DEFAULTS | {key: value for key, value in config.items() if value is not None}
    heads, hidden = known.get("num_attention_heads"), known.get("hidden_size")
    if known.get("num_key_value_heads", heads) != heads:
        raise CompileError(
            f"num_key_value_heads must equal num_attention_heads = {shown(heads)}, not "
            f"{shown(known['num_key_value_heads'])}: grouped-query attention is not supported")
    if "head_dim" not in known and isinstance(heads, int) and isinstance(hidden, int) and heads > 0:
        if hidden % heads:
            raise CompileError(
                f"hidden_size must be a multiple of num_attention_heads = {heads} where head_dim is not given, "
                f"not {shown(hidden)}")
        known["head_dim"] = hidden // heads
    try:
        return DecoderSizes.model_validate(
            {name: known[key] for name, key in _KEYS.items() if key in known} | {"gated": gated}).decoder_shape
    except ValidationError as error:
        name, text = first_problem(error, DecoderSizes)
        raise CompileError(text.replace(name, _KEYS[name], 1) if name else text) from None


def _expected(shape: DecoderShape) -> dict[str, Expected]:
    """Every tensor by name."""
    def weight(*size: int, optional: bool = False) -> Expected:
        return Expected(shape=size, dtypes=("F32", "F16", "F64"), optional=optional)

    hidden, inner, width = shape.hidden, shape.inner, shape.width
    found = {"model.embed_tokens.weight": weight(shape.vocab, hidden), "model.norm.weight": weight(hidden),
             "lm_head.weight": weight(shape.vocab, hidden, optional=shape.tied)}
    for at in (f"model.layers.{index}." for index in range(shape.layers)):
        found |= {f"{at}{name}_layernorm.weight": weight(hidden) for name in ("input", "post_attention")}
        found |= {f"{at}self_attn.{name}_proj.weight": weight(width, hidden) for name in "qkv"}
        found |= {at + "self_attn.o_proj.weight": weight(hidden, width),
                  at + "mlp.up_proj.weight": weight(inner, hidden), at + "mlp.down_proj.weight": weight(hidden, inner),
                  # what old exporters write beside: angles, computed here
                  at + "self_attn.rotary_emb.inv_freq": weight(shape.head_dim // 2, optional=True)}
        if shape.gated:
            found[at + "mlp.gate_proj.weight"] = weight(inner, hidden)
    return found


def _adjacent_pairs(weight: np.ndarray, shape: DecoderShape) -> np.ndarray:
    """Rows of q or k from the half-split rotary layout (i, i + d/2) to adjacent pairs (2i, 2i + 1)."""
    halves = weight.reshape(shape.heads, 2, shape.head_dim // 2, -1)
    return np.ascontiguousarray(halves.transpose(0, 2, 1, 3).reshape(weight.shape))


def load_checkpoint(folder: str | Path) -> Checkpoint:
    """Read a checkpoint directory; half-split rotary columns are permuted to adjacent pairs.

    Raises:
        CompileError: a file, key or tensor is missing, unknown, or not what it must be.
    """
    folder = Path(folder)
    for name in ("config.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise CompileError(f"{named(folder)} has no {name}: give a directory in the Hugging Face layout")
    at = folder / "config.json"
    try:
        config = read_json(at, MOST_CONFIG)
    except ReadError as error:
        raise CompileError(f"{named(at, error.line)}: {error}") from None
    with open_tensors(folder / "model.safetensors") as file:
        try:
            shape = parse_shape(config, "model.layers.0.mlp.gate_proj.weight" in file.names)
        except CompileError as error:
            raise CompileError(f"{named(at)}: {error}") from None
        return _checkpoint(file, shape, config.get("rope_interleaved", False))


def _checkpoint(file: TensorFile, shape: DecoderShape, interleaved: bool) -> Checkpoint:
    tensors = file.read(_expected(shape))

    def take(name: str) -> np.ndarray:
        value = tensors.pop(name)
        if value.dtype == np.float64 and np.abs(value).max(initial=0) > np.finfo(np.float32).max:
            raise CompileError(f"{file.path}: {name} must hold numbers of float32, not {np.abs(value).max():.3g}")
        return np.asarray(value, dtype=np.float32)

    def rotary(name: str) -> np.ndarray:
        weight = take(name)
        return weight if interleaved else _adjacent_pairs(weight, shape)

    layers = []
    for at in (f"model.layers.{index}." for index in range(shape.layers)):
        layers.append(LayerWeights(
            attention_norm=take(at + "input_layernorm.weight"),
            q=rotary(at + "self_attn.q_proj.weight"), k=rotary(at + "self_attn.k_proj.weight"),
            v=take(at + "self_attn.v_proj.weight"), o=take(at + "self_attn.o_proj.weight"),
            mlp_norm=take(at + "post_attention_layernorm.weight"),
            gate=take(at + "mlp.gate_proj.weight") if shape.gated else None,
            up=take(at + "mlp.up_proj.weight"), down=take(at + "mlp.down_proj.weight"),
        ))
    embedding = take("model.embed_tokens.weight")
    head = take("lm_head.weight") if "lm_head.weight" in tensors else embedding
    if shape.tied and not np.array_equal(head, embedding):
        raise CompileError(f"{file.path}: lm_head.weight must equal model.embed_tokens.weight, or "
                           "tie_word_embeddings be false")
    return Checkpoint(shape=shape, embedding=embedding, layers=tuple(layers), norm=take("model.norm.weight"),
                      head=embedding if shape.tied else head)
