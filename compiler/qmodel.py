"""The quantised decoder: integer arrays plus sizes, saved as one safetensors file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from pydantic import ValidationError
from safetensors.numpy import save

from gemmule.compiler.checkpoint import DecoderShape, DecoderSizes
from gemmule.compiler.decoder_file import LINEARS, Header, expected_tensors
from gemmule.compiler.errors import CompileError
from gemmule.compiler.reference import rope_angles
from gemmule.compiler.tensors import TensorFile, open_tensors
from gemmule.io.fields import first_problem
from gemmule.io.files import write_atomically
from gemmule.io.reading import ReadError, named, parse_json
from gemmule.numerics import rshr, saturate

__all__ = ["Linear", "Norm", "QuantLayer", "QuantModel", "load_quantized", "rope_tables", "save_quantized"]


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


def rope_tables(shape: DecoderShape) -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine of every position and pair, int16 Q1.14  # each [max_positions, head_dim / 2]."""
    cosine, sine = (np.rint(t * 16384).astype(np.int16) for t in rope_angles(shape))
    return cosine, sine


_DTYPES = {"I8": np.int8, "U8": np.uint8, "I16": np.int16, "U16": np.uint16, "I32": np.int32}


def _put_linear(tensors: dict[str, np.ndarray], name: str, value: Linear) -> None:
    tensors[name + ".weight"], tensors[name + ".mult"], tensors[name + ".shift"] = value.weight, value.mult, value.shift


def _put_norm(tensors: dict[str, np.ndarray], name: str, value: Norm) -> None:
    tensors[name + ".gamma"] = value.gamma
    tensors[name + ".scalars"] = np.array([value.shift, value.eps_mult, value.eps_shift])


def save_quantized(model: QuantModel, path: str | Path) -> None:
    """Write the model atomically; equal models give equal bytes.

    Raises:
        CompileError: its shape is one that could not be loaded again.
    """
    try:
        header = Header(format="gemmule-decoder-1", shape=DecoderSizes(**asdict(model.shape)),
                        residual_scale=model.residual_scale, logit_scale=model.logit_scale)
    except ValidationError as error:
        raise CompileError(f"{named(path)}: {first_problem(error, Header)[1]}") from None
    tensors: dict[str, np.ndarray] = {
        "embedding.mult": model.embedding_mult, "embedding.shift": model.embedding_shift,
        "rope.cosine": model.cosine, "rope.sine": model.sine,
    }
    if model.embedding_codes is not None:
        tensors["embedding.codes"] = model.embedding_codes
    for index, layer in enumerate(model.layers):
        at = f"layers.{index}."
        _put_norm(tensors, at + "attention_norm", layer.attention_norm)
        _put_norm(tensors, at + "mlp_norm", layer.mlp_norm)
        for name in LINEARS:
            if getattr(layer, name) is not None:
                _put_linear(tensors, at + name, getattr(layer, name))
        tensors |= {at + "score": layer.score, at + "context": layer.context, at + "table": layer.table,
                    at + "product": np.array(layer.product)}
    _put_norm(tensors, "norm", model.norm)
    _put_linear(tensors, "head", model.head)
    # One metadata key: the library keeps metadata in a hash map, whose order would vary.
    data = save({name: np.ascontiguousarray(tensors[name], dtype=_DTYPES[expected.dtypes[0]])
                 for name, expected in expected_tensors(model.shape).items()},
                metadata={"gemmule": json.dumps(header.model_dump(), sort_keys=True)})
    write_atomically(Path(path), data)


def load_quantized(path: str | Path) -> QuantModel:
    """Read what :func:`save_quantized` wrote, checked as a whole: header, names, shapes, dtypes, ranges, angles.

    Raises:
        CompileError: the file is missing or is not a quantised decoder; the message begins with its path.
    """
    with open_tensors(Path(path)) as file:
        try:
            header = Header.model_validate(parse_json(file.metadata.get("gemmule", "{}")))
        except ReadError as error:
            raise CompileError(f"{file.path}: its metadata {error}: quantise it again") from None
        except ValidationError as error:
            raise CompileError(f"{file.path}: {first_problem(error, Header)[1]}: quantise it again") from None
        shape = header.shape.decoder_shape
        tensors = file.read(expected_tensors(shape))
        _check_angles(file, shape, tensors)
    return _model(shape, header, tensors)


def _check_angles(file: TensorFile, shape: DecoderShape, tensors: dict[str, np.ndarray]) -> None:
    for name, wanted in zip(("rope.cosine", "rope.sine"), rope_tables(shape), strict=True):
        if np.abs(tensors[name].astype(np.int32) - wanted).max() > 1:  # a library's last bit
            raise CompileError(f"{file.path}: {name} must be that of rope_theta = {shape.rope_theta:g}: "
                               "quantise it again")


def _model(shape: DecoderShape, header: Header, tensors: dict[str, np.ndarray]) -> QuantModel:
    def linear(name: str) -> Linear:
        return Linear(weight=tensors[name + ".weight"], mult=tensors[name + ".mult"],
                      shift=tensors[name + ".shift"])

    def norm(name: str) -> Norm:
        shift, eps_mult, eps_shift = (int(v) for v in tensors[name + ".scalars"])
        return Norm(gamma=tensors[name + ".gamma"], shift=shift, eps_mult=eps_mult, eps_shift=eps_shift)

    layers = []
    for at in (f"layers.{index}." for index in range(shape.layers)):
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
        residual_scale=header.residual_scale, logit_scale=header.logit_scale,
    )
