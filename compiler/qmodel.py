"""The quantised decoder: integer arrays plus sizes, saved as one safetensors file."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save

from gemmule.compiler.checkpoint import DecoderShape
from gemmule.compiler.errors import CompileError
from gemmule.numerics import rshr, saturate

__all__ = ["Linear", "Norm", "QuantLayer", "QuantModel", "load_quantized", "save_quantized"]

FORMAT = "gemmule-decoder-1"


@dataclass(frozen=True, kw_only=True)
class Linear:
    """int8 weights [out, in]; a result column is requantised by its own mult (u16) and shift."""

    weight: np.ndarray
    mult: np.ndarray
    shift: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Norm:
    """RMSNorm: gamma int16 with its shift, epsilon as ``eps_mult << eps_shift``."""

    gamma: np.ndarray
    shift: int
    eps_mult: int
    eps_shift: int


@dataclass(frozen=True, kw_only=True)
class QuantLayer:
    """One layer. q and k leave their first requantisation with 7 fraction bits more than int8.

    ``score`` and ``context`` are [heads, 2]: mult and shift of each head's scores and context.
    ``table`` is the activation on int8 (of the gate when there is one); ``product`` is the (mult,
    shift) of activation times up, used when gated.
    """

    attention_norm: Norm
    q: Linear
    k: Linear
    v: Linear
    score: np.ndarray
    context: np.ndarray
    o: Linear
    mlp_norm: Norm
    gate: Linear | None
    up: Linear
    table: np.ndarray
    product: tuple[int, int]
    down: Linear


@dataclass(frozen=True, kw_only=True)
class QuantModel:
    """A quantised decoder.

    ``cosine``/``sine``: int16 Q1.14 [max_positions, head_dim / 2]. The int16 embedding of a row is
    ``sat16(rshr(code * mult, shift))`` with a row's own mult and shift; ``embedding_codes`` is None
    when the codes are the head's weights (tied). A logit is its int16 times ``logit_scale``.
    """

    shape: DecoderShape
    embedding_codes: np.ndarray | None
    embedding_mult: np.ndarray
    embedding_shift: np.ndarray
    cosine: np.ndarray
    sine: np.ndarray
    layers: tuple[QuantLayer, ...]
    norm: Norm
    head: Linear
    residual_scale: float
    logit_scale: float

    def embedding(self, tokens: np.ndarray) -> np.ndarray:
        """int16 residual rows of tokens  # int64 [tokens, hidden]."""
        codes = self.head.weight if self.embedding_codes is None else self.embedding_codes
        rows = codes[tokens].astype(np.int64) * self.embedding_mult[tokens].astype(np.int64)[:, None]
        return saturate(rshr(rows, self.embedding_shift[tokens].astype(np.int64)[:, None]), 16)

    @staticmethod
    def load(path: str | Path) -> QuantModel:
        """:func:`load_quantized`."""
        return load_quantized(path)

    def save(self, path: str | Path) -> None:
        """:func:`save_quantized`."""
        save_quantized(self, path)


_LINEARS = ("q", "k", "v", "o", "gate", "up", "down")


def _put_linear(tensors: dict[str, np.ndarray], name: str, value: Linear) -> None:
    tensors[name + ".weight"] = value.weight.astype(np.int8)
    tensors[name + ".mult"] = value.mult.astype(np.uint16)
    tensors[name + ".shift"] = value.shift.astype(np.uint8)


def _put_norm(tensors: dict[str, np.ndarray], name: str, value: Norm) -> None:
    tensors[name + ".gamma"] = value.gamma.astype(np.int16)
    tensors[name + ".scalars"] = np.array([value.shift, value.eps_mult, value.eps_shift], dtype=np.int32)


