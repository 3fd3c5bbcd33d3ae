"""Which tensors and which input types an operation takes, in float and in integers: one table for all rooms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import singledispatch

from gemmule.compiler.ir.nodes import (
    Activation,
    Add,
    Attention,
    Borrowed,
    DType,
    Embedding,
    Form,
    Linear,
    Node,
    Norm,
    Position,
    Product,
    Rope,
)
from gemmule.numerics import BYTE_TABLE_ENTRIES, WORD_TABLE_ENTRIES
from gemmule.timing import ceil_div

__all__ = ["Signature", "Tensor", "signature"]

F32, I8, U8, I16, U16, I32 = (
    DType.FLOAT32, DType.INT8, DType.UINT8, DType.INT16, DType.UINT16, DType.INT32)


@dataclass(frozen=True)
class Tensor:
    """Shape and type of a tensor."""

    shape: tuple[int, ...]
    dtype: DType = F32


@dataclass(frozen=True)
class Signature:
    """What a node takes and gives: types of its inputs in order, its own type, its tensors by role."""

    inputs: tuple[tuple[DType, ...], ...]
    """For each input the types that it may have."""
    output: tuple[DType, ...]
    tensors: Mapping[str, Tensor]


def signature(node: Node) -> Signature:
    """The signature in the domain (float or integers) that the node's own type is of."""
    return _float(node) if node.type.dtype is F32 else _integer(node)


def _float(node: Node) -> Signature:
    tensors: dict[str, Tensor] = {}
    match node:
        case Embedding():
            tensors["table"] = Tensor((node.vocab, node.columns))
        case Position():
            tensors["table"] = Tensor((node.positions, node.columns))
        case Norm():
            tensors |= {role: Tensor((node.width,)) for role in ("gamma", *(("beta",) if node.mean else ()))}
        case Linear():
            tensors["weight"] = Tensor((node.columns, node.depth))
            if node.bias:
                tensors["bias"] = Tensor((node.columns,))
        case Attention():
            tensors |= _prefix(node, F32)
    return Signature(((F32,),) * len(node.INPUTS), (F32,), tensors)


def _prefix(node: Attention, dtype: DType) -> dict[str, Tensor]:
    """Constant rows that every sequence begins with."""
    shape = (node.prefix, node.kv_heads * node.head_dim)
    return {role: Tensor(shape, dtype) for role in ("prefix_key", "prefix_value")} if node.prefix else {}


@singledispatch
def _integer(node: Node) -> Signature:
    raise TypeError(f"no integer signature of {type(node).__name__}")


@_integer.register
def _(node: Embedding) -> Signature:
    return Signature((), (I16,), {
        "codes": Tensor((node.vocab, node.columns), I8), "mult": Tensor((node.vocab,), U16),
        "shift": Tensor((node.vocab,), U8)})


@_integer.register
def _(node: Position) -> Signature:
    return Signature((), (I16,), {"table": Tensor((node.positions, node.columns), I16)})


@_integer.register
def _(node: Borrowed) -> Signature:
    return Signature((), (I16,), {})


@_integer.register
def _(node: Add) -> Signature:
    return Signature(((I16,), (I16, I32)), (I16,), {})


@_integer.register
def _(node: Norm) -> Signature:
    beta = {"beta": Tensor((node.columns,), I32)} if node.mean else {}
    return Signature(((I16,),), (I8, I16), {
        "gamma": Tensor((node.columns,), I16), **beta, "scalars": Tensor((3,), I32)})


@_integer.register
def _(node: Linear) -> Signature:
    tensors = {"weight": Tensor((node.columns, node.depth), I8)}
    if node.bits == 4:
        tensors["weight"] = Tensor((node.columns, ceil_div(node.depth, 2)), U8)
        if node.group:
            tensors["scales"] = Tensor((ceil_div(node.depth, node.group), node.columns), U8)
    if node.bias:
        tensors["bias"] = Tensor((node.columns,), I32)
    tensors |= {"mult": Tensor((node.columns,), U16), "shift": Tensor((node.columns,), U8)}
    return Signature(((I16,),), (I32,), tensors) if node.plane else Signature(((I8,),), (I8, I16, I32), tensors)


@_integer.register
def _(node: Rope) -> Signature:
    angles = Tensor((node.positions, node.head_dim // 2), I16)
    return Signature(((I16,),), (I8,), {"cosine": angles, "sine": angles})


@_integer.register
def _(node: Attention) -> Signature:
    pairs = Tensor((node.heads, 2), I32)
    return Signature(((I8,), (I8,), (I8,)), (I8,), {"score": pairs, "context": pairs} | _prefix(node, I8))


@_integer.register
def _(node: Activation) -> Signature:
    match node.form:
        case Form.WORD:
            return Signature(((I16,),), (I8, I16), {"words": Tensor((WORD_TABLE_ENTRIES,), I16)})
        case Form.IBERT:
            return Signature(((I16,),), (I8,), {"shift": Tensor((1,), U8)})
    return Signature(((I8,),), (I8,), {"table": Tensor((BYTE_TABLE_ENTRIES,), U8)})


@_integer.register
def _(node: Product) -> Signature:
    kind = I16 if node.type.dtype is I16 else I8
    return Signature(((kind,), (kind,)), (I8, I16), {"scale": Tensor((2,), I32)})
