"""A network in integers by shape alone: types and sizes as the quantiser gives them, tensors without bytes.

Its commands are those of a quantised network with the same sizes, so its time is too; its answers mean nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Literal

import numpy as np

from gemmule.compiler.ir import (
    Activation,
    Add,
    Borrowed,
    Embedding,
    Graph,
    Linear,
    Network,
    Node,
    Norm,
    Position,
    Rope,
    Type,
    signature,
)
from gemmule.compiler.ir.nodes import DType
from gemmule.compiler.ir.signature import Tensor

__all__ = ["by_shape"]

_ANY = 1
"""Every number of every tensor: a legal multiplier, shift, scale, weight and table entry."""


class _Uniform(Mapping[str, np.ndarray]):
    """Tensors of one number that is stored once, whatever their shape."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors

    def __getitem__(self, name: str) -> np.ndarray:
        tensor = self._tensors[name]
        return np.broadcast_to(np.array(_ANY, dtype=np.dtype(tensor.dtype.value)), tensor.shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def by_shape(graph: Graph, *, bits: Literal[4, 8] = 8, group: int = 32, head_bits: Literal[4, 8] = 8) -> Network:
    """The integer network of a float graph; with ``bits`` 4 a scale for each ``group`` rows of depth.

    ``head_bits``: of the logits' linear, which the quantiser keeps at 8.
    """
    read_by: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for name in node.inputs:
            read_by.setdefault(name, []).append(node)
    nodes: list[Node] = []
    wide = graph.wide_norms
    angles: dict[Hashable, str] = {}
    tied = {node.tensors["table"]: node.name for node in graph.nodes if isinstance(node, Embedding)}
    for node in graph.nodes:
        changed: dict[str, object] = {"type": Type(dtype=_dtype(node, graph, read_by.get(node.name, [])))}
        if isinstance(node, Linear):
            width = head_bits if node.name == graph.output and not graph.encoder else bits
            changed |= {"bits": width, "group": group if width == 4 else 0}
        made = node.model_copy(update=changed)
        roles = {role: f"{node.name}.{role}" for role in signature(made).tensors}
        if isinstance(made, Linear) and made.bits == 8 and node.tensors["weight"] in tied:
            roles["weight"] = f"{tied[node.tensors['weight']]}.codes"
        if isinstance(node, Rope):
            first = angles.setdefault(node.angles, node.name)
            roles = {role: f"{first}.{role}" for role in roles}
        twin = wide.get(node.name, "")
        if twin and twin not in read_by:  # ranges of what nobody reads are not evened out
            roles |= {role: f"{twin}.{role}" for role in ("gamma", "beta") if role in roles}
        nodes.append(made.model_copy(update={"tensors": roles}))
    whole = Graph(family=graph.family, vocab=graph.vocab, positions=graph.positions,
                  nodes=tuple(nodes), output=graph.output)  # type: ignore[arg-type]
    return Network(whole, _Uniform(whole.tensors), alike=True)


def _dtype(node: Node, graph: Graph, readers: list[Node]) -> DType:
    """What the quantiser makes of a value."""
    if any(isinstance(other, Norm) and other.head_dim for other in (node, *readers)):
        return DType.INT16
    if isinstance(node, Embedding | Position | Borrowed | Add) or node.name in graph.wide_norms:
        return DType.INT16
    if isinstance(node, Linear):
        if node.name == graph.output or any(isinstance(reader, Rope) for reader in readers):
            return DType.INT16
        if any(isinstance(reader, Activation) and reader.form for reader in readers):
            return DType.INT16
        if all(isinstance(reader, Add) for reader in readers):
            return DType.INT32
    return DType.INT8
