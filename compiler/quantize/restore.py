"""A network in integers as the float one that it computes, so that it can be quantised anew: int8 weights in int4.

Only what integers lost is missing: a weight is its code times its step. Byte tables become their functions again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Attention, Embedding, Graph, Linear, Network, Node, Norm, Position, Type
from gemmule.compiler.ir.integer_interpreter import int4_weights
from gemmule.compiler.ir.nodes import DType

__all__ = ["restore_network"]

NORM_BITS = 10
"""Fraction bits of a normalised value before gamma (docs/numerics.md)."""


def restore_network(network: Network) -> Network:
    """The float network of a decoder in integers; tensors that were shared are shared again.

    Raises:
        CompileError: the network is in float already, or does not tell its scales, or has ranges with zeros or norms of
            two widths, as encoders do.
    """
    graph = network.graph
    if not graph.integer:
        raise CompileError("only a network in integers is restored, not one in float: quantise it as it is")
    if graph.encoder or any(node.type.zero for node in graph.nodes) or graph.wide_norms:
        raise CompileError("only decoders whose ranges have no zeros are restored: import the checkpoint again")
    if all(node.type.scale == 1.0 for node in graph.nodes):
        raise CompileError("this network was quantised without telling its scales: import its checkpoint again")
    weights: dict[str, np.ndarray] = {}
    nodes = []
    for node in graph.nodes:
        tensors = {}
        for role, content in _tensors(network, node).items():
            source = node.tensors["codes" if role == "table" and isinstance(node, Embedding) else role]
            tensors[role] = source  # a head that is tied to the embedding has the same codes
            weights.setdefault(source, np.ascontiguousarray(content, dtype=np.float32))
        plain: dict[str, Any] = {"bits": 8, "group": 0} if isinstance(node, Linear) else {}
        nodes.append(node.model_copy(update={"type": Type(dtype=DType.FLOAT32), "tensors": tensors, **plain}))
    return Network(Graph.model_validate({
        "family": graph.family, "vocab": graph.vocab, "positions": graph.positions, "nodes": tuple(nodes),
        "output": graph.output}), weights)


def _tensors(network: Network, node: Node) -> dict[str, np.ndarray]:
    """A node's float tensors by role."""
    def of(role: str) -> np.ndarray:
        return network.tensor(node, role).astype(np.float64)

    def scaling() -> np.ndarray:
        return of("mult") * 2.0 ** -of("shift")

    match node:
        case Embedding():
            return {"table": of("codes") * (scaling() * _one(node.type))[:, None]}
        case Position():
            return {"table": of("table") * _one(node.type)}
        case Norm():
            scale = node.type.scale if isinstance(node.type.scale, float) else node.type.scale[0]
            step = scale * 2.0 ** (NORM_BITS - of("scalars")[0])
            beta = {"beta": of("beta") * step * 2.0 ** -NORM_BITS} if node.mean else {}
            return {"gamma": of("gamma")[:node.width] * step} | beta  # all heads have that of the first
        case Linear():
            return _linear(network, node, scaling())
        case Attention() if not node.causal:
            raise CompileError(f"{node.name}: only causal attention is restored")
        case _:
            return {}


def _linear(network: Network, node: Linear, scaling: np.ndarray) -> dict[str, np.ndarray]:
    """Weights [columns, depth] and the bias."""
    given = _one(network.graph.by_name[node.x].type)
    out = np.array(node.type.scale if isinstance(node.type.scale, tuple) else [node.type.scale], dtype=np.float64)
    step = scaling * np.repeat(out, node.columns // len(out)) / given
    weight = network.tensor(node, "weight")
    codes = (int4_weights(weight, node.depth) if node.bits == 4 else weight).astype(np.float64)
    if node.group:
        scales = network.tensor(node, "scales").T.astype(np.float64)  # [columns, groups]
        codes = codes * np.repeat(scales, node.group, axis=1)[:, :node.depth]
    bias = {"bias": network.tensor(node, "bias") * step * given} if node.bias else {}
    return {"weight": codes * step[:, None]} | bias


def _one(type_: Type) -> float:
    assert isinstance(type_.scale, float)
    return type_.scale
