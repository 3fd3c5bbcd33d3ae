"""What the file of a quantised decoder must hold: its header, and every tensor with dtype, shape and range.

The ranges are those of the device's arithmetic (docs/numerics.md): multipliers of 16 bits, shifts that are not
limited on the way.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from gemmule.compiler.checkpoint import DecoderShape, DecoderSizes
from gemmule.compiler.tensors import Expected
from gemmule.numerics import BYTE_TABLE_ENTRIES, MAX_SHIFT
from gemmule.numerics.norm import MAX_EPSILON_SHIFT

__all__ = ["LINEARS", "Header", "expected_tensors"]

MOST_MULT = (1 << 16) - 1
ROPE_ONE = 1 << 14
"""1.0 of the rotary tables, Q1.14."""
LINEARS = ("q", "k", "v", "o", "gate", "up", "down")
"""The linear layers of a layer; the gate is one of a gated MLP."""

_Scale = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Header(BaseModel):
    """The metadata beside the tensors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: Literal["gemmule-decoder-1"]
    shape: DecoderSizes
    residual_scale: _Scale
    logit_scale: _Scale


def _whole(dtype: str, *shape: int) -> Expected:
    """Every value of its type is legal."""
    return Expected(shape=shape, dtypes=(dtype,))


def _shifts(rows: int) -> Expected:
    return Expected(shape=(rows,), dtypes=("U8",), low=0, high=MAX_SHIFT)


def _pairs(*shape: int) -> Expected:
    """(mult, shift) in the last axis."""
    return Expected(shape=(*shape, 2), dtypes=("I32",), low=(0, 0), high=(MOST_MULT, MAX_SHIFT))


def _linear(name: str, out: int, inputs: int) -> dict[str, Expected]:
    return {f"{name}.weight": _whole("I8", out, inputs), f"{name}.mult": _whole("U16", out),
            f"{name}.shift": _shifts(out)}


def _norm(name: str, hidden: int) -> dict[str, Expected]:
    """The scalars are the shift of gamma, and the multiplier and shift of epsilon."""
    scalars = Expected(shape=(3,), dtypes=("I32",), low=(0, 0, 0), high=(MAX_SHIFT, MOST_MULT, MAX_EPSILON_SHIFT))
    return {f"{name}.gamma": _whole("I16", hidden), f"{name}.scalars": scalars}


def expected_tensors(shape: DecoderShape) -> dict[str, Expected]:
    """Every tensor of a decoder of this shape by name."""
    hidden, inner, width, heads = shape.hidden, shape.inner, shape.width, shape.heads
    angles = Expected(
        shape=(shape.max_positions, shape.head_dim // 2), dtypes=("I16",), low=-ROPE_ONE, high=ROPE_ONE)
    found = {"embedding.mult": _whole("U16", shape.vocab), "embedding.shift": _shifts(shape.vocab),
             "rope.cosine": angles, "rope.sine": angles}
    if not shape.tied:
        found["embedding.codes"] = _whole("I8", shape.vocab, hidden)
    sizes = {"q": (width, hidden), "k": (width, hidden), "v": (width, hidden), "o": (hidden, width),
             "gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner)}
    for at in (f"layers.{index}." for index in range(shape.layers)):
        found |= _norm(at + "attention_norm", hidden) | _norm(at + "mlp_norm", hidden)
        for name in LINEARS:
            if name != "gate" or shape.gated:
                found |= _linear(at + name, *sizes[name])
        found |= {at + "score": _pairs(heads), at + "context": _pairs(heads),
                  at + "table": _whole("U8", BYTE_TABLE_ENTRIES), at + "product": _pairs()}
    return found | _norm("norm", hidden) | _linear("head", shape.vocab, hidden)