def save_quantized(model: QuantModel, path: str | Path) -> None:
    """Write the model atomically; equal models give equal bytes."""
    tensors: dict[str, np.ndarray] = {
        "embedding.mult": model.embedding_mult.astype(np.uint16),
        "embedding.shift": model.embedding_shift.astype(np.uint8),
        "rope.cosine": model.cosine.astype(np.int16), "rope.sine": model.sine.astype(np.int16),
    }
    if model.embedding_codes is not None:
        tensors["embedding.codes"] = model.embedding_codes.astype(np.int8)
    for index, layer in enumerate(model.layers):
        at = f"layers.{index}."
        _put_norm(tensors, at + "attention_norm", layer.attention_norm)
        _put_norm(tensors, at + "mlp_norm", layer.mlp_norm)
        for name in _LINEARS:
            if getattr(layer, name) is not None:
                _put_linear(tensors, at + name, getattr(layer, name))
        tensors[at + "score"] = layer.score.astype(np.int32)
        tensors[at + "context"] = layer.context.astype(np.int32)
        tensors[at + "table"] = layer.table.astype(np.uint8)
        tensors[at + "product"] = np.array(layer.product, dtype=np.int32)
    _put_norm(tensors, "norm", model.norm)
    _put_linear(tensors, "head", model.head)
    header = {"format": FORMAT, "shape": asdict(model.shape),
              "residual_scale": model.residual_scale, "logit_scale": model.logit_scale}
    # One metadata key: the library keeps metadata in a hash map, whose order would vary.
    data = save({name: np.ascontiguousarray(value) for name, value in tensors.items()},
                metadata={"gemmule": json.dumps(header, sort_keys=True)})
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(data)
    os.replace(temporary, path)


def load_quantized(path: str | Path) -> QuantModel:
    """Read what :func:`save_quantized` wrote.

    Raises:
        CompileError: the file is missing or is not a quantised decoder.
    """
    path = Path(path)
    if not path.is_file():
        raise CompileError(f"{path} is not a file: quantise a checkpoint first")
    try:
        with safe_open(str(path), framework="numpy") as file:
            metadata: dict[str, str] = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except Exception as error:  # the library raises its own type for malformed files
        raise CompileError(f"{path} is not a safetensors file: {error}") from None
    header: dict[str, Any] = json.loads(metadata.get("gemmule", "{}"))
    if header.get("format") != FORMAT:
        raise CompileError(f"{path} has format {header.get('format')!r}, not {FORMAT!r}: quantise it again")

    def linear(name: str) -> Linear:
        return Linear(weight=tensors[name + ".weight"], mult=tensors[name + ".mult"],
                      shift=tensors[name + ".shift"])

    def norm(name: str) -> Norm:
        shift, eps_mult, eps_shift = (int(v) for v in tensors[name + ".scalars"])
        return Norm(gamma=tensors[name + ".gamma"], shift=shift, eps_mult=eps_mult, eps_shift=eps_shift)

    shape = DecoderShape(**header["shape"])
    layers = []
    for index in range(shape.layers):
        at = f"layers.{index}."
        first, second = (int(v) for v in tensors[at + "product"])
        layers.append(QuantLayer(
            attention_norm=norm(at + "attention_norm"), mlp_norm=norm(at + "mlp_norm"),
            q=linear(at + "q"), k=linear(at + "k"), v=linear(at + "v"), o=linear(at + "o"),
            gate=linear(at + "gate") if shape.gated else None, up=linear(at + "up"),
            down=linear(at + "down"), score=tensors[at + "score"], context=tensors[at + "context"],
            table=tensors[at + "table"], product=(first, second),
        ))
    return QuantModel(
        shape=shape, embedding_codes=tensors.get("embedding.codes"),
        embedding_mult=tensors["embedding.mult"], embedding_shift=tensors["embedding.shift"],
        cosine=tensors["rope.cosine"], sine=tensors["rope.sine"], layers=tuple(layers),
        norm=norm("norm"), head=linear("head"),
        residual_scale=header["residual_scale"], logit_scale=header["logit_scale"],
    )
